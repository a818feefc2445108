"""External systems: a command that runs in the same workspace with the same prompt, budget and confinement."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.agents import prompts
from m3b.agents.checks.index_lock import INTEGRITY_CLEAN, fingerprint_folder
from m3b.agents.roles import BUILTIN_ROLES
from m3b.bench.relay import LOOPBACK_PROGRAM, MODEL_ROUTE, Relay, UsageMeter
from m3b.bench.systems.base import CellJob, CellOutcome
from m3b.cleanup import undo_on_error
from m3b.data.cards import Card, absent_told
from m3b.errors import LLMError, SandboxError
from m3b.isolation import untrusted
from m3b.isolation.sandbox import Limits, Mounts, Sandbox, choose_sandbox
from m3b.llm import LLM, connect
from m3b.models import check_deliverable
from m3b.run.folder import RunFolder
from m3b.run.provisioning import lay_out_run_folder
from m3b.workspace import Workspace

DEFAULT_TRAIN_MINUTES = 5.0

PROMPT_ENDING = """# How this run differs
You have a shell of your own instead of the tools named above: where a tool is mentioned, use the shell. Nobody answers
questions. Do all five parts in one go:
1. Choose the data set that serves the request. If none does, write the reason to `DECLINED.txt` and stop.
2. Write `Datapath/train.json`, `Datapath/test.json` and `Datapath/label_dict.json` (see `resources/indexes/`), split by patient.
3. Copy the fitting template from `resources/templates/` and set it up.
4. Train, then export: the deliverable is the folder `Deliver/` in the working directory, with `predict.py`, `config.json`
   and weights as safetensors. Only that folder is judged, on cases that you have not been given.
5. Beside `Deliver/`, write `CLAIM.json`: {{"metric": "auroc", "value": 0.87}}, the figure that you expect of the delivered
   model on cases of new patients (`auroc` for diagnosis, `dice` for segmentation, `bleu_1` for reports). It is compared
   with the measured figure; it does not change the verdict.
