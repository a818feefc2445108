"""The client of the confined reader: starts it on demand, sends one job at a time, restarts it after a crash."""

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

from m3b.cleanup import undo_on_error
from m3b.errors import RunCancelled
from m3b.isolation.reader import protocol
from m3b.isolation.reader.remote_errors import ReaderError, error_from_json
from m3b.isolation.reader.worker_job import WorkerJob
from m3b.isolation.sandbox import Limits, Mounts, Process, Sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.isolation.user_secret import purpose_key
from m3b.resources import get_resources_folder

Q = TypeVar("Q")
A = TypeVar("A")

READER_LIMITS = Limits(
    memory_mib=8192, processes=64, file_mib=8192, disk_mib=32768, wall_s=10.0**9, output_kib=64, isolated=True
)
"""Resource limits of the reader process over its whole life; the time for one file is set by each worker job."""
READER_LIBRARIES = (
    "pydantic", "numpy", "scipy", "PIL", "nibabel", "pydicom", "SimpleITK", "h5py", "openpyxl", "av", "rapidocr",
)  # fmt: skip
MAX_BROKEN_FILES = 20
"""Maximum number of files that may crash the reader during one job; each is refused in the next try."""
_POLL_INTERVAL_S = 0.5
_START_TIMEOUT_S = 120.0
_MAX_TIME_FACTOR = 10
"""Maximum time that one file may take in all, in times of the timeout; a container is opened for each of its images."""
_MAX_PROGRESS_STEPS = 5000
_MAX_HELD_BYTES = 2**30
"""Maximum memory in bytes that a reader may hold between two jobs; with more it is replaced by a new process."""


def _never() -> bool:
    return False


class Reader:
    """A confined process that opens files for m3b. Thread-safe: threads take turns.

    Args:
        sandbox: confines the process; with `off` it is still a separate process with limits and an empty environment.
        mounts: the folders that it may read, and those that it may write, if any.
        limits: its resource limits.
        is_cancelled: called twice a second while waiting; true ends the wait with `RunCancelled`.

    `starts` counts the processes so far; `held_bytes` is the memory in bytes that the last one held after its last job.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        mounts: Mounts,
        *,
        limits: Limits = READER_LIMITS,
        is_cancelled: Callable[[], bool] = _never,
    ) -> None:
        package = Path(__file__).resolve().parents[2]
        self.sandbox = sandbox
        self.mounts = replace(mounts, read=tuple(dict.fromkeys((*mounts.read, package, get_resources_folder()))))
        self.limits, self.is_cancelled = limits, is_cancelled
        self.starts = self.held_bytes = 0
        self._lock = threading.RLock()
        self._process: _ReaderProcess | None = None
        self._job_number = 0

    def run_job(
        self,
        job: WorkerJob[Q, A],
        job_input: Q,
        *,
        stall_timeout_s: float | None = None,
        on_open: Callable[[str], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> A:
        """Run a worker job and return its output.

        If a file ends the reader (crash, memory, time), the job is run again in a new process, which refuses this file
        with a DataError that says so. Only that file is lost.

        Args:
            stall_timeout_s: overrides `WorkerJob.stall_timeout_s` unless it is None.
            on_open: called with the path of each file that is about to be opened.
            on_progress: called with the finished and the total amount of a long job.

        Raises:
            M3bError: or ToolError, OSError, MemoryError: the error of the function, by its name in `m3b.errors`.
            ReaderError: the reader ended without a file to blame, or because of too many files, or the function raised
                another error.
            SandboxError: the process cannot be started.
            RunCancelled: the user stopped the run.
        """
        timeout_s = job.stall_timeout_s if stall_timeout_s is None else stall_timeout_s
        broken: dict[str, str] = {}
        one_by_one = not job.parallel
        with self._lock:
            while True:
                process = self._ensure_running()
                try:
                    with undo_on_error(self._drop_if_busy, process):
                        callbacks = (on_open, on_progress)
                        return cast(
                            A, self._run_once(process, job, job_input, (broken, one_by_one), timeout_s, callbacks)
                        )
                except _ReaderEnded as ended:
                    self._drop()
                    if not ended.file and process.has_answered:
                        continue  # it was ended from outside while it was idle
                    if not one_by_one:
                        one_by_one = True
                        continue
                    if not ended.file or ended.file in broken or len(broken) >= MAX_BROKEN_FILES:
                        raise ReaderError(ended.describe()) from None
                    broken[ended.file] = ended.describe()

    def start(self) -> None:
        """Start the process if it is not running, without waiting until it is ready. Raises SandboxError."""
        with self._lock:
            self._ensure_running()

    def close(self) -> None:
        """End the process; the next job starts another one."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ensure_running(self) -> _ReaderProcess:
        if self._process is None:
            self._process = _ReaderProcess(self.sandbox, self.mounts, self.limits)
            self.starts += 1
        return self._process

    def _drop_if_busy(self, process: _ReaderProcess) -> None:
        """Stop a process that was interrupted in a job: the next job must not receive the rest of its answer."""
        if process.is_busy:
            self._drop()

    def _drop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _run_once(
        self,
        process: _ReaderProcess,
        job: WorkerJob[Q, A],
        job_input: Q,
        recovery: tuple[dict[str, str], bool],
        timeout_s: float,
        callbacks: tuple[Callable[[str], None] | None, Callable[[int, int], None] | None],
    ) -> object:
        self._job_number += 1
        process.send({"id": self._job_number, "name": job.function_path, "broken": recovery[0], "alone": recovery[1],
                  "mask_key": purpose_key("masks").hex(), "question": protocol.to_json(job.input_type, job_input)})  # fmt: skip
        folders = (*self.mounts.read, *self.mounts.write)
        clock = _StallClock(timeout_s if process.is_ready else max(timeout_s, _START_TIMEOUT_S), folders)
        while True:
            message = process.receive(clock, self.is_cancelled)
            if "ready" in message and not process.is_ready:
                process.is_ready, clock = True, _StallClock(timeout_s, folders)
            if message.get("id") != self._job_number:
                continue  # the `ready` message, or a message of an abandoned job
            if isinstance(name := message.get("opening"), str):
                if clock.note_opening(name):
                    process.file = name
                    if callbacks[0] is not None:
                        callbacks[0](name)
                continue
            match message.get("progress"):
                case [int(done), int(total)]:
                    clock.note_progress(done, total)
                    if callbacks[1] is not None:
                        callbacks[1](done, total)
                    continue
            process.is_busy, process.has_answered = False, True
            held_bytes = message.get("held")
            self.held_bytes = held_bytes if isinstance(held_bytes, int) else 0
            if not 0 < self.held_bytes <= _MAX_HELD_BYTES:
                self._drop()
            if "answer" not in message:
                raise error_from_json(message.get("error"), job.function_path.partition(":")[2].replace("_", " "))
            try:
                return protocol.from_json(job.output_type, message["answer"])
            except protocol.MalformedMessage as error:
                self._drop()
                raise ReaderError(f"The reader sent an invalid answer ({error}). Try again.") from None


