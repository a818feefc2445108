"""What m3b itself runs in the sandbox: probes of a training project, and a deliverable on unseen cases."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.agents.checks.module import CommandResult
from m3b.cleanup import undo_on_error
from m3b.data.index import Index, Record
from m3b.data.links import roots_of
from m3b.data.records import Covariate
from m3b.errors import ModelError, RunCancelled
from m3b.isolation.reader import Reader
from m3b.isolation.reader.remote_errors import ReaderError
from m3b.isolation.sandbox import Limits, Mounts, Sandbox
from m3b.isolation.sandbox.environment import count_gpus, count_usable_cpus
from m3b.isolation.untrusted import remove_tree
from m3b.models import Prediction, StagedCases, place_links, read_model_info, staging
from m3b.models.kept_answers import keep_answers
from m3b.models.predict_process import describe_error
from m3b.models.prediction_store import OutputFolder
from m3b.models.worker import PredictWorker
from m3b.run.check_jobs import CheckJobs
from m3b.run.folder import RunFolder
from m3b.run.provisioning import FROZEN_FOLDER
from m3b.tasks import Row, get_family, score_details
from m3b.tasks.worker_jobs import (
    ALTER_FILES_JOB,
    STAGE_IMAGES_JOB,
    AlterFilesRequest,
    StageImagesRequest,
    compute_baseline_in_reader,
    measure_in_reader,
)
from m3b.tools.dataset_jobs import MANIFEST_JOB


class ReaderPool:
    """Confined readers, created on demand and kept.

    Args:
        sandbox: confines the readers.
        is_cancelled: polled twice a second while waiting; True ends the wait with `RunCancelled`.
    """

    def __init__(self, sandbox: Sandbox, is_cancelled: Callable[[], bool]) -> None:
        self._sandbox, self._is_cancelled = sandbox, is_cancelled
        self._readers: dict[Mounts, Reader] = {}

    def get_reader(self, read: Iterable[Path], write: Sequence[Path] = ()) -> Reader:
        """Return the reader that may read and write these folders, from an earlier job or a new one.

        The reader does not see a folder that replaced one of these later.
        """
        mounts = Mounts(read=tuple(dict.fromkeys(read)), write=tuple(write))
        if mounts not in self._readers:
            self._readers[mounts] = Reader(self._sandbox, mounts, is_cancelled=self._is_cancelled)
        return self._readers[mounts]

    def close(self) -> None:
        """End the reader processes; a later job starts others."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


POLL_INTERVAL_S = 0.5
MAX_PROBE_S = 300.0
MAX_PREDICT_S = 3600.0


@dataclass(frozen=True)
class AnsweredCases:
    """Predictions of a deliverable.

    Args:
        predictions: of each case, in the order of the cases.
        verbatim: positions of the cases of which no minimal copy could be made (`StagedCases.verbatim`).
        was_altered: for each altered copy whether it differs from its case.
        folder: of the files that the predictions name.
        reader: can read the folder and the locked files.
    """

    predictions: Sequence[Prediction]
    verbatim: Sequence[int]
    was_altered: Sequence[bool]
    folder: Path
    reader: Reader


