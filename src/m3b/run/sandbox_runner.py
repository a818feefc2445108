"""What m3b itself runs in the sandbox: the probe of a project, and a deliverable on cases that it has not seen."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import m3b
from m3b.agents.checks.module import Ran
from m3b.data.index import Index, Record
from m3b.data.links import roots_of
from m3b.errors import Cancelled, ModelError
from m3b.models import Prediction, Staged, place_links, run_predict, staging
from m3b.reader import Reader
from m3b.reader.faults import ReaderFault
from m3b.resources import resources_dir
from m3b.run.folder import Run
from m3b.sandbox import Limits, Mounts, Process, Sandbox
from m3b.tasks import Row, control, family
from m3b.tasks.inside import ALTER, STAGE, ToAlter, ToStage, guessed, measured
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

    def probe(self, file: Path, *arguments: str) -> Ran:
        """Run a Python file of m3b's in the working directory."""
        place = self.run.folder / "checks"
        place.mkdir(exist_ok=True)
        copy = place / file.name
        shutil.copyfile(file, copy)
        mounts = Mounts(read=(*self.read, place), write=(self.run.work,))
        return self._start([sys.executable, str(copy), *arguments], self.run.work, mounts, Limits(wall_s=PROBE_S))

    def reading(self, place: Path, root: Path, work: Path | None, wall_s: float, read: tuple[Path, ...] = ()) -> Ran:
        """Run a job of `m3b.data.spec.inside` that lies in `place`.

        Args:
            root: the data folder, read-only.
            work: where it may write besides `place`; None for nowhere.
            read: folders that it may read besides `root`.
        """
        argv, mounts = reading_command(sys.executable, place, root, work, read)
        return self._start(argv, place, mounts, Limits(wall_s=wall_s))

    def reader(self, base: Path, write: Sequence[Path] = ()) -> Reader:
        """A reader of what lies in `base` and of the raw data to which `base/data` leads.

        Args:
            write: folders that it may write to.
        """
        seen = tuple(path.resolve() for path in roots_of(base) if path.is_dir())
        return Reader(self.sandbox, Mounts(read=seen, write=tuple(write)), cancelled=self.cancelled)

    def predict(self, folder: Path, records: Sequence[Record], index: Index) -> list[Row]:
        """Run a deliverable on anonymous copies of cases, the raw data out of its reach, and measure its answers.

        Among them are altered copies of some test images (`m3b.tasks.control`), which nothing tells from the others.

        Raises:
            ModelError: predict.py fails, or answers something that cannot be right.
        """
        with _scratch(self.run.folder) as place, self.reader(self.run.locked, write=(place,)) as reader:
            try:
                copies = control.copies_of(records, index, family(index.task), self.run.locked)
                asked = [*records, *(records[copy.of] for copy in copies)]
                staged = self._staged(asked, place / "cases", reader)
                altered = self._altered(copies, staged, reader)
                place_links(staged, self.run.locked)
                answers = staged.restore(self._answers(folder, staged, place / "answers"))
                rows = measured(asked, answers, index, self.run.locked, reader)
                return control.with_copies(rows[: len(records)], copies, rows[len(records) :], altered)
            except ReaderFault as error:
                raise ModelError(str(error)) from None

    def baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, base: Path) -> Any:
        """`TaskFamily.trivial`, the masks opened by a reader. Raises ModelError, DataError."""
        with self.reader(base) as reader:
            return guessed(training, records, index, base, reader)

    def _staged(self, records: Sequence[Record], folder: Path, reader: Reader) -> Staged:
        images = [record.reference for record in records]
        staged = reader.ask(
            STAGE, ToStage(images, folder, self.sandbox.name != "off", self.run.locked, staging.LINK_FROM_BYTES)
        )
        return replace(staged, folder=folder)

    def _altered(self, copies: Sequence[control.Copy], staged: Staged, reader: Reader) -> list[bool]:
        """Alter the staged files of copies, which come last; gives for each whether it was."""
        if not copies:
            return []
        paths = staged.restore(staged.paths)[-len(copies) :]
        files = [(str(path), copy.way) for path, copy in zip(paths, copies, strict=True)]
        return reader.ask(ALTER, ToAlter(staged.folder, files))

    def _answers(self, folder: Path, staged: Staged, answered: Path) -> list[Prediction]:
        answered.mkdir()

        def confine(argv: list[str], cwd: Path, out: Path) -> tuple[int, str]:
            mounts = Mounts(read=(folder.resolve(), cwd), write=(out.parent,))
            ran = self._start(argv, cwd, mounts, Limits(wall_s=PREDICT_S, alone=True))
            why = "" if ran.reason == "exit" else f"\nm3b ended it: {ran.reason}"
            return ran.code, ran.output + why + self._lonely(ran)

        return run_predict(folder, staged.folder, staged.paths, confine, keep=answered)

    def _lonely(self, ran: Ran) -> str:
        """What may be behind a failure where predict.py has neither sockets nor shared memory."""
        refused = any(word in ran.output for word in ("SemLock", "shm", "PermissionError", "Permission denied"))
        if ran.code == 0 or self.sandbox.name != "landlock" or not refused:
            return ""
        return "\npredict.py has no sockets and no shared memory here: it must predict without worker processes."

    def _start(self, argv: list[str], cwd: Path, mounts: Mounts, limits: Limits) -> Ran:
        handle, name = tempfile.mkstemp(dir=self.run.folder, prefix=".output-")
        os.close(handle)
        output = Path(name)
        try:
            process = self.sandbox.start(argv, cwd=cwd, mounts=mounts, output=output, limits=limits, env={})
            try:
                while (ended := process.wait(POLL_S)) is None:
                    if self.cancelled():
                        raise Cancelled("The run was cancelled.")
            except BaseException:
                process.stop()  # whatever interrupts m3b, nothing of the run stays behind
                raise
            return Ran(ended.code, ended.reason, output.read_text(encoding="utf-8", errors="replace"))
        finally:
            output.unlink(missing_ok=True)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A new folder that is removed whatever predict.py built in it."""
    place = Path(tempfile.mkdtemp(dir=folder, prefix=".staged-"))
    try:
        yield place
    finally:
        remove_tree(place)


def reading_command(
    python: str, place: Path, root: Path, work: Path | None, read: tuple[Path, ...] = ()
) -> tuple[list[str], Mounts]:
    """The command and the mounts of a job of `m3b.data.spec.inside`; see `Executor.reading`."""
    package = Path(m3b.__file__).resolve().parent
    start = (
        f"import sys; sys.path.insert(0, {str(package.parent)!r}); from m3b.data.spec.inside import main; "
        f"main({str(place)!r})"
    )
    mounts = Mounts(read=(root, package, resources_dir(), *read), write=(place, *([work] if work else ())))
    return [python, "-c", start], mounts


def start_reading(
    sandbox: Sandbox, python: str, place: Path, root: Path, work: Path | None, output: Path, wall_s: float
) -> Process:
    """Start a job outside of any run."""
    argv, mounts = reading_command(python, place, root, work)
    return sandbox.start(argv, cwd=place, mounts=mounts, output=output, limits=Limits(wall_s=wall_s), env={})


def device() -> str:
    """What training runs on, in words for an agent."""
    cores = len(os.sched_getaffinity(0))
    gpus = sum(1 for number in range(16) if Path(f"/dev/nvidia{number}").exists())
    if gpus:
        return f"{gpus} GPU{'s' if gpus > 1 else ''} and {cores} CPU cores"
    return f"{cores} CPU core{'s' if cores > 1 else ''}, no GPU"
