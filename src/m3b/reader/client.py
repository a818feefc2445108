"""m3b's side of the reader: started when first asked, asked one question at a time, started again after an accident."""

from __future__ import annotations

import contextlib
import os
import site
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeVar, cast

import m3b
from m3b.cleanup import undo_on_error
from m3b.errors import Cancelled
from m3b.reader import wire
from m3b.reader.faults import ReaderFault, unpack
from m3b.reader.request import Request
from m3b.resources import resources_dir
from m3b.sandbox import Limits, Mounts, Process, Sandbox
from m3b.untrusted import TemporaryFolder

Q = TypeVar("Q")
A = TypeVar("A")

LIMITS = Limits(memory_mib=8192, processes=64, file_mib=8192, disk_mib=32768, wall_s=10.0**9, output_kib=64, alone=True)
"""What the reader may use, for as long as it lives; how long one file may take says each request."""
LIBRARIES = ("pydantic", "numpy", "scipy", "PIL", "nibabel", "pydicom", "SimpleITK", "h5py", "openpyxl", "av")
MAX_LOST = 20
"""Files that may end the reader during one request, each left out of the next try."""
_POLL_S = 0.5
_START_S = 120.0
_MAX_HELD_BYTES = 2**30
"""Bytes that a reader may hold between two requests; one that holds more is replaced by a fresh one."""


def _never() -> bool:
    return False


class Reader:
    """A confined process that opens files for m3b. Safe to be used from several threads, which take turns.

    Args:
        sandbox: what confines it; with `off` it is still a process of its own with limits and no environment.
        mounts: the folders that it may read, and those that it may write, if any.
        limits: what it may use.
        cancelled: asked twice a second while waiting; true ends the wait with `Cancelled`.

    `starts` counts the processes so far; `held` is the memory in bytes that the last one held after its last answer.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        mounts: Mounts,
        *,
        limits: Limits = LIMITS,
        cancelled: Callable[[], bool] = _never,
    ) -> None:
        package = Path(m3b.__file__).resolve().parent
        self.sandbox = sandbox
        self.mounts = replace(mounts, read=tuple(dict.fromkeys((*mounts.read, package, resources_dir()))))
        self.limits, self.cancelled = limits, cancelled
        self.starts = self.held = 0
        self._lock = threading.RLock()
        self._live: _Live | None = None
        self._number = 0

    def ask(
        self,
        request: Request[Q, A],
        question: Q,
        *,
        patience_s: float | None = None,
        opening: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> A:
        """Ask and wait for the answer.

        Where a file ends the reader (crash, memory, time), the question is asked again of a new one, which refuses this
        file with a DataError that says so: it costs one file.

        Args:
            patience_s: as `Request.patience_s`, which stands where this is None.
            opening: told the path of each file that is about to be opened.
            progress: told how much of a long piece of work is done, and of how much.

        Raises:
            M3bError: or ToolError, OSError, MemoryError: whatever the function raised, by its name in `m3b.errors`.
            ReaderFault: the reader was ended by no file in particular, or by too many, or raised something else.
            SandboxError: it cannot be started.
            Cancelled: the user stopped the run.
        """
        timeout_s = request.patience_s if patience_s is None else patience_s
        broken: dict[str, str] = {}
        one_by_one = not request.parallel
        with self._lock:
            while True:
                process = self._running()
                try:
                    with undo_on_error(self._drop_if_busy, process):
                        callbacks = (opening, progress)
                        return cast(
                            A, self._once(process, request, question, (broken, one_by_one), timeout_s, callbacks)
                        )
                except _Ended as ended:
                    self._drop()
                    if not ended.file and process.answered:
                        continue  # something from outside ended it while it was idle
                    if not one_by_one:
                        one_by_one = True
                        continue
                    if not ended.file or ended.file in broken or len(broken) >= MAX_LOST:
                        raise ReaderFault(ended.words()) from None
                    broken[ended.file] = ended.words()

    def warm(self) -> None:
        """Start it now, if it is not running, without waiting until it is ready. Raises SandboxError."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the process; the next question starts another one."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> _Live:
        if self._live is None:
            self._live = _Live(self.sandbox, self.mounts, self.limits)
            self.starts += 1
        return self._live

    def _drop_if_busy(self, process: _Live) -> None:
        """Whoever interrupts must not leave half an answer to the next question."""
        if process.asked:
            self._drop()

    def _drop(self) -> None:
        if self._live is not None:
            self._live.end()
            self._live = None

    def _once(
        self,
        live: _Live,
        request: Request[Q, A],
        question: Q,
        care: tuple[dict[str, str], bool],
        patience: float,
        told: tuple[Callable[[str], None] | None, Callable[[int, int], None] | None],
    ) -> object:
        self._number += 1
        live.put({"id": self._number, "name": request.name, "broken": care[0], "alone": care[1],
                  "question": wire.dump(request.asks, question)})  # fmt: skip
        while True:
            message = live.get(patience, self.cancelled)
            if message.get("id") != self._number:
                continue  # `ready`, or of a question that was given up
            if isinstance(name := message.get("opening"), str):
                live.file = name
                if told[0] is not None:
                    told[0](name)
                continue
            match message.get("progress"):
                case [int(done), int(total)]:
                    if told[1] is not None:
                        told[1](done, total)
                    continue
            live.asked, live.answered = False, True
            held_bytes = message.get("held")
            self.held = held_bytes if isinstance(held_bytes, int) else 0
            if not 0 < self.held <= _MAX_HELD_BYTES:
                self._drop()
            if "answer" not in message:
                raise unpack(message.get("error"), request.name.partition(":")[2].replace("_", " "))
            try:
                return wire.load(request.answers, message["answer"])
            except wire.Garbled as error:
                self._drop()
                raise ReaderFault(f"The reader gave an answer that cannot be right ({error}). Try again.") from None


