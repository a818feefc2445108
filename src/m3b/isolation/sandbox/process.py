"""The caller's side of a running command: starts the supervisor, and receives from it how the command ended."""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from m3b.errors import SandboxError
from m3b.isolation.sandbox import bundle
from m3b.isolation.sandbox.environment import INTERRUPT_FILE, bootstrap_command
from m3b.isolation.sandbox.exit_status import ExitReason, ExitStatus
from m3b.isolation.sandbox.guard.cleanup import remove_private_folder
from m3b.isolation.sandbox.guard.job import SupervisorJob
from m3b.isolation.untrusted import TemporaryFolder

_START_TIMEOUT_S = 120.0  # long, because the supervisor first counts the files of the writable folders


class Process:
    """A command in the sandbox. It ends with this object and with the process that created it.

    `private` is the folder that the command sees as its /tmp; the supervisor takes it over and removes it at the end.
    `pid` is the process id of the supervisor; `output` is the file with standard output and error, which grows while
    the command runs. Thread-safe.
    """

    def __init__(self, job: SupervisorJob, output: Path, private: TemporaryFolder) -> None:
        self.output = output
        self._private = job["private"]
        self._lock = threading.Lock()
        self._started_at = time.monotonic()
        self._messages = b""
        self._exit: ExitStatus | None = None
        self._failure: str | None = None
        self._started = False
        control_read, control = os.pipe()
        status, status_write = os.pipe()
        self._control, self._status = os.fdopen(control, "wb", buffering=0), os.fdopen(status, "rb", buffering=0)
        try:
            self._supervisor = self._spawn(control_read, status_write, private, job["keep"])
        finally:
            os.close(control_read)
            os.close(status_write)
        os.set_blocking(status, False)
        self.pid = self._supervisor.pid
        self._send_job(job)

    def _spawn(
        self, control: int, status: int, private: TemporaryFolder, keep: Sequence[int]
    ) -> subprocess.Popen[bytes]:
        try:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            target = os.open(self.output, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            private.close()
            raise SandboxError(f"cannot write the output file {self.output}: {error.strerror}") from error
        handles = (control, status, target, *private.handles)
        try:
            process = subprocess.Popen(
                [*bootstrap_command("supervisor"), *map(str, handles)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=target,
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                pass_fds=(*handles, *keep, bundle.bundle_descriptor()),
                start_new_session=True,  # the caller handles Ctrl-C in the terminal
            )
        finally:
            os.close(target)
        private.hand_over()
        return process

    def _send_job(self, job: SupervisorJob) -> None:
        with contextlib.suppress(BrokenPipeError):  # the supervisor died; the status pipe reports it below
            message = marshal.dumps(dict(job))
            self._control.write(len(message).to_bytes(8, "little") + message)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._started and self._exit is None and self._failure is None:
            self._receive(deadline - time.monotonic())
            if time.monotonic() > deadline:
                self._supervisor.kill()
                self._failure = f"nothing happened for {_START_TIMEOUT_S:.0f} s"
        if self._failure is None and not self._started and self._exit is not None and self._exit.reason == "lost":
            self._failure = "the supervisor ended: " + self.output.read_text(errors="replace")[-500:].strip()
        if self._failure is not None:
            self._supervisor.wait()
            remove_private_folder(self._private)  # still there if the supervisor was killed
            raise SandboxError(
                f"the sandbox did not start the command: {self._failure}. `m3b doctor` shows what this machine allows."
            )

    def _receive(self, timeout_s: float | None) -> None:
        """Wait for the next messages of the supervisor, at most `timeout_s`, and handle them."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        poll.poll(None if timeout_s is None else max(0, int(timeout_s * 1000)))
        with self._lock:
            data = self._status.read(1 << 16)
            if data is None or self._exit is not None:
                return  # no message yet, or another thread has read it
            self._messages += data
            *lines, self._messages = self._messages.split(b"\n")
            for line in lines:
                self._handle_message(json.loads(line))
            if not data and self._exit is None and self._failure is None:
                self._finish(ExitStatus(137, "lost", time.monotonic() - self._started_at))

    def _handle_message(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self._started = True
        elif "failed" in message:
            self._failure = str(message["failed"])
        else:
            code, reason, wall_s = message["code"], message["reason"], message["wall_s"]
            self._started = True
            self._finish(ExitStatus(int(code), cast(ExitReason, reason), float(wall_s)))

    def _finish(self, exit_status: ExitStatus) -> None:
        self._supervisor.wait()
        if exit_status.reason == "lost":
            remove_private_folder(self._private)
        self._exit = exit_status

    def poll(self) -> ExitStatus | None:
        """Return the exit status, or None while the command runs."""
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> ExitStatus | None:
        """Wait for the end, at most `timeout_s` seconds; return the exit status, or None if the command still runs."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._exit is None:
            remaining_s = None if deadline is None else deadline - time.monotonic()
            self._receive(remaining_s)
            if remaining_s is not None and remaining_s <= 0:
                break
        return self._exit

    def interrupt(self) -> None:
        """Ask the command to write a checkpoint and to end: its INTERRUPT_VARIABLE names a file that exists from now on."""
        with contextlib.suppress(OSError):  # the command has put something of its own there, or has ended
            name = os.path.join(self._private, INTERRUPT_FILE)
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))

    def stop(self) -> ExitStatus:
        """End the command and all its child processes; return the exit status (it may have ended by itself)."""
        if self._exit is None:
            with contextlib.suppress(OSError):  # it has ended in the meantime
                self._control.write(b"s")
        exit_status = self.wait(60)
        if exit_status is None:  # SIGKILL does not end a process that hangs in a driver, for example
            self._supervisor.kill()
            exit_status = self.wait(60)
        return exit_status or ExitStatus(137, "lost", time.monotonic() - self._started_at)
