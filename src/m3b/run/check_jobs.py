"""m3b's own checks as cluster jobs: probes of a training project, and predictions of a deliverable on unseen cases.

A job of an earlier process of m3b is found again by what it computes. Predictions of the same model on the same cases are
made once in a run: they are kept until it has ended.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from m3b.agents.checks.module import CommandResult
from m3b.cleanup import undo_on_error
from m3b.engines import ClusterProcess, ClusterScripts, EngineError
from m3b.engines.scripts import SUPERVISOR_MIB, make_program_command
from m3b.errors import M3bError, ModelError, RunCancelled, SandboxError
from m3b.isolation.sandbox import ExitStatus, Limits, Mounts
from m3b.isolation.untrusted import remove_tree
from m3b.models import StagedCases, freeze
from m3b.models.checksums import sha256_of
from m3b.run.prediction_job import PredictionFolder, PredictionRequest
from m3b.writing import json_text

POLL_INTERVAL_S = 0.5
QUEUE_NOTE_S = 30.0
"""Seconds in the queue after which the journal says why the job waits."""
MAX_OUTPUT_CHARS = 1500
UNLIMITED = 1 << 32
"""MiB, or files: what the program of m3b on the node may write; the cases and not the program decide how much it is."""
_PROGRESS = re.compile(r"^predicted (\d+) of (\d+)$", re.MULTILINE)
_RESTARTABLE = ("stopped", "cancelled", "lost", "preempted")
"""Reasons for which a resumed run starts a job anew."""

ProgressCallback = Callable[[int, int], None]


class CheckJobs:
    """Runs the checks of one run, one after the other.

    Args:
        scripts: starts the jobs; it has no others.
        folder: below the run folder, out of the scripts' reach: a folder for each prediction.
        is_cancelled: polled twice a second while a job waits or runs; True ends it with `RunCancelled`.
        get_limit_s: returns the seconds that a prediction may run.
    """

    def __init__(
        self,
        scripts: ClusterScripts,
        folder: Path,
        is_cancelled: Callable[[], bool],
        get_limit_s: Callable[[], float],
    ) -> None:
        self.scripts, self.folder = scripts, folder.resolve()
        self._is_cancelled, self._get_limit_s = is_cancelled, get_limit_s
        self._knows_all_jobs = False

    def run_command(
        self, title: str, argv: Sequence[str], *, cwd: Path, mounts: Mounts, limits: Limits
    ) -> CommandResult:
        """Run a command in the sandbox of a node; a job of an earlier process that still runs it is taken over.

        Raises:
            EngineError: the cluster lost the job too often, or does not take it.
            RunCancelled: the run, or the job, was cancelled.
            SandboxError: the command could not be started.
        """
        unfinished = self.scripts.list_unfinished()
        number = next((n for n in unfinished if self.scripts.read_command_line(n) == tuple(argv)), None)
        process = self._take_over(title, number)
        if process is None:
            number = self._choose_number()
            process = self.scripts.start(
                number, argv, cwd=cwd, mounts=mounts, output=self._output_of(number), env={}, limits=limits, title=title
            )
        status = self._wait(title, process, lambda: None)
        output = process.output.read_text(encoding="utf-8", errors="replace")
        return CommandResult(status.code, status.reason, output)

    def open_prediction(self, model: Path, cases: Any) -> PredictionFolder:
        """Return the folder of a prediction, with what an earlier process of m3b put into it, or new with a copy of the model.

        Args:
            model: the deliverable, as m3b copied it.
            cases: what is predicted, as JSON values. Only the same model with the same cases gets the same folder.

        Raises:
            ModelError: the deliverable has files that cannot be copied.
            OSError: the folder cannot be made.
        """
        hashes = {str(file.relative_to(model)): sha256_of(file) for file in sorted(model.rglob("*")) if file.is_file()}
        content = json_text({"model": hashes, "cases": cases, "limits": self._memory_mib}, sort_keys=True)
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        folder = PredictionFolder(self.folder / digest[:16])
        self._cancel_unknown(keep=folder.read_job()[0])
        for other in self._list_folders():  # begun by an earlier process, and nobody asks for it any more
            if other.path != folder.path and not other.is_complete:
                remove_tree(other.path)
        if not folder.is_staged:
            remove_tree(folder.path)
            folder.path.mkdir(parents=True, mode=0o700)
            if refusals := freeze(model, folder.model).refusals:
                raise ModelError(f"The deliverable cannot be copied for the cluster: {'; '.join(refusals)}")
            for path in (folder.cases, folder.answers):
                path.mkdir()
        return folder

    def make_request(
        self, staged: StagedCases, was_altered: Sequence[bool], covariates: Sequence[Any]
    ) -> PredictionRequest:
        """Return the request for staged cases; `covariates` are in the shuffled order."""
        scripts = self.scripts
        return PredictionRequest(
            staged, tuple(was_altered), tuple(covariates), scripts.sandbox_mode, scripts.sandbox.name, self._memory_mib
        )

    def predict(self, folder: PredictionFolder, title: str, on_progress: ProgressCallback) -> float:
        """Predict the staged cases of a folder; return the seconds that the job ran.

        Raises:
            EngineError, RunCancelled, SandboxError: as `run_command`.
            ModelError: predict.py fails.
        """
        number, wall_s = folder.read_job()
        if wall_s is not None:
            return wall_s
        process = self._take_over(title, number)
        if process is None:
            if number is not None:  # the run may have been resumed on another engine
                self.scripts.request_stop(number)
            number = self._choose_number()
            folder.write_job(number)
            process = self._start_prediction(folder, number, title)
        reported: list[tuple[int, int]] = []

        def report() -> None:
            if (counts := _read_progress(process.output)) is not None and counts not in reported[-1:]:
                reported.append(counts)
                on_progress(*counts)

        status = self._wait(title, process, report)
        if (status.reason, status.code) != ("exit", 0):
            raise folder.read_error() or self._explain_end(title, status, process)
        report()
        assert number is not None
        folder.write_job(number, status.wall_s)
        folder.remove_inputs()
        return status.wall_s

    def close(self, *, is_resumable: bool) -> None:
        """Cancel all jobs, and remove predictions; a run that can be resumed keeps those that are complete."""
        self.scripts.cancel_all()
        for folder in self._list_folders():
            if not (is_resumable and folder.is_complete):
                remove_tree(folder.path)

    def _start_prediction(self, folder: PredictionFolder, number: int, title: str) -> ClusterProcess:
        return self.scripts.start(
            number,
            make_program_command("from m3b.run.prediction_job import main", folder.path),
            cwd=folder.path,
            mounts=Mounts(read=(folder.path,), write=(folder.answers,)),
            output=self._output_of(number),
            env={"PATH": os.environ.get("PATH", os.defpath)},  # in which the sandbox may be found
            limits=Limits(wall_s=self._get_limit_s(), disk_mib=UNLIMITED, files=UNLIMITED),
            title=title,
            confines_itself=True,
        )

    def _take_over(self, title: str, number: int | None) -> ClusterProcess | None:
        """Return the job with a number that an earlier process started, if it runs or has ended by itself."""
        self._cancel_unknown(keep=number)
        process = self.scripts.reopen(number) if number is not None else None
        if process is None:
            return None
        status = process.poll()
        if status is not None and status.reason in _RESTARTABLE:
            return None
        outcome = "has ended" if status is not None else "goes on"
        self.scripts.on_note(f"{title} is {process.describe_job()} of an earlier process of m3b, which {outcome}.")
        return process

    def _wait(self, title: str, process: ClusterProcess, on_tick: Callable[[], None]) -> ExitStatus:
        began, is_noted = time.monotonic(), False
        with undo_on_error(process.stop):
            while (status := process.wait(POLL_INTERVAL_S)) is None:
                if self._is_cancelled():
                    raise RunCancelled("The run was cancelled.")
                on_tick()
                if not is_noted and time.monotonic() - began > QUEUE_NOTE_S and (reason := process.describe_wait()):
                    is_noted = True
                    self.scripts.on_note(f"{title}: {reason}.")
        if status.reason == "cancelled":
            raise RunCancelled(
                f"{title}: {process.describe_job()} was cancelled, and the run ends with it.", code="job_cancelled"
            )
        if status.reason in ("lost", "preempted"):
            raise EngineError(
                f"{title}: {process.describe_job()} was {status.reason} too often; `m3b resume` submits it again.",
                code="lost",
            )
        return status

    def _explain_end(self, title: str, status: ExitStatus, process: ClusterProcess) -> M3bError:
        """Return the error of a job whose program has noted none."""
        output = process.output.read_text(encoding="utf-8", errors="replace").strip()[-MAX_OUTPUT_CHARS:]
        if status.reason in ("memory", "wall_time"):
            what = "memory than its job has" if status.reason == "memory" else "time than its job has"
            return ModelError(f"predict.py needed more {what}. {output}".strip(), code=status.reason)
        return SandboxError(
            f"{title}: the job ended on its node with code {status.code} ({status.reason}): {output or 'it wrote nothing'}"
        )

    def _cancel_unknown(self, keep: int | None) -> None:
        """Cancel the jobs of earlier processes of m3b that nobody waits for; those of this process have ended."""
        if not self._knows_all_jobs:
            self.scripts.cancel_all(keep)
            self._knows_all_jobs = True

    def _list_folders(self) -> list[PredictionFolder]:
        return [PredictionFolder(path) for path in sorted(self.folder.glob("*"))] if self.folder.is_dir() else []

    def _choose_number(self) -> int:
        return max(self.scripts.list_numbers(), default=0) + 1

    def _output_of(self, number: int) -> Path:
        return self.scripts.folder / f"{number:03d}.log"

    @property
    def _memory_mib(self) -> int:
        """Memory of predict.py: that of a job without the supervisor on the node and the program that asks it."""
        memory_gib = self.scripts.resources.memory_gib
        return max(256, (int(memory_gib * 1024) or Limits().memory_mib) - 2 * SUPERVISOR_MIB)


def _read_progress(output: Path) -> tuple[int, int] | None:
    """Return the numbers of predicted and of all cases from the end of a job's output."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            matches = _PROGRESS.findall(file.read().decode("utf-8", "replace"))
    except OSError:
        return None
    return (int(matches[-1][0]), int(matches[-1][1])) if matches else None