def _startup_code(question_end: int, answer_end: int) -> str:
    """Return Python code that loads this copy of m3b, even if another is installed, and runs the server.

    The code does not need the folder above the package, which the process cannot see.
    """
    package = Path(__file__).resolve().parents[2]
    return (
        "import importlib.util as u, sys; "
        f"sys.path += {[str(folder) for folder in library_folders()]!r}; "
        f"s = u.spec_from_file_location('m3b', {str(package / '__init__.py')!r}, "
        f"submodule_search_locations=[{str(package)!r}]); "
        "m = u.module_from_spec(s); sys.modules['m3b'] = m; s.loader.exec_module(m); "
        f"from m3b.isolation.reader.server import main; main({question_end}, {answer_end})"
    )


@cache
def library_folders() -> tuple[Path, ...]:
    """Return the folders of m3b's libraries that a new interpreter would not search by itself (of PYTHONPATH)."""
    site_folders = {Path(folder).resolve() for folder in (*site.getsitepackages(), site.getusersitepackages())}
    folders: dict[Path, None] = {}
    for name in READER_LIBRARIES:
        spec = PathFinder.find_spec(name)  # finds the library without importing it
        if (
            spec is not None
            and spec.origin
            and (folder := Path(spec.origin).resolve().parent.parent) not in site_folders
        ):
            folders[folder] = None
    return tuple(folders)


