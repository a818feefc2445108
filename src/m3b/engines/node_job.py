"""What runs on the node: the script of a job folder, in the sandbox, until it ends or the job has to make room.

Called as `python -m m3b.engines.node_job FOLDER`. SIGTERM (preemption, cancellation) and SIGUSR1 (shortly before the
time limit) ask the script to write a checkpoint; after SIGUSR1 the job asks its engine to start it again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from m3b.engines.base import REQUEUE_VARIABLE
from m3b.engines.job_folder import Attempt, JobFolder, ScriptCommand, make_exit_status
from m3b.errors import SandboxError, UsageError
from m3b.isolation.sandbox import STRENGTH, ExitStatus, Sandbox, choose_sandbox

if TYPE_CHECKING:
    from m3b.isolation.sandbox import Process

POLL_S, BEATS_PER_LEASE = 0.25, 10
INTERRUPTED_CODE = 143
"""Exit code of a script that wrote its checkpoint and stopped because it was asked to (128 + SIGTERM)."""
GRACE_S = 600.0
"""Maximum seconds that an interrupted script may take for its checkpoint; engines usually kill the job earlier."""
JOB_VARIABLE = "M3B_JOB"
"""Variable of a script with the name of its job and the number of the attempt: `NAME:2` is the second start of a job.
train.py and plan.py go on with what an earlier attempt of the same job began."""


class Interruption:
    """The signals that ask this process to make room. The script and its supervisor ignore SIGTERM and SIGUSR1.

    Slurm sends SIGTERM to every process of a job; a shell in between that died of it would take the training with it.
    """

    def __init__(self) -> None:
        self.signal_number = 0
        self._handle_signals()

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal_number = self.signal_number or number

    def is_requested(self) -> bool:
        """Return whether a signal came."""
        return self.signal_number != 0

    @contextlib.contextmanager
    def ignored_by_children(self) -> Iterator[None]:
        """Start processes that ignore the signals. One that arrives meanwhile is lost; the engine kills the job later."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        try:
            yield
        finally:
            self._handle_signals()


def main(arguments: list[str]) -> int:
    """Run the script of a job folder; return its exit code."""
    interruption = Interruption()
    folder = JobFolder(Path(arguments[0]))
    command = folder.read_command()
    if command is None:
        print(f"{folder.path}: no readable command.json; is this folder on storage that the node sees?", flush=True)
        return 2
    if (end := folder.read_end()) is not None:  # the engine started a job again that had finished its work
        return end.status.code if end.status else 1
    attempt = folder.claim(command.lease_s, interruption.is_requested)
    if attempt is None:
        return INTERRUPTED_CODE
    print(f"attempt {attempt.number} on {attempt.node}", flush=True)
    return _run_attempt(folder, command, attempt, interruption)


def choose_node_sandbox(mode: str, minimum: str) -> Sandbox:
    """Return a sandbox that works on this node, at least as strong as the one that the run was started with.

    Raises:
        SandboxError: there is none.
    """
    sandbox = choose_sandbox(mode)
    if STRENGTH[sandbox.name] < STRENGTH[minimum]:
        raise SandboxError(f"only {sandbox.name} works on this node, and the run needs {minimum} or stronger")
    return sandbox


def _run_attempt(folder: JobFolder, command: ScriptCommand, attempt: Attempt, interruption: Interruption) -> int:
    remaining_s = command.limits.wall_s - attempt.spent_s
    if remaining_s <= 0:
        folder.finish(attempt, make_exit_status("wall_time"))
        return 1
    if folder.is_stop_requested():
        folder.finish(attempt, make_exit_status("stopped"))
        return 1
    folder.beat(attempt, 0.0)
    folder.set_aside_output(attempt, command.output)
    try:
        sandbox = choose_node_sandbox(command.sandbox_mode, command.min_sandbox)
        with interruption.ignored_by_children():
            process = sandbox.start(
                list(command.command),
                cwd=command.cwd,
                mounts=command.mounts,
                output=command.output,
                env={**command.env, JOB_VARIABLE: f"{command.name}:{attempt.number}"},
                limits=replace(command.limits, wall_s=remaining_s),
            )
    except (SandboxError, UsageError) as error:
        folder.finish(attempt, None, f"{attempt.node}: {error}")
        return 1
    return _Watch(folder, command, attempt, interruption, process).run()


class _Watch:
    """Watches the running script of one attempt."""

    def __init__(
        self, folder: JobFolder, command: ScriptCommand, attempt: Attempt, interruption: Interruption, process: Process
    ) -> None:
        self.folder, self.attempt, self.interruption, self.process = folder, attempt, interruption, process
        self.started_at = self.beat_at = time.monotonic()
        self.lease_s = command.lease_s
        self.interrupted_at: float | None = None

    def run(self) -> int:
        """Watch until the script has ended, and note how; return the exit code of the job."""
        while (status := self.process.wait(POLL_S)) is None:
            now = time.monotonic()
            if self.folder.is_stop_requested():
                status = self.process.stop()
                break
            if self.interruption.is_requested() and self.interrupted_at is None:
                self.interrupted_at = now
                self.process.interrupt()
            if self.interrupted_at is not None and now - self.interrupted_at > GRACE_S:
                status = self.process.stop()
                break
            if now - self.beat_at >= self.lease_s / BEATS_PER_LEASE and not self._keep_folder(now):
                self._hand_over()
                return INTERRUPTED_CODE
        return self._record_end(status)

    def _hand_over(self) -> None:
        """Let the script write a checkpoint, and end it before the attempt that waits for this one believes it dead."""
        self.process.interrupt()
        status = self.process.wait(self.lease_s / 4) or self.process.stop()
        with contextlib.suppress(OSError):
            self.folder.end_attempt(self.attempt, status.wall_s, "replaced")

    def _keep_folder(self, now: float) -> bool:
        """Say that this attempt is alive; return False if another one owns the folder, or may soon think it does."""
        try:
            self.folder.beat(self.attempt, now - self.started_at)
            if not self.folder.owns(self.attempt):
                return False
        except OSError:  # the storage is away: before the lease is over, the script must have stopped
            return now - self.beat_at < self.lease_s / 2
        self.beat_at = now
        return True

    def _record_end(self, status: ExitStatus) -> int:
        was_interrupted = self.interrupted_at is not None and (
            status.code == INTERRUPTED_CODE or status.reason == "stopped"
        )
        self.folder.end_attempt(self.attempt, status.wall_s, "interrupted" if was_interrupted else status.reason)
        if not was_interrupted or self.folder.is_stop_requested():
            self.folder.finish(self.attempt, status)
            return min(255, status.code)
        if self.interruption.signal_number == signal.SIGUSR1 and not request_restart():
            self.folder.finish(self.attempt, make_exit_status("preempted", status.wall_s))
        return INTERRUPTED_CODE


def request_restart() -> bool:
    """Ask the engine to start this job again; return whether it took the request."""
    command = shlex.split(os.environ.get(REQUEUE_VARIABLE, ""))
    if not command:
        return False
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{shlex.join(command)}: {error}", flush=True)
        return False
    print(f"{shlex.join(command)}: code {result.returncode} {result.stderr.strip()[:300]}", flush=True)
    return result.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
