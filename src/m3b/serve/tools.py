"""What m3b offers to programs that talk to it: looking at data, runs, models and predictions, with JSON values both ways.

Runs are processes of their own (`m3b run`): they go on when the client or this server ends, and a later server finds them in
the list of the user's runs. All paths of a client must lie in the folders that the user names. Texts that a client gets pass
the same masks as those for agents; pictures of patients are sent only if the user allows it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data import phi
from m3b.errors import DataError, M3bError, UsageError
from m3b.locking import read_lock_owner
from m3b.run.folder import LOCK_FILE, RunFolder, find_model_folder, get_runs_root, list_runs, name_new_run

if TYPE_CHECKING:
    from m3b.models import Prediction

MAX_PREDICTED = 50
MAX_REQUEST_CHARS = 4000
STOP_S = 30.0
"""Seconds that a run has to end after it was told to."""
MAX_LISTED = 50


@dataclass
class ServerSettings:
    """What the user of the server decides.

    Args:
        data: folders that clients may name, and whatever lies in them.
        llm: the language model that builds as for `Pipeline`; None for the user's configuration.
        send_images: whether predictions come with pictures, which are patient data.
        runs: folder of new runs; None for `$M3B_RUNS` or `runs`.
    """

    data: Sequence[Path]
    llm: str | None = None
    send_images: bool = False
    runs: Path | None = None
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def resolve_path(self, path: str) -> Path:
        """Return an existing path in one of the folders.

        Raises:
            UsageError: there is no such path in them.
        """
        folders = [Path(folder).resolve() for folder in self.data]
        candidates = [Path(path)] if Path(path).is_absolute() else [folder / path for folder in folders]
        for candidate in candidates if path else []:
            try:
                resolved = candidate.resolve()
                if any(resolved.is_relative_to(folder) for folder in folders) and resolved.exists():
                    return resolved
            except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL
                continue
        allowed = ", ".join(map(str, folders))
        raise UsageError(f"There is no {path} in the folders that this server may read: {allowed}.")

    def start_process(self, run: RunFolder, arguments: Iterable[str]) -> None:
        """Start a command of m3b that works on a run, with its output in the run's parent folder.

        Raises:
            UsageError: a process works on the run.
        """
        log = run.path.parent / f"{run.id}.log"
        with self._lock, log.open("ab") as stream:
            if self.find_process(run) is not None or run.is_busy:
                raise UsageError(f"The run {run.id} is at work.")
            self._processes[run.id] = subprocess.Popen(
                [sys.executable, "-m", "m3b", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def has_started(self, run_id: str) -> bool:
        """Return whether this server started or resumed a run."""
        return run_id in self._processes

    def find_process(self, run: RunFolder) -> subprocess.Popen[bytes] | None:
        """Return the process that this server started for a run, if it is still at work."""
        process = self._processes.get(run.id)
        return process if process is not None and process.poll() is None else None


def scrub_values(value: Any) -> Any:
    """Return JSON values whose texts pass the masks for agents; numbers and keys stay."""
    if isinstance(value, dict):
        return {key: scrub_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_values(item) for item in value]
    return phi.scrub(value) if isinstance(value, str) else value


def check_request(request: str) -> None:
    """Raise UsageError for a request that is too long or holds a NUL."""
    if len(request) > MAX_REQUEST_CHARS or "\0" in request:
        raise UsageError(
            f"The request has {len(request):,} characters; m3b takes at most {MAX_REQUEST_CHARS:,}, without NUL."
        )


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

        check_request(request)
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
            "manifest": scrub_values(proposals[0]["manifest"]) if proposals else None,
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
        from m3b.run.options import Options
        from m3b.run.overrides import parse_overrides

        check_request(request)
        root = self.settings.resolve_path(folder)
        if not request.strip():
            raise UsageError("The request is empty: say what the model shall do.")
        parse_overrides(manifest, None)
        Options(train_minutes=train_minutes)
        parent = self.settings.runs or get_runs_root()
        run = RunFolder.create((parent / name_new_run()).absolute())
        arguments = ["run", "--data", str(root), "--out", str(run.path), "--json"]
        if self.settings.llm:
            arguments += ["--llm", self.settings.llm]
        if train_minutes is not None:
            arguments += ["--train-minutes", str(train_minutes)]
        if manifest is not None:
            file = run.path.parent / f"{run.id}-manifest.json"
            file.write_text(json.dumps(manifest), encoding="utf-8")
            arguments += ["--manifest", str(file)]
        self.settings.start_process(run, [*arguments, "--", request])
        return {"run": run.id, "folder": str(run.path), "status": "working"}

    def check_progress(self, run: str) -> dict[str, Any]:
        """Return status, stage, activity and progress of a run."""
        from m3b.run.summary import summarize_run
        from m3b.run.watching import load_progress

        run_folder = self._find_run(run)
        process = self.settings.find_process(run_folder)
        if not (run_folder.path / "run.json").is_file():
            if process is None and not run_folder.path.is_dir():
                raise UsageError(f"The folder of the run {run} was removed.")
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
        return dict(scrub_values(result))

    def cancel_run(self, run: str) -> dict[str, Any]:
        """Stop a run; resume_run continues it."""
        run_folder = self._find_run(run)
        owner = read_lock_owner(run_folder.path / LOCK_FILE)
        if self.settings.find_process(run_folder) is None and not (run_folder.is_busy and owner.isdigit()):
            place = f"at work in process {owner}; stop it there" if run_folder.is_busy else "not at work"
            raise UsageError(f"The run {run} is {place}.")
        process = self.settings.find_process(run_folder)
        os.kill(process.pid if process is not None else int(owner), signal.SIGTERM)
        end = time.monotonic() + STOP_S
        while (self.settings.find_process(run_folder) is not None or run_folder.is_busy) and time.monotonic() < end:
            time.sleep(0.1)
        return self.check_progress(run)

    def resume_run(self, run: str) -> dict[str, Any]:
        """Continue a run that was stopped or interrupted."""
        run_folder = self._find_run(run)
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

    def predict(self, model: str, images: Sequence[Any], saliency: bool) -> tuple[list[dict[str, Any]], list[bytes]]:
        """Return an entry for each image, and pictures if the user allows them."""
        from m3b.models import load_model
        from m3b.models.input_cases import find_model_images

        folder = self._find_model(model)
        out = (self.settings.runs or get_runs_root()).absolute() / "predictions" / name_new_run()
        with load_model(folder) as opened_model:
            channels = set(opened_model.channels)
            cases: list[Any] = [self._resolve_case(image, channels) for image in images]
            if not channels and all(isinstance(case, str) for case in cases):
                cases = list(find_model_images(cases, opened_model.config).images)
            if not 0 < len(cases) <= MAX_PREDICTED:
                raise UsageError(f"Name 1 to {MAX_PREDICTED} images; there are {len(cases)}.")
            predictions = opened_model.predict(cases, strict=False, out=out, saliency=saliency)
            pictures = [picture for item in predictions if (picture := self._draw(item))]
        return [scrub_values(prediction.to_dict()) for prediction in predictions], pictures

    def _resolve_case(self, case: Any, channels: set[str]) -> Any:
        """Return a case with its paths resolved; values that are no paths are covariates, beside `image`."""
        if isinstance(case, str):
            return str(self.settings.resolve_path(case))
        if isinstance(case, list):
            return [self._resolve_case(item, channels) for item in case]
        if not isinstance(case, dict):
            raise UsageError(f"{case!r} is no image: name a file, or an object.")
        if "image" in case:
            return {**case, "image": self._resolve_case(case["image"], channels)}
        if unknown := sorted(set(case) - channels):
            known = ", ".join(sorted(channels)) or "none"
            raise UsageError(f"The model has no image {', '.join(map(str, unknown))}; its images: {known}.")
        return {name: self._resolve_case(path, channels) for name, path in case.items()}

    def _find_model(self, model: str) -> Path:
        """Return the folder of the model of one of the user's runs, by id, `last`, the run's folder or its own.

        Raises:
            DataError: the user has no such run.
            UsageError: the run has no model.
        """
        for run in list_runs():
            if model in (str(run.path), str(run.model)):
                return find_model_folder(run.path)
        return find_model_folder(self._find_run(model).path)

    def _draw(self, prediction: Prediction) -> bytes:
        return prediction.draw() if self.settings.send_images else b""

    def _find_run(self, run: str) -> RunFolder:
        """Return a run by its id, folder or `last`; also one of this server that has not begun.

        Raises:
            UsageError: the user has no such run.
        """
        new_run = (self.settings.runs or get_runs_root()).absolute() / run
        if self.settings.has_started(run) and not (new_run / "run.json").is_file():
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