class _StallClock:
    """Measures how long a job has not moved on; messages alone are no progress, since a decoder may have been taken over.

    A job moves on by opening a file in the mounted folders, up to a maximum time a file, and by finishing another thousandth.
    """

    def __init__(self, timeout_s: float, folders: tuple[Path, ...]) -> None:
        self.timeout_s = max(timeout_s, 0.01)
        self._roots = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
        self._file, self._opened_at, self._seconds = "", time.monotonic(), dict[str, float]()
        self._steps: set[tuple[int, int]] = set()
        self._deadline = time.monotonic() + self.timeout_s

    @property
    def remaining_s(self) -> float:
        """The seconds that are left."""
        return max(self._deadline - time.monotonic(), 0.0)

    def note_opening(self, name: str) -> bool:
        """Note that a file is opened: it has the time of a file, less what it took before. False if there is no such file."""
        path, now = os.path.realpath(name.replace("\0", "")), time.monotonic()
        if not path.startswith(self._roots) or not os.path.lexists(path):
            return False
        self._seconds[self._file] = self._seconds.get(self._file, 0.0) + now - self._opened_at
        left_s = _MAX_TIME_FACTOR * self.timeout_s - self._seconds.get(path, 0.0)
        self._file, self._opened_at = path, now
        self._deadline = max(self._deadline, now + min(self.timeout_s, left_s))
        return True

    def note_progress(self, done: int, total: int) -> None:
        """Note how much of a job is done."""
        step = (total, 1000 * done // max(total, 1))
        if 0 <= done <= total and step not in self._steps and len(self._steps) < _MAX_PROGRESS_STEPS:
            self._steps.add(step)
            self._deadline = time.monotonic() + self.timeout_s


class _ReaderEnded(Exception):
    """The reader process has ended, or was stopped because it did not answer."""

    def __init__(self, file: str, reason: str) -> None:
        self.file, self.reason = file, reason

    def describe(self) -> str:
        subject = f"{self.file}: reading it" if self.file else "Reading"
        remedy = "Leave this file out, or replace it by a sound copy." if self.file else "Look at less at a time."
        return f"{subject} ended m3b's reader ({self.reason}). {remedy}"


class _ReaderProcess:
    """One process and the pipes to it."""

    def __init__(self, sandbox: Sandbox, mounts: Mounts, limits: Limits) -> None:
        self.file, self.is_busy, self.has_answered, self._limits = "", False, False, limits
        self.is_ready, self._last_check = False, time.monotonic()
        self._scratch = TemporaryFolder("reader")
        working_dir, output_file = self._scratch.path / "inside", self._scratch.path / "output"
        working_dir.mkdir()
        question_end, self._question_fd = os.pipe()
        self._answer_fd, answer_end = os.pipe()
        try:
            with undo_on_error(self._scratch.close), undo_on_error(self._close_pipes):
                self._process: Process = sandbox.start(
                    [sys.executable, "-P", "-c", _startup_code(question_end, answer_end)],
                    cwd=working_dir,
                    mounts=replace(mounts, read=(*mounts.read, *library_folders(), working_dir)),
                    output=output_file,
                    limits=limits,
                    env={},
                    keep=(question_end, answer_end),
                )
        finally:
            os.close(question_end)
            os.close(answer_end)
        self._output, self._receiver = output_file, protocol.MessageReceiver(self._answer_fd)

    def send(self, message: dict[str, Any]) -> None:
        """Send a job. Raises _ReaderEnded."""
        self.file, self.is_busy = "", True
        try:
            protocol.send_message(self._question_fd, message)
        except protocol.ConnectionClosed:
            raise self._make_ended_error() from None

    def receive(self, clock: _StallClock, is_cancelled: Callable[[], bool]) -> dict[str, Any]:
        """Return the next message.

        Raises:
            _ReaderEnded: the job did not move on in time, or the process has ended.
            RunCancelled: the user stopped the run.
        """
        while True:
            if time.monotonic() - self._last_check >= _POLL_INTERVAL_S:
                self._last_check = time.monotonic()
                if is_cancelled():
                    raise RunCancelled("The run was cancelled.") from None
            try:
                message = self._receiver.receive(min(_POLL_INTERVAL_S, clock.remaining_s))
            except protocol.MessageTimeout:
                message = None
            except protocol.ConnectionClosed:
                raise self._make_ended_error() from None
            except protocol.MalformedMessage as error:
                raise _ReaderEnded(self.file, f"it sent {error}") from None
            if message is not None and ("answer" in message or "error" in message or clock.remaining_s):
                return message
            if not clock.remaining_s:
                raise _ReaderEnded(self.file, f"no answer after {clock.timeout_s:g} s") from None

    def _make_ended_error(self) -> _ReaderEnded:
        exit_status = self._process.wait(10.0) or self._process.stop()
        if exit_status.reason == "memory":
            return _ReaderEnded(self.file, f"more than {self._limits.memory_mib:,} MiB of memory")
        if exit_status.reason != "exit":
            return _ReaderEnded(self.file, exit_status.reason.replace("_", " "))
        if exit_status.code > 128:
            return _ReaderEnded(self.file, f"a crash, signal {exit_status.code - 128}")
        output_lines = self._output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return _ReaderEnded(
            self.file, f"exit code {exit_status.code}{': ' + output_lines[-1][:300] if output_lines else ''}"
        )

    def _close_pipes(self) -> None:
        for end in (self._question_fd, self._answer_fd):
            with contextlib.suppress(OSError):
                os.close(end)

    def stop(self) -> None:
        self._close_pipes()
        self._process.stop()
        self._scratch.close()
