"""What m3b offers to programs that talk to it: looking at data, runs, models and predictions, with JSON values both ways.

Runs are processes of their own (`m3b run`): they go on when the client or this server ends, and a later server finds them in
the list of the user's runs. All paths of a client must lie in the folders that the user names. Texts that a client gets pass
the same masks as those for agents; pictures of patients are sent only if the user allows it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data import phi
from m3b.errors import DataError, M3bError, UsageError
from m3b.run.folder import RunFolder, find_model_folder, get_runs_root, is_own_model, list_runs, name_new_run

if TYPE_CHECKING:
    from m3b.models import Prediction

MAX_PREDICTED = 50
MAX_LISTED = 50


@dataclass
class ServerSettings:
    """What the user of the server decides.

    Args:
        data: folders that clients may name, and whatever lies in them.
        llm: the language model that builds as for `Pipeline`; None for the user's configuration.
        send_images: whether predictions come with pictures, which are patient data.
        runs: folder of new runs; None for `$M3B_RUNS` or `runs`.
        options: further arguments of `m3b run`.
    """

    data: Sequence[Path]
    llm: str | None = None
    send_images: bool = False
    runs: Path | None = None
    options: Sequence[str] = ()
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def resolve_path(self, path: str) -> Path:
        """Return an existing path in one of the folders.

        Raises:
            UsageError: there is no such path in them.
        """
        folders = [Path(folder).resolve() for folder in self.data]
        candidates = [Path(path)] if Path(path).is_absolute() else [folder / path for folder in folders]
        for candidate in candidates:
            resolved = candidate.resolve()
            if resolved.exists() and any(resolved.is_relative_to(folder) for folder in folders):
                return resolved
        allowed = ", ".join(map(str, folders))
        raise UsageError(f"There is no {path} in the folders that this server may read: {allowed}.")

    def start_process(self, run: RunFolder, arguments: Iterable[str]) -> None:
        """Start a command of m3b that works on a run, with its output in the run's parent folder."""
        log = run.path.parent / f"{run.id}.log"
        with log.open("ab") as stream:
            self._processes[run.id] = subprocess.Popen(
                [sys.executable, "-m", "m3b", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def find_process(self, run: RunFolder) -> subprocess.Popen[bytes] | None:
        """Return the process that this server started for a run, if it is still at work."""
        process = self._processes.get(run.id)
        return process if process is not None and process.poll() is None else None


class Tools:
    """The tools of the server. Each takes and returns JSON values."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings

    def look_at_data(self, folder: str, request: str = "", task: str = "") -> dict[str, Any]:
        """Say how a data folder is read: cases, classes, patients, split, exclusions, doubts, and the manifest behind it.

        Args:
            folder: a folder that the server may read.
            request: what the model shall do, in plain words; without it, what the folder holds.
            task: diagnosis, segmentation, detection, report, grading, regression or survival; by default what the request says.
        """
        from m3b.agents.proposal_text import format_survey_lines
        from m3b.isolation.untrusted import TemporaryFolder
        from m3b.run.dataset_preview import preview_dataset, survey_dataset

        root = self.settings.resolve_path(folder)
        with TemporaryFolder("look") as scratch:
            if not request.strip() and not task:
                lines = format_survey_lines(survey_dataset(root, scratch))
                return {"folder": str(root), "lines": [phi.scrub(line) for line in lines]}
            preview = preview_dataset(root, request, scratch, task=task)
        answer = preview.to_json()
        proposals = answer.pop("proposals")
        return {
            "folder": str(root), "lines": [phi.scrub(line) for line in preview.format_lines()], "task": answer["task"],
            "decision": answer["decision"], "question": phi.scrub(answer["insufficient"]),
            "manifest": json.loads(phi.scrub(json.dumps(proposals[0]["manifest"], ensure_ascii=False))) if proposals else None,
        }  # fmt: skip

    def start_run(
        self, request: str, folder: str, train_minutes: float | None = None, manifest: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Start to build a model from a request and a data folder, and return its id for poll_run; the build goes on alone.

        Args:
            request: what the model shall do, in plain words.
            folder: a folder that the server may read.
            train_minutes: minutes of training; 5 by default.
            manifest: how the folder is read, as look_at_data returned it, with your corrections; by default m3b decides.
        """
        from m3b.run.overrides import parse_overrides

        root = self.settings.resolve_path(folder)
        if not request.strip():
            raise UsageError("The request is empty: say what the model shall do.")
        parse_overrides(manifest, None)
        parent = self.settings.runs or get_runs_root()
        run = RunFolder.create((parent / name_new_run()).absolute())
        arguments = ["run", request, "--data", str(root), "--out", str(run.path), "--json", *self.settings.options]
        if self.settings.llm:
            arguments += ["--llm", self.settings.llm]
        if train_minutes is not None:
            arguments += ["--train-minutes", str(train_minutes)]
        if manifest is not None:
            file = run.path.parent / f"{run.id}-manifest.json"
            file.write_text(json.dumps(manifest), encoding="utf-8")
            arguments += ["--manifest", str(file)]
        self.settings.start_process(run, arguments)
        return {"run": run.id, "folder": str(run.path), "status": "working"}

    def check_progress(self, run: str) -> dict[str, Any]:
        """Return status, stage, activity and progress of a run."""
        from m3b.run.summary import summarize_run
        from m3b.run.watching import load_progress

        run_folder = self._find_run(run)
        process = self.settings.find_process(run_folder)
        if not (run_folder.path / "run.json").is_file():
            if process is None:
                raise UsageError(f"The run {run} did not start: {self._read_log_tail(run_folder)}")
            return {"run": run, "status": "working", "now": "starting", "share": None}
        summary = summarize_run(run_folder)
        progress = load_progress(run_folder)
        status = "working" if process is not None else summary["status"]
        now = " ".join(progress.describe_now(time.time())) if status == "working" else ""
        return {
            "run": run_folder.id, "status": status, "now": phi.scrub(now),
            **{key: value for key, value in progress.to_dict(time.time()).items() if key != "activity"},
        }  # fmt: skip

    def get_result(self, run: str = "last") -> dict[str, Any]:
        """Return the result of a run: status, reason, metrics with intervals on locked test cases, model and report."""
        record = self._find_run(run).load_record()
        if not isinstance(result := record.get("result"), dict):
            raise UsageError(f"The run {run} has no result yet; its status is {record.get('status')}.")
        return dict(json.loads(phi.scrub(json.dumps(result, ensure_ascii=False))))

    def cancel_run(self, run: str) -> dict[str, Any]:
        """Stop a run; resume_run continues it."""
        run_folder = self._find_run(run)
        process = self.settings.find_process(run_folder)
        if process is None:
            state = "at work in another program: stop it there" if run_folder.is_busy else "not at work"
            raise UsageError(f"The run {run} is {state}.")
        process.terminate()
        process.wait()
        return self.check_progress(run)

    def resume_run(self, run: str) -> dict[str, Any]:
        """Continue a run that was stopped or interrupted."""
        run_folder = self._find_run(run)
        if run_folder.is_busy:
            raise UsageError(f"The run {run} is at work.")
        self.settings.start_process(run_folder, ["resume", str(run_folder.path), "--json"])
        return {"run": run_folder.id, "status": "working"}

    def list_runs(self) -> list[dict[str, Any]]:
        """List the user's latest runs: id, status, request, primary metric."""
        from m3b.run.summary import summarize_run

        summaries = [summarize_run(run) for run in list_runs()[-MAX_LISTED:]]
        return [{**summary, "request": phi.scrub(summary["request"])} for summary in reversed(summaries)]

    def list_models(self) -> list[dict[str, Any]]:
        """List the latest delivered models: task, classes, inputs, test metric and folder, which predict takes."""
        from m3b.models import load_model

        models = []
        for run in reversed(list_runs()[-MAX_LISTED:]):
            try:
                with load_model(find_model_folder(run.path)) as model:
                    models.append({
                        "run": run.id, "folder": str(model.folder), "task": model.task, "classes": list(model.classes),
                        "channels": list(model.channels), "covariates": [dict(rule) for rule in model.covariates],
                        "primary": model.metrics.get("primary"),
                    })  # fmt: skip
            except (M3bError, OSError):
                continue  # a run without a model, or one that was removed
        return models

    def predict(
        self, model: str, images: Sequence[str | dict[str, Any]], saliency: bool
    ) -> tuple[list[dict[str, Any]], list[bytes]]:
        """Return an entry for each image, and pictures if the user allows them."""
        from m3b.models import load_model

        if not 0 < len(images) <= MAX_PREDICTED:
            raise UsageError(f"Name 1 to {MAX_PREDICTED} images; there are {len(images)}.")
        folder = find_model_folder(model)
        if not is_own_model(folder):
            raise UsageError(f"{folder} is not the model of one of your runs; list_models names them.")
        out = (self.settings.runs or get_runs_root()).absolute() / "predictions" / name_new_run()
        with load_model(folder) as opened_model:
            image_keys = {"image", *opened_model.channels}
            cases = [self._resolve_case(image, image_keys) for image in images]
            predictions = opened_model.predict(cases, strict=False, out=out, saliency=saliency)
            pictures = [picture for item in predictions[:MAX_PREDICTED] if (picture := self._draw(item))]
        return [phi.masked_json(prediction.to_dict()) for prediction in predictions], pictures

    def _resolve_case(self, case: str | dict[str, Any], image_keys: set[str]) -> Any:
        if isinstance(case, str):
            return str(self.settings.resolve_path(case))
        return {
            key: str(self.settings.resolve_path(str(value))) if key in image_keys else value
            for key, value in case.items()
        }

    def _draw(self, prediction: Prediction) -> bytes:
        return prediction.draw() if self.settings.send_images else b""

    def _find_run(self, run: str) -> RunFolder:
        """Return a run by its id, folder or `last`; also one of this server that has not begun.

        Raises:
            UsageError: the user has no such run.
        """
        new_run = (self.settings.runs or get_runs_root()).absolute() / run
        if run in self.settings._processes and not (new_run / "run.json").is_file():
            return RunFolder(new_run)
        known_runs = {known.id: known for known in list_runs()}
        if run == "last" and known_runs:
            return list(known_runs.values())[-1]
        if run not in known_runs:
            raise DataError(f"There is no run {run}; list_runs names them.")
        return known_runs[run]

    def _read_log_tail(self, run: RunFolder) -> str:
        try:
            text = (run.path.parent / f"{run.id}.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "nothing was written"
        return phi.scrub(text.strip()[-500:])