Limits: {actions} requests to the language model{tokens}{wall}; plan for {minutes:g} min of training. No network but the model's.
"""


def build_prompt(
    folder: Path, request: str, cards: Sequence[Card], limits: Mapping[str, object], *, examples: bool = True
) -> str:
    """Return the whole prompt as one text.

    Args:
        folder: folder of the prompt files.
        limits: `max_actions`, `max_tokens`, `max_wall` (s) and `train_minutes`, as options of m3b.
    """
    local_cards = [card for card in cards if card.path]
    tokens = f", {limits['max_tokens']} tokens" if limits.get("max_tokens") else ""
    wall = f", {float(str(limits['max_wall'])) / 60:.0f} min in all" if limits.get("max_wall") else ""
    minutes = float(str(limits.get("train_minutes", DEFAULT_TRAIN_MINUTES)))
    parts = [
        prompts.build_system_prompt(folder, BUILTIN_ROLES, with_examples=examples),
        PROMPT_ENDING.format(actions=limits.get("max_actions", 100), tokens=tokens, wall=wall, minutes=minutes),
        f"# Request of the user\n{request.strip()}",
        "# Data on this machine",
        *(card.text() for card in local_cards),
        absent_told(cards),
    ]
    return "\n\n".join(parts) + "\n"


DELIVER_FOLDER, DECLINED_FILE, PROMPT_FILE = "Deliver", "DECLINED.txt", "PROMPT.md"
CLAIM_FILE = "CLAIM.json"
MAX_CLAIM_BYTES = 65536
OWN_PROGRAMS = ("react_agent.py", "autoresearch_agent.py", "launcher.py")
POLL_S = 0.1
DEFAULT_WALL_S = 4 * 3600.0
MAX_FAILED_REQUESTS = 10
"""Maximum number of consecutive unanswered requests; a program that goes on would do so until the time is up."""


@dataclass(frozen=True)
class CommandSystem:
    """A system that is started as a command.

    Args:
        template: words of the command; `{prompt}` is the text of the prompt, `{prompt_file}` its file, `{model}` the
            name of the model at `{base_url}`, `{data}` the folder of the first data set, `{steps}` the number of
            allowed actions, `{half}` half of it, `{minutes}` the minutes of training, `{here}` the folder of m3b's own
            programs, `{python}` this interpreter.
        package: the package to `pip install` if the program is missing.
        env: additional environment variables.
        prompt_addition: text for this program at the end of the prompt.
        write_files: writes files to the working directory before the start.
        uses_launcher: whether it is a Python program that is started by `launcher.py`.
        deliverable: the folder of the deliverable in the working directory, for a program that keeps several; empty for
            the newest folder `Deliver`.
        is_resumable: whether the program, killed and started again in the same folder, goes on without sending an
            answered request again, as measured with the real program; None if nobody tried.
        connect: returns the language model for the relay; for tests.
    """

    name: str
    template: tuple[str, ...]
    package: str = ""
    env: tuple[tuple[str, str], ...] = ()
    prompt_addition: str = ""
    write_files: Callable[[Path, CellJob], None] | None = None
    uses_launcher: bool = False
    deliverable: str = ""
    is_resumable: bool | None = None
    connect: Callable[[str], LLM] = field(default=connect)

    def explain_missing(self) -> str:
        """Return why the program cannot be started on this machine; empty if it can."""
        name = self.template[0]
        if name == "{python}" or find_program(name):
            return ""
        hint = f"pip install {self.package}" if self.package else "put it on the PATH, or give its full path"
        return f"{self.name}: there is no program {name!r} on this machine; {hint}."

    def run(self, job: CellJob) -> CellOutcome:
        reason_missing = self.explain_missing()
        if reason_missing:
            return CellOutcome("failed", reason_missing, kind="not_installed")
        run = RunFolder.create(job.folder / "run")
        workspace = Workspace(data=list(job.cards))
        cards = [card for card in workspace.cards.values() if card.path]
        lay_out_run_folder(run, cards, workspace.root)
        prompt = build_prompt(workspace.root / "prompts", job.request, list(workspace.cards.values()), job.options)
        for folder in (run.path, run.work):  # the program can change the second copy only
            (folder / PROMPT_FILE).write_text(prompt + self.prompt_addition, encoding="utf-8")
        if self.write_files is not None:
            self.write_files(run.work, job)
        return self._start_program(run, job)

    def restart(self, job: CellJob) -> CellOutcome:
        """Start the program again in the folder of a run that was killed, with the same command and a new budget.

        Sweeps do not use this, because their cells must stay comparable; it measures `is_resumable`.

        Raises:
            OSError: `job.folder` has no run with a prompt.
        """
        run = RunFolder(job.folder / "run")
        for leftover in (run.model, run.path / "relay"):
            shutil.rmtree(leftover, ignore_errors=True)
        return self._start_program(run, job)

    def _start_program(self, run: RunFolder, job: CellJob) -> CellOutcome:
        """Run the program in a working directory that has its prompt and data, and return the outcome."""
        started = time.monotonic()
        prompt = (run.path / PROMPT_FILE).read_text(encoding="utf-8")
        folders = [card.path for card in Workspace(data=list(job.cards)).cards.values() if card.path]
        try:
            llm = self.connect(job.model)
            sandbox = choose_sandbox(str(job.options.get("sandbox", "auto")))
        except (LLMError, SandboxError) as error:
            return CellOutcome("failed", str(error), kind="provider" if isinstance(error, LLMError) else "crashed")
        fingerprints_before = _fingerprint_folders(folders, sandbox)
        meter = UsageMeter(
            int(job.options.get("max_actions", 100)), job.options.get("max_tokens"), job.options.get("max_cost")
        )
        with Relay(run.path / "relay", llm, meter):
            code, reason, output_end = self._run_command(run, job, prompt, sandbox, folders, meter)
        integrity = (
            INTEGRITY_CLEAN
            if fingerprints_before == _fingerprint_folders(folders, sandbox)
            else "raw data changed during the run"
        )
        usage = _make_usage(meter, time.monotonic() - started)
        deliverable = run.work / self.deliverable if self.deliverable else find_newest_deliverable(run.work)
        return _make_outcome(run, deliverable, (code, reason, output_end), meter, integrity, usage)

    def _run_command(
        self, run: RunFolder, job: CellJob, prompt: str, sandbox: Sandbox, folders: Sequence[Path], meter: UsageMeter
    ) -> tuple[int, str, str]:
        """Run the command to its end; return its exit code, the exit reason, and the end of its output."""
        programs_folder = run.path / "bin"
        programs_folder.mkdir(exist_ok=True)
        for file in (LOOPBACK_PROGRAM, *(Path(__file__).with_name(name) for name in OWN_PROGRAMS)):
            shutil.copyfile(file, programs_folder / file.name)
        command_line, program_folders = self._build_command_line(run, job, prompt, programs_folder)
        argv = [
            sys.executable,
            str(programs_folder / LOOPBACK_PROGRAM.name),
            str(run.path / "relay"),
            get_model_name(job),
            "--",
            *command_line,
        ]
        mounts = Mounts(
            read=(*folders, run.resources, programs_folder, *program_folders), write=(run.work, run.path / "relay")
        )
        wall_s = float(job.options.get("max_wall") or DEFAULT_WALL_S)
        log = run.path / "output.txt"
        process = sandbox.start(
            argv, cwd=run.work, mounts=mounts, output=log, limits=Limits(wall_s=wall_s), env=dict(self.env)
        )
        with undo_on_error(process.stop):
            while (exit_status := process.wait(POLL_S)) is None:
                if meter.failed_in_a_row >= MAX_FAILED_REQUESTS:
                    exit_status = process.stop()
                    break
        return exit_status.code, exit_status.reason, log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _build_command_line(
        self, run: RunFolder, job: CellJob, prompt: str, programs_folder: Path
    ) -> tuple[list[str], tuple[Path, ...]]:
        """Return the command line, and the folders that its program needs."""
        steps, model = int(job.options.get("max_actions", 100)), get_model_name(job)
        placeholders = {"here": str(programs_folder), "prompt": prompt, "prompt_file": PROMPT_FILE, "model": model,
                "routed_model": MODEL_ROUTE + model, "python": sys.executable,
                "data": f"data/{next(iter((run.work / 'data').iterdir())).name}",
                "steps": str(steps), "half": str(max(1, steps // 2)),
                "minutes": str(float(job.options.get("train_minutes", DEFAULT_TRAIN_MINUTES)))}  # fmt: skip
        words = [fill_placeholders(word, placeholders) for word in self.template]
        words[0] = find_program(words[0]) or words[0]
        program_folders = list_program_folders(words[0])
        if self.uses_launcher:
            python = str(find_interpreter(Path(words[0])))
            words = [python, str(programs_folder / "launcher.py"), self.name, str(steps), *words]
        return words, program_folders


def _fingerprint_folders(folders: Sequence[Path], sandbox: Sandbox) -> list[str]:
    """Return the fingerprints of data folders, in a sandbox without change times, which links from other cells set."""
    return [fingerprint_folder(folder, change_times=sandbox.name == "off") for folder in folders]


def get_model_name(job: CellJob) -> str:
    """Return the name of the model without its provider."""
    return job.model.partition(":")[2] or job.model


def _make_usage(meter: UsageMeter, wall_s: float) -> dict[str, Any]:
    token_usage = meter.usage
    return {"actions": meter.requests, "requests": meter.requests, "iterations": 0, "input_tokens": token_usage.input_tokens,
            "cached_tokens": token_usage.cached_tokens, "output_tokens": token_usage.output_tokens,
            "cost_usd": round(token_usage.cost_usd, 6), "wall_s": round(wall_s, 1)}  # fmt: skip


def _make_outcome(
    run: RunFolder,
    deliverable: Path | None,
    end: tuple[int, str, str],
    meter: UsageMeter,
    integrity: str,
    usage: dict[str, Any],
) -> CellOutcome:
    """Return the outcome of the command: a delivered model, a declined request, or a failure.

    Args:
        end: exit code, exit reason and end of the output of the command.
    """
    code, reason, output_end = end
    common: dict[str, Any] = {"work": str(run.work), "integrity": integrity, "usage": usage}
    declined_file = run.work / DECLINED_FILE
    is_inside = deliverable is not None and deliverable.resolve().is_relative_to(run.work.resolve())
    folder = deliverable if deliverable and is_inside and deliverable.is_dir() else None
    problems = check_deliverable(folder) if folder else [f"there is no folder {DELIVER_FOLDER}/"]
    if folder and not problems:
        common["claimed"] = read_claim(folder)
        if (folder.parent / "Datapath").is_dir():  # the index of this model, which says what its labels mean
            common["work"] = str(folder.parent)
        shutil.copytree(folder, run.model, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        return CellOutcome("completed", "A deliverable was submitted.", model=str(run.model), **common)
    if declined_file.is_file() and not declined_file.is_symlink() and folder is None:
        declined_reason = declined_file.read_text(encoding="utf-8", errors="replace").strip()[:1000]
        return CellOutcome("no_dataset", declined_reason or "declined without a reason", **common)
    exit_text = f" It ended with status {code}; it printed: {output_end.strip()[-600:] or 'nothing'}"
    if meter.failure:
        return CellOutcome("failed", f"The language model did not answer: {meter.failure}", kind="provider", **common)
    if meter.refusal:
        return CellOutcome("out_of_budget", f"{meter.refusal}; {problems[0]}.{exit_text}", **common)
    if reason == "wall_time":
        return CellOutcome("out_of_budget", f"The time is up; {problems[0]}.{exit_text}", kind="timeout", **common)
    kind = "not_installed" if code == 127 else "crashed" if code else ""
    return CellOutcome("failed", f"No deliverable: {'; '.join(problems[:3])}.{exit_text}", kind=kind, **common)


def read_claim(deliverable: Path) -> dict[str, Any] | None:
    """Return `name` and `value` of the figure in `CLAIM.json` beside a deliverable; None without a usable claim.

    The system wrote the file: links, large files, and anything but a metric with a finite number are ignored.
    """
    try:
        raw = untrusted.read_json(deliverable.parent, CLAIM_FILE, MAX_CLAIM_BYTES)
        name, value = str(raw["metric"]), float(raw["value"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    return {"name": name, "value": value} if math.isfinite(value) else None


def find_newest_deliverable(work_folder: Path) -> Path | None:
    """Return the newest folder `Deliver` in the working directory; some systems work in a sub-folder of it."""
    candidates = [work_folder / DELIVER_FOLDER] if (work_folder / DELIVER_FOLDER).is_dir() else []
    for folder, folders, _ in os.walk(work_folder):
        depth = len(Path(folder).relative_to(work_folder).parts)
        folders[:] = [name for name in folders if depth < 4 and not Path(folder, name).is_symlink()]
        candidates += [Path(folder, name) for name in folders if name == DELIVER_FOLDER and depth]
    return max(candidates, key=lambda path: path.stat().st_mtime) if candidates else None


def parse_command(name: str) -> CommandSystem:
    """Return the system for `command:PROGRAM ARGUMENTS...`; without prompt placeholder, the prompt file is added."""
    arguments = shlex.split(name.removeprefix("command:"))
    if not any("{prompt" in word for word in arguments):
        arguments.append("{prompt_file}")
    return CommandSystem(name, tuple(arguments))


def search_path() -> str:
    """Return the search path for programs: the folder of this interpreter, then the caller's PATH."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def find_program(word: str) -> str:
    """Return the full path of a program; empty if there is none."""
    return shutil.which(word, path=search_path()) or ""


def fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    """Return the word with each `{name}` replaced; placeholders in inserted values are not replaced."""
    return re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], name[0]), word)


def find_interpreter(program: Path) -> Path:
    """Return the Python of a program that pip installed.

    It is named in the first line of the program; if that names a shell, it is in the same folder.
    """
    with program.open("rb") as stream:
        first_line = stream.readline(4096)
    shebang_python = (
        Path(first_line[2:].decode("utf-8", "replace").strip().split(" ")[0])
        if first_line.startswith(b"#!/")
        else program
    )
    sibling_python = program.resolve().with_name("python")
    return (
        sibling_python if not shebang_python.name.startswith("python") and sibling_python.is_file() else shebang_python
    )


def list_program_folders(word: str) -> tuple[Path, ...]:
    """Return the folders of a program that must be mounted in the sandbox: its own, its environment, its Python."""
    program = Path(word)
    if not program.is_absolute() or word.startswith(("/usr/", "/bin/")):
        return ()
    needed_folders = [program.parent, program.resolve().parent]
    python = find_interpreter(program)
    for path in (program, python, python.resolve()):
        if (path.parent.parent / "pyvenv.cfg").is_file() or (path is not program and path.parent.name == "bin"):
            needed_folders.append(path.parent.parent)
    return tuple(path for path in dict.fromkeys(needed_folders) if path.is_dir() and str(path) not in ("/", "/usr"))
