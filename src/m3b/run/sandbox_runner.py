"""What m3b itself runs in the sandbox: the probe of a project, and a deliverable on cases that it has not seen."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.agents.checks.module import Ran
from m3b.cleanup import undo_on_error
from m3b.data.index import Index, Record
from m3b.data.links import roots_of
from m3b.data.records import Covariate
from m3b.errors import Cancelled, ModelError
from m3b.models import Prediction, Staged, place_links, run_predict, staging
from m3b.reader import Reader
from m3b.reader.faults import ReaderFault
from m3b.run.folder import Run
from m3b.run.leftovers import FROZEN
from m3b.run.readers import KeptReaders
from m3b.sandbox import Limits, Mounts, Sandbox
from m3b.sandbox.environment import usable_cpus
from m3b.tasks import Row, control, family
from m3b.tasks.inside import ALTER, STAGE, ToAlter, ToStage, guessed, measured
from m3b.tools.surveying import JOB
from m3b.untrusted import remove_tree

POLL_S = 0.5
PROBE_S = 300.0
PREDICT_S = 3600.0


class Executor:
    """Runs m3b's own checks of what agents made, confined like the agents' scripts.

    Args:
        read: folders that the agents' scripts may read; predict.py gets none of them.
        cancelled: polled twice a second.
    """

    def __init__(self, sandbox: Sandbox, run: Run, read: Sequence[Path], cancelled: Callable[[], bool]) -> None:
        self.sandbox, self.run, self.read, self.cancelled = sandbox, run, tuple(read), cancelled
        self.readers, self._raw_folders = KeptReaders(sandbox, cancelled), tuple(read)

    def probe(self, file: Path, *arguments: str) -> Ran:
        """Run a Python file of m3b's in the working directory."""
        script_folder = self.run.folder / "checks"
        script_folder.mkdir(exist_ok=True)
        copy = script_folder / file.name
        shutil.copyfile(file, copy)
        mounts = Mounts(read=(*self.read, script_folder), write=(self.run.work,))
        return self._start([sys.executable, str(copy), *arguments], self.run.work, mounts, Limits(wall_s=PROBE_S))

    def job(self, job: dict[str, Any], root: Path) -> dict[str, Any]:
        """A job of `m3b.data.spec.inside`, which may write to its `place` and to the working directory.

        Args:
            root: the data folder, read-only.

        Raises:
            DataError: the reader could not do it.
        """
        reader = self.readers.of((root, self._frozen()), (Path(job["place"]), self.run.work))
        return reader.ask(JOB, job)

    def checking(self) -> Reader:
        """The reader that looks at what was handed over and at the raw data; it writes nowhere and stays for the next
        look."""
        folders = [self._frozen(), self.run.locked, *self._raw_folders, *roots_of(self.run.locked)]
        return self.readers.of([path.resolve() for path in folders if path.is_dir()])

    def _frozen(self) -> Path:
        """The folder below which hand-overs are looked at: always the same one, so that a reader goes on seeing it."""
        folder = self.run.folder / FROZEN
        folder.mkdir(exist_ok=True)
        return folder

    def close(self) -> None:
        """End the readers that were kept."""
        self.readers.close()
        remove_tree(self.run.folder / FROZEN)

    def reader(self, base: Path, write: Sequence[Path] = ()) -> Reader:
        """A reader of what lies in `base` and of the raw data to which `base/data` leads.

        Args:
            write: folders that it may write to.
        """
        readable = tuple(path.resolve() for path in roots_of(base) if path.is_dir())
        return Reader(self.sandbox, Mounts(read=readable, write=tuple(write)), cancelled=self.cancelled)

    def predict(self, folder: Path, records: Sequence[Record], index: Index) -> list[Row]:
        """Run a deliverable on anonymous copies of cases, the raw data out of its reach, and measure its answers.

        Among them are altered copies of some test images (`m3b.tasks.control`), which nothing tells from the others.

        Raises:
            ModelError: predict.py fails, or answers something that cannot be right.
        """
        with _scratch(self.run.folder) as scratch, self.reader(self.run.locked, write=(scratch,)) as reader:
            try:
                copies = control.copies_of(records, index, family(index.task), self.run.locked)
                all_records = [*records, *(records[copy.of] for copy in copies)]
                staged = self._stage_images(all_records, scratch / "cases", reader)
                was_altered = self._alter_copies(copies, staged, reader)
                place_links(staged, self.run.locked)
                covariates = [all_records[position].covariates for position in staged.order]
                predictions = staged.restore(self._answers(folder, staged, scratch / "answers", covariates))
                rows = measured(all_records, predictions, index, self.run.locked, reader)
                return control.with_copies(rows[: len(records)], copies, rows[len(records) :], was_altered)
            except ReaderFault as error:
                raise ModelError(str(error)) from None

    def baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, base: Path) -> Any:
        """`TaskFamily.trivial`, the masks opened by a reader. Raises ModelError, DataError."""
        return guessed(training, records, index, base, self.checking())

    def _stage_images(self, records: Sequence[Record], folder: Path, reader: Reader) -> Staged:
        images = [record.reference for record in records]
        staged = reader.ask(
            STAGE, ToStage(images, folder, self.sandbox.name != "off", self.run.locked, staging.LINK_FROM_BYTES)
        )
        return replace(staged, folder=folder)

    def _alter_copies(self, copies: Sequence[control.Copy], staged: Staged, reader: Reader) -> list[bool]:
        """Alter the staged files of copies, which come last; gives for each whether it was."""
        if not copies:
            return []
        paths = staged.restore(staged.paths)[-len(copies) :]
        files = [(str(path), copy.way) for path, copy in zip(paths, copies, strict=True)]
        return reader.ask(ALTER, ToAlter(staged.folder, files))

    def _answers(
        self, folder: Path, staged: Staged, answered: Path, given: Sequence[Mapping[str, Covariate]]
    ) -> list[Prediction]:
        answered.mkdir()

        def confine(argv: list[str], cwd: Path, out: Path) -> tuple[int, str]:
            mounts = Mounts(read=(folder.resolve(), cwd), write=(out.parent,))
            result = self._start(argv, cwd, mounts, Limits(wall_s=PREDICT_S, alone=True))
            ending_note = "" if result.reason == "exit" else f"\nm3b ended it: {result.reason}"
            return result.code, result.output + ending_note + self._explain_missing_sockets(result)

        return run_predict(folder, staged.folder, staged.paths, confine, keep=answered, covariates=given)

    def _explain_missing_sockets(self, result: Ran) -> str:
        """What may be behind a failure where predict.py has neither sockets nor shared memory."""
        is_refused = any(word in result.output for word in ("SemLock", "shm", "PermissionError", "Permission denied"))
        if result.code == 0 or self.sandbox.name != "landlock" or not is_refused:
            return ""
        return "\npredict.py has no sockets and no shared memory here: it must predict without worker processes."

    def _start(self, argv: list[str], cwd: Path, mounts: Mounts, limits: Limits) -> Ran:
        handle, name = tempfile.mkstemp(dir=self.run.folder, prefix=".output-")
        os.close(handle)
        output = Path(name)
        try:
            process = self.sandbox.start(argv, cwd=cwd, mounts=mounts, output=output, limits=limits, env={})
            with undo_on_error(process.stop):
                while (exit_status := process.wait(POLL_S)) is None:
                    if self.cancelled():
                        raise Cancelled("The run was cancelled.")
            return Ran(exit_status.code, exit_status.reason, output.read_text(encoding="utf-8", errors="replace"))
        finally:
            output.unlink(missing_ok=True)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A new folder that is removed whatever predict.py built in it."""
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=".staged-"))
    try:
        yield scratch
    finally:
        remove_tree(scratch)


def device() -> str:
    """What training runs on, in words for an agent."""
    cores = usable_cpus()
    gpus = sum(1 for number in range(16) if Path(f"/dev/nvidia{number}").exists())
    if gpus:
        return f"{gpus} GPU{'s' if gpus > 1 else ''} and {cores} CPU cores"
    return f"{cores} CPU core{'s' if cores > 1 else ''}, no GPU"