class SandboxExecutor:
    """Runs m3b's own checks of what agents made, confined like the agents' scripts.

    Args:
        readable_folders: folders that the agents' scripts may read; predict.py may read none of them.
        is_cancelled: polled twice a second.
        on_progress: gets the number of predicted cases and of all while a deliverable predicts.
        check_jobs: starts probes and predictions as cluster jobs; None starts them on this machine.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        run: RunFolder,
        readable_folders: Sequence[Path],
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        check_jobs: CheckJobs | None = None,
    ) -> None:
        self.sandbox, self.run, self.readable_folders, self.is_cancelled = (
            sandbox,
            run,
            tuple(readable_folders),
            is_cancelled,
        )
        self.on_progress, self.check_jobs = on_progress, check_jobs
        self._queued_s = 0.0
        self.reader_pool, self._raw_folders = ReaderPool(sandbox, is_cancelled), tuple(readable_folders)

    def run_probe(self, file: Path, *arguments: str) -> CommandResult:
        """Run a Python file of m3b in the working directory."""
        script_folder = self.run.path / "checks"
        script_folder.mkdir(exist_ok=True)
        copy = script_folder / file.name
        shutil.copyfile(file, copy)
        mounts = Mounts(read=(*self.readable_folders, script_folder), write=(self.run.work,))
        argv, limits = [sys.executable, str(copy), *arguments], Limits(wall_s=MAX_PROBE_S)
        if self.check_jobs is not None:
            title = "The check of the training project"
            return self.check_jobs.run_command(title, argv, cwd=self.run.work, mounts=mounts, limits=limits)
        return self._run_confined(argv, self.run.work, mounts, limits)

    def run_job(self, job: dict[str, Any], root: Path) -> dict[str, Any]:
        """Run a job of `m3b.dataset.jobs`, which may write to its `place` and to the working directory.

        Args:
            root: the data folder, read-only.

        Raises:
            DataError: the job failed in the reader.
        """
        reader = self.reader_pool.get_reader((root, self._make_frozen_folder()), (Path(job["place"]), self.run.work))
        return reader.run_job(MANIFEST_JOB, job)

    def get_checking_reader(self) -> Reader:
        """Return the reader of frozen artifacts, locked files and raw data; it can write nowhere and is kept."""
        folders = [self._make_frozen_folder(), self.run.locked, *self._raw_folders, *roots_of(self.run.locked)]
        return self.reader_pool.get_reader([path.resolve() for path in folders if path.is_dir()])

    def _make_frozen_folder(self) -> Path:
        """Return the folder of frozen artifacts; always the same one, so that a kept reader continues to see it."""
        folder = self.run.path / FROZEN_FOLDER
        folder.mkdir(exist_ok=True)
        return folder

    def close(self) -> None:
        """End the readers."""
        self.reader_pool.close()
        remove_tree(self.run.path / FROZEN_FOLDER)

    def open_reader(self, root: Path, write: Sequence[Path] = (), read: Sequence[Path] = ()) -> Reader:
        """Return a new reader of `root` and of the raw data that `root/data` links to.

        Args:
            write: folders that it may write to.
            read: further folders that it may read.
        """
        readable = tuple(path.resolve() for path in (*roots_of(root), *read) if path.is_dir())
        return Reader(self.sandbox, Mounts(read=readable, write=tuple(write)), is_cancelled=self.is_cancelled)

    def predict(
        self,
        folder: Path,
        records: Sequence[Record],
        index: Index,
        keep_answers_in: Path | None = None,
        kept_keys: Collection[str] | None = None,
        *,
        on_this_machine: bool = False,
    ) -> list[Row]:
        """Run a deliverable on anonymous copies of cases, without access to the raw data, and measure its predictions.

        The copies include altered copies of some test images (`m3b.tasks.score_details`), which predict.py cannot tell
        apart. Images are copied and predictions measured on this machine, also if predict.py runs as a cluster job.

        Args:
            keep_answers_in: a folder that gets the answers (`m3b.models.kept_answers`) on `kept_keys`, if there are any
                among `records`.
            kept_keys: keys of cases; by default those of the test cases of the index.
            on_this_machine: whether predict.py runs here in any case, for a few cases that somebody waits for.

        Raises:
            ModelError: predict.py fails, or returns an invalid prediction.
            EngineError: the cluster does not take the job, or lost it too often.
        """
        try:
            copies = score_details.plan_copies(records, index, get_family(index.task), self.run.locked)
            all_records = [*records, *(records[copy.record_position] for copy in copies)]
            if self.check_jobs is None or on_this_machine:
                answering = self._answer_here(folder, all_records, copies)
            else:
                answering = self._answer_in_job(self.check_jobs, folder, all_records, copies, index.task)
            with answering as answers:
                rows = measure_in_reader(all_records, answers.predictions, index, self.run.locked, answers.reader)
                if keep_answers_in is not None:
                    keys = {record.key for record in index.test} if kept_keys is None else kept_keys
                    _keep_answers_on(keys, keep_answers_in, records, answers.predictions, index.task, answers.folder)
            rows = score_details.mark_verbatim(rows, answers.verbatim)
            return score_details.attach_copies(rows[: len(records)], copies, rows[len(records) :], answers.was_altered)
        except ReaderError as error:
            raise ModelError(str(error)) from None

    def read_clock(self) -> float:
        """Return the time in seconds, without what predictions waited in the queue of a cluster."""
        return time.monotonic() - self._queued_s

    @contextmanager
    def _answer_here(
        self, folder: Path, records: Sequence[Record], copies: Sequence[score_details.AlteredCopy]
    ) -> Iterator[AnsweredCases]:
        """Predict cases on this machine; the last of them are the altered copies."""
        with _scratch_folder(self.run.path) as scratch, self.open_reader(self.run.locked, write=(scratch,)) as reader:
            cases, answers = scratch / "cases", scratch / "answers"
            cases.mkdir()
            worker = self._start_worker(folder, cases)  # it imports its libraries while the images are copied
            with closing(worker):
                staged, was_altered = self._stage_cases(records, copies, cases, reader)
                covariates = [records[position].covariates for position in staged.order]
                predictions = self._run_predict_script(worker, staged, answers, covariates)
            yield AnsweredCases(staged.restore_order(predictions), staged.verbatim, was_altered, answers, reader)

    @contextmanager
    def _answer_in_job(
        self,
        check_jobs: CheckJobs,
        folder: Path,
        records: Sequence[Record],
        copies: Sequence[score_details.AlteredCopy],
        task: str,
    ) -> Iterator[AnsweredCases]:
        """Predict cases in a cluster job; the last of them are the altered copies.

        Images that an earlier process of m3b has staged, and predictions that are complete, are used again.
        """
        contents = [(record.key, record.reference, dict(record.covariates)) for record in records]
        alterations = [(copy.record_position, copy.alteration) for copy in copies]
        job_folder = check_jobs.open_prediction(folder, [task, contents, alterations])
        with undo_on_error(remove_tree, job_folder.path):
            if not job_folder.is_staged:
                with self.open_reader(self.run.locked, write=(job_folder.cases,)) as reader:
                    staged, was_altered = self._stage_cases(records, copies, job_folder.cases, reader)
                covariates = [records[position].covariates for position in staged.order]
                job_folder.write_request(check_jobs.make_request(staged, was_altered, covariates))
            request = job_folder.read_request()
            began = time.monotonic()
            title = f"The prediction of {len(records)} cases"
            try:
                wall_s = check_jobs.predict(job_folder, title, self.on_progress)
            except ModelError as error:
                raise ModelError(f"{error}{self._explain_missing_sockets(str(error))}", code=error.code) from None
            self._queued_s += time.monotonic() - began - wall_s
            predictions = job_folder.read_predictions(request.staged.list_images(), read_model_info(folder))
            _require_answers(predictions, request.staged.folder)
        with self.open_reader(self.run.locked, read=(job_folder.answers,)) as reader:
            ordered = request.staged.restore_order(predictions)
            yield AnsweredCases(ordered, request.staged.verbatim, request.was_altered, job_folder.answers, reader)

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return `TaskFamily.predict_baseline`, with masks opened in a reader. Raises ModelError, DataError."""
        return compute_baseline_in_reader(training, records, index, root, self.get_checking_reader())

    def _stage_cases(
        self, records: Sequence[Record], copies: Sequence[score_details.AlteredCopy], folder: Path, reader: Reader
    ) -> tuple[StagedCases, list[bool]]:
        """Put anonymous copies of the images into a folder; return for each altered copy whether it was altered."""
        images = [record.reference for record in records]
        request = StageImagesRequest(
            images, folder, self.sandbox.name != "off", self.run.locked, staging.MIN_LINK_BYTES
        )
        staged = replace(reader.run_job(STAGE_IMAGES_JOB, request), folder=folder)
        was_altered = self._alter_copies(copies, staged, reader)
        place_links(staged, self.run.locked)
        return staged, was_altered

    def _alter_copies(
        self, copies: Sequence[score_details.AlteredCopy], staged: StagedCases, reader: Reader
    ) -> list[bool]:
        """Alter the staged files of the copies, which come last; return for each whether it was altered."""
        if not copies:
            return []
        paths = staged.restore_order(staged.paths)[-len(copies) :]
        files = [(str(path), copy.alteration) for path, copy in zip(paths, copies, strict=True)]
        return reader.run_job(ALTER_FILES_JOB, AlterFilesRequest(staged.folder, files))

    def _start_worker(self, folder: Path, readable: Path) -> PredictWorker:
        worker = PredictWorker(
            folder,
            self.sandbox,
            MAX_PREDICT_S,
            limits=Limits(wall_s=MAX_PREDICT_S, isolated=True),
            readable=(readable,),
            check_cancelled=self._check_cancelled,
        )
        worker.start()
        return worker

    def _run_predict_script(
        self,
        worker: PredictWorker,
        staged: StagedCases,
        output_folder: Path,
        covariates: Sequence[Mapping[str, Covariate]],
    ) -> list[Prediction]:
        """Predict the staged cases in one process, in requests of about two seconds, and report the progress."""
        output_folder.mkdir()
        images = staged.list_images()
        predictions: list[Prediction] = []
        self.on_progress(0, len(images))
        try:
            for batch in worker.predict_batches(images, covariates, output=OutputFolder(output_folder, len(images))):
                predictions += batch
                self.on_progress(len(predictions), len(images))
        except ModelError as error:
            raise ModelError(f"{error}{self._explain_missing_sockets(str(error))}", code=error.code) from None
        _require_answers(predictions, staged.folder)
        return predictions

    def _check_cancelled(self) -> None:
        if self.is_cancelled():
            raise RunCancelled("The run was cancelled.")

    def _explain_missing_sockets(self, output: str) -> str:
        """Return the likely reason if predict.py failed because it has neither sockets nor shared memory; else ''."""
        is_refused = any(word in output for word in ("SemLock", "shm", "PermissionError", "Permission denied"))
        if self.sandbox.name != "landlock" or not is_refused:
            return ""
        return "\npredict.py has no sockets and no shared memory here: it must predict without worker processes."

    def _run_confined(self, argv: list[str], cwd: Path, mounts: Mounts, limits: Limits) -> CommandResult:
        handle, name = tempfile.mkstemp(dir=self.run.path, prefix=".output-")
        os.close(handle)
        output = Path(name)
        try:
            process = self.sandbox.start(argv, cwd=cwd, mounts=mounts, output=output, limits=limits, env={})
            with undo_on_error(process.stop):
                while (exit_status := process.wait(POLL_INTERVAL_S)) is None:
                    self._check_cancelled()
            return CommandResult(
                exit_status.code, exit_status.reason, output.read_text(encoding="utf-8", errors="replace")
            )
        finally:
            output.unlink(missing_ok=True)