def _start(question_end: int, answer_end: int) -> str:
    """Python that loads this very m3b, whatever else is installed, and serves. The folder above the package stays unseen."""
    package = Path(m3b.__file__).resolve().parent
    return (
        "import importlib.util as u, sys; "
        f"sys.path += {[str(folder) for folder in libraries()]!r}; "
        f"s = u.spec_from_file_location('m3b', {str(package / '__init__.py')!r}, "
        f"submodule_search_locations=[{str(package)!r}]); "
        "m = u.module_from_spec(s); sys.modules['m3b'] = m; s.loader.exec_module(m); "
        f"from m3b.reader.server import main; main({question_end}, {answer_end})"
    )


@cache
def libraries() -> tuple[Path, ...]:
    """Folders that m3b's libraries come from although this interpreter would not look there by itself: of PYTHONPATH for
    instance."""
    site_folders = {Path(folder).resolve() for folder in (*site.getsitepackages(), site.getusersitepackages())}
    folders: dict[Path, None] = {}
    for name in LIBRARIES:
        spec = PathFinder.find_spec(name)  # looks, and loads nothing
        if (
            spec is not None
            and spec.origin
            and (folder := Path(spec.origin).resolve().parent.parent) not in site_folders
        ):
            folders[folder] = None
    return tuple(folders)


class _Ended(Exception):
    """The process is gone, or was ended because it did not answer."""

    def __init__(self, file: str, why: str) -> None:
        self.file, self.why = file, why

    def words(self) -> str:
        subject = f"{self.file}: reading it" if self.file else "Reading"
        remedy = "Leave this file out, or replace it by a sound copy." if self.file else "Look at less at a time."
        return f"{subject} ended m3b's reader ({self.why}). {remedy}"


class _Live:
    """One process and the pipes to it."""

    def __init__(self, sandbox: Sandbox, mounts: Mounts, limits: Limits) -> None:
        self.file, self.asked, self.answered, self._limits = "", False, False, limits
        self._place = TemporaryFolder("reader")
        working_dir, output_file = self._place.path / "inside", self._place.path / "output"
        working_dir.mkdir()
        question_end, self._to = os.pipe()
        self._from, answer_end = os.pipe()
        try:
            with undo_on_error(self._place.close), undo_on_error(self._hang_up):
                self._process: Process = sandbox.start(
                    [sys.executable, "-P", "-c", _start(question_end, answer_end)],
                    cwd=working_dir,
                    mounts=replace(mounts, read=(*mounts.read, *libraries(), working_dir)),
                    output=output_file,
                    limits=limits,
                    env={},
                    keep=(question_end, answer_end),
                )
        finally:
            os.close(question_end)
            os.close(answer_end)
        self._output, self._inlet = output_file, wire.Inlet(self._from)

    def put(self, message: dict[str, Any]) -> None:
        """Send a question. Raises _Ended."""
        self.file, self.asked = "", True
        try:
            wire.send(self._to, message)
        except wire.Closed:
            raise self._ended() from None

    def get(self, patience_s: float, cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The next message. Raises _Ended where none came in time or ever will, Cancelled."""
        deadline = time.monotonic() + max(patience_s, 0.01)
        while True:
            try:
                return self._inlet.next(min(_POLL_S, max(deadline - time.monotonic(), 0.0)))
            except wire.Late:
                if cancelled():
                    raise Cancelled("The run was cancelled.") from None
                if time.monotonic() >= deadline:
                    raise _Ended(self.file, f"no answer after {patience_s:g} s") from None
            except wire.Closed:
                raise self._ended() from None
            except wire.Garbled as error:
                raise _Ended(self.file, f"it sent {error}") from None

    def _ended(self) -> _Ended:
        exit_status = self._process.wait(10.0) or self._process.stop()
        if exit_status.reason == "memory":
            return _Ended(self.file, f"more than {self._limits.memory_mib:,} MiB of memory")
        if exit_status.reason != "exit":
            return _Ended(self.file, exit_status.reason.replace("_", " "))
        if exit_status.code > 128:
            return _Ended(self.file, f"a crash, signal {exit_status.code - 128}")
        output_lines = self._output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return _Ended(self.file, f"exit code {exit_status.code}{': ' + output_lines[-1][:300] if output_lines else ''}")

    def _hang_up(self) -> None:
        for end in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(end)

    def end(self) -> None:
        self._hang_up()
        self._process.stop()
        self._place.close()
