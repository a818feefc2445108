"""Dry run of `plan.py` of a template or project, on a copy in the sandbox; the target machine need not be this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import DataError, UsageError
from m3b.isolation import untrusted
from m3b.isolation.sandbox import Limits, Mounts, Sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.resources import copy_template, get_resources_folder
from m3b.run.dataset_preview import preview_dataset
from m3b.tasks import get_family
from m3b.tasks.templates import list_templates_for

MAX_PLAN_S = 1800.0
MAX_MEMORY_MIB = 65536
CODE_FOLDERS = ("Datapath", "Model", "Loss", "Utils", "Fewshot", "deliver")
"""Folders of a project that `plan.py` needs besides its files; they are copied, other folders are linked."""
EXCLUDED_FOLDERS = ("Logout", "Deliver", "__pycache__")


@dataclass(frozen=True)
class DryPlan:
    """The result of `plan.py`.

    Args:
        output: its printed text: what it found, decided and expects.
        plan: the content of plan.json.
    """

    output: str
    plan: dict[str, Any]


@dataclass(frozen=True)
class PlanOptions:
    """Options of `plan.py`.

    Args:
        device: `auto`, `cpu`, `cuda`, or a GPU of another machine by its memory: `cuda:80GB`, `cuda:16GB:fp16`.
        gpus: number of GPUs; 0 for those of this machine.
        minutes: training time.
        settings: `KEY=VALUE` entries of plan.json.
    """

    device: str = "auto"
    gpus: int = 0
    minutes: float = 10.0
    settings: tuple[str, ...] = ()

    def to_arguments(self) -> list[str]:
        """Return the command line arguments of plan.py."""
        arguments = ["--device", self.device, "--minutes", f"{self.minutes:g}"]
        arguments += ["--gpus", str(self.gpus)] if self.gpus else []
        return [*arguments, *(["--set", *self.settings] if self.settings else [])]


def is_project(folder: Path) -> bool:
    """Return whether a folder holds a training project with its index, and not raw data."""
    return (folder / "plan.py").is_file() and (folder / "Datapath" / "train.json").is_file()


def make_dry_plan(
    source: Path, options: PlanOptions, sandbox: Sandbox, *, request: str = "", task: str = ""
) -> DryPlan:
    """Plan the training of a project, or of a data folder as `m3b look` reads it for a request.

    Nothing is written to the source folder.

    Raises:
        UsageError: neither request nor task says what a data folder is for, or plan.py refuses the options.
        DataError: no manifest of the data can be taken, or the plan cannot be made.
    """
    source = source.resolve()
    with TemporaryFolder("plan") as scratch, TemporaryFolder("plans") as logs:
        work = scratch / "work"
        if is_project(source):
            _copy_project(source, work)
        else:
            _assemble_project(source, work, scratch, (request, task))
        process = sandbox.start(
            [sys.executable, "-B", "plan.py", *options.to_arguments()],
            cwd=work,
            mounts=Mounts(read=(source, *_resolve_data_links(source)), write=(scratch,)),
            output=logs / "output.txt",
            env={"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "")} if os.environ.get("OMP_NUM_THREADS") else {},
            limits=Limits(wall_s=MAX_PLAN_S, memory_mib=MAX_MEMORY_MIB),
        )
        exit_status = process.wait()
        text = (logs / "output.txt").read_text(encoding="utf-8", errors="replace").strip()
        plan_file = work / "plan.json"
        if exit_status is None or exit_status.code or not plan_file.is_file():
            last_line = text.splitlines()[-1] if text else ""
            if "--device" in last_line or "--gpus" in last_line or "--set" in last_line:
                raise UsageError(last_line)
            raise DataError(
                f"The plan could not be made: {last_line or (exit_status.reason if exit_status else 'lost')}"
            )
        try:
            return DryPlan(_drop_written_line(text), dict(untrusted.read_json(work, plan_file.name)))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"plan.py wrote a plan.json that cannot be read: {error}.") from error


def _drop_written_line(text: str) -> str:
    """Return the output of plan.py without the line on plan.json, since the copy that holds it is temporary."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("wrote plan.json"))


def _copy_project(project: Path, work: Path) -> None:
    """Copy the code and index of a project; its other folders become links. Links to files are not copied."""
    work.mkdir()
    for item in sorted(project.iterdir()):
        if item.name in EXCLUDED_FOLDERS:
            continue
        if item.name in CODE_FOLDERS and untrusted.is_folder(project, item.name):
            untrusted.copy_tree(project, item.name, work / item.name, skip=EXCLUDED_FOLDERS, strict=False)
        elif item.is_dir():
            (work / item.name).symlink_to(item.resolve(), target_is_directory=True)
        elif untrusted.is_file(project, item.name):
            untrusted.copy_file(project, item.name, work, item.name)


def _assemble_project(folder: Path, work: Path, scratch: Path, request_and_task: tuple[str, str]) -> None:
    """Put the task's template and the index of the best manifest into `work`."""
    request, task = request_and_task
    if not request.strip() and not task:
        raise UsageError(f"{folder} is raw data: say what the model should do, or give --task.")
    preview = preview_dataset(folder, request, scratch, task=task)
    if preview.accepted_proposal is None or not preview.counts:
        raise DataError(preview.insufficient or f"{folder} cannot be read for this.")
    templates = get_resources_folder() / "templates"
    template = list_templates_for(templates, get_family(preview.task))[0]
    copy_template(template, work)
    (work / "Datapath" / "test.json").unlink(missing_ok=True)
    (work / "data").mkdir(exist_ok=True)
    if not (work / "data" / "data").exists():
        (work / "data" / "data").symlink_to(folder, target_is_directory=True)


def _resolve_data_links(source: Path) -> Sequence[Path]:
    """Return the targets of the links in a project's `data` folder."""
    links = [item for item in (source / "data").iterdir() if item.is_symlink()] if (source / "data").is_dir() else []
    return tuple(target for item in links if (target := item.resolve()).exists())