def _require_answers(predictions: Sequence[Prediction], folder: Path) -> None:
    """Raise ModelError, without the path of the folder of staged images, if a case got no prediction."""
    failed = [prediction for prediction in predictions if prediction.error]
    if failed:
        message = describe_error(failed[0]).replace(f"{folder.resolve()}/", "")
        raise ModelError(
            f"{len(failed)} of {len(predictions)} images got no prediction; {message}", code=failed[0].error_code
        )


def _keep_answers_on(
    keys: Collection[str],
    target: Path,
    records: Sequence[Record],
    predictions: Sequence[Prediction],
    task: str,
    source: Path,
) -> None:
    pairs = [pair for pair in zip(records, predictions, strict=False) if pair[0].key in keys]
    if pairs:
        kept_records, kept_predictions = zip(*pairs, strict=True)
        keep_answers(target, task, kept_records, kept_predictions, source)


@contextmanager
def _scratch_folder(folder: Path) -> Iterator[Path]:
    """Make a temporary folder and remove it afterwards, whatever predict.py put into it."""
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=".staged-"))
    try:
        yield scratch
    finally:
        remove_tree(scratch)


def describe_device() -> str:
    """Return the GPUs and CPU cores for training, in words for an agent."""
    cores = count_usable_cpus()
    gpus = count_gpus()
    if gpus:
        return f"{gpus} GPU{'s' if gpus > 1 else ''} and {cores} CPU cores"
    return f"{cores} CPU core{'s' if cores > 1 else ''}, no GPU"
