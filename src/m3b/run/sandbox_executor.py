"""What m3b itself runs in the sandbox: probes of a training project, and a deliverable on unseen cases."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.agents.checks.module import CommandResult
from m3b.cleanup import undo_on_error
from m3b.data.index import Index, Record
from m3b.data.links import roots_of
from m3b.data.records import Covariate, frozen, relocated
from m3b.errors import ModelError, RunCancelled
from m3b.isolation.reader import Reader
from m3b.isolation.reader.remote_errors import ReaderError
from m3b.isolation.sandbox import Limits, Mounts, Sandbox
from m3b.isolation.sandbox.environment import count_gpus, count_usable_cpus
from m3b.isolation.untrusted import remove_tree
from m3b.models import Prediction, StagedCases, place_links, staging
from m3b.models.kept_answers import keep_answers
from m3b.models.predict_process import describe_error
from m3b.models.prediction_store import OutputFolder
from m3b.models.worker import PredictWorker
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


class SandboxExecutor:
    """Runs m3b's own checks of what agents made, confined like the agents' scripts.

    Args:
        readable_folders: folders that the agents' scripts may read; predict.py may read none of them.
        is_cancelled: polled twice a second.
        on_progress: gets the number of predicted cases and of all while a deliverable predicts.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        run: RunFolder,
        readable_folders: Sequence[Path],
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.sandbox, self.run, self.readable_folders, self.is_cancelled = (
            sandbox,
            run,
            tuple(readable_folders),
            is_cancelled,
        )
        self.on_progress = on_progress
        self.reader_pool, self._raw_folders = ReaderPool(sandbox, is_cancelled), tuple(readable_folders)

    def run_probe(self, file: Path, *arguments: str) -> CommandResult:
        """Run a Python file of m3b in the working directory."""
        script_folder = self.run.path / "checks"
        script_folder.mkdir(exist_ok=True)
        copy = script_folder / file.name
        shutil.copyfile(file, copy)
        mounts = Mounts(read=(*self.readable_folders, script_folder), write=(self.run.work,))
        return self._run_confined(
            [sys.executable, str(copy), *arguments], self.run.work, mounts, Limits(wall_s=MAX_PROBE_S)
        )

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

    def open_reader(self, root: Path, write: Sequence[Path] = ()) -> Reader:
        """Return a new reader of `root` and of the raw data that `root/data` links to.

        Args:
            write: folders that it may write to.
        """
        readable = tuple(path.resolve() for path in roots_of(root) if path.is_dir())
        return Reader(self.sandbox, Mounts(read=readable, write=tuple(write)), is_cancelled=self.is_cancelled)

    def predict(
        self,
        folder: Path,
        records: Sequence[Record],
        index: Index,
        keep_answers_in: Path | None = None,
        kept_keys: Collection[str] | None = None,
    ) -> list[Row]:
        """Run a deliverable on anonymous copies of cases, without access to the raw data, and measure its predictions.

        The copies include altered copies of some test images (`m3b.tasks.score_details`), which predict.py cannot tell
        apart.

        Args:
            keep_answers_in: a folder that gets the answers (`m3b.models.kept_answers`) on `kept_keys`, if there are any
                among `records`.
            kept_keys: keys of cases; by default those of the test cases of the index.

        Raises:
            ModelError: predict.py fails, or returns an invalid prediction.
        """
        with _scratch_folder(self.run.path) as scratch, self.open_reader(self.run.locked, write=(scratch,)) as reader:
            try:
                copies = score_details.plan_copies(records, index, get_family(index.task), self.run.locked)
                all_records = [*records, *(records[copy.record_position] for copy in copies)]
                cases = scratch / "cases"
                cases.mkdir()
                worker = self._start_worker(folder, cases)  # it imports its libraries while the images are copied
                with closing(worker):
                    staged = self._stage_images(all_records, cases, reader)
                    was_altered = self._alter_copies(copies, staged, reader)
                    place_links(staged, self.run.locked)
                    covariates = [all_records[position].covariates for position in staged.order]
                    predictions = staged.restore_order(
                        self._run_predict_script(worker, staged, scratch / "answers", covariates)
                    )
                rows = measure_in_reader(all_records, predictions, index, self.run.locked, reader)
                if keep_answers_in is not None:
                    keys = {record.key for record in index.test} if kept_keys is None else kept_keys
                    _keep_answers_on(keys, keep_answers_in, records, predictions, index.task, scratch / "answers")
                rows = score_details.mark_verbatim(rows, staged.verbatim)
                return score_details.attach_copies(rows[: len(records)], copies, rows[len(records) :], was_altered)
            except ReaderError as error:
                raise ModelError(str(error)) from None

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return `TaskFamily.predict_baseline`, with masks opened in a reader. Raises ModelError, DataError."""
        return compute_baseline_in_reader(training, records, index, root, self.get_checking_reader())

    def _stage_images(self, records: Sequence[Record], folder: Path, reader: Reader) -> StagedCases:
        images = [record.reference for record in records]
        staged = reader.run_job(
            STAGE_IMAGES_JOB,
            StageImagesRequest(images, folder, self.sandbox.name != "off", self.run.locked, staging.MIN_LINK_BYTES),
        )
        return replace(staged, folder=folder)

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
        root = str(staged.folder.resolve())
        images = [relocated(frozen(path), lambda name: f"{root}/{name}") for path in staged.paths]
        predictions: list[Prediction] = []
        self.on_progress(0, len(images))
        try:
            for batch in worker.predict_batches(images, covariates, output=OutputFolder(output_folder, len(images))):
                predictions += batch
                self.on_progress(len(predictions), len(images))
        except ModelError as error:
            raise ModelError(f"{error}{self._explain_missing_sockets(str(error))}", code=error.code) from None
        failed = [prediction for prediction in predictions if prediction.error]
        if failed:
            message = describe_error(failed[0]).replace(f"{root}/", "")
            raise ModelError(
                f"{len(failed)} of {len(images)} images got no prediction; {message}", code=failed[0].error_code
            )
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
