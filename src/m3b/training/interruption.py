"""Interruption of a training from outside: a batch system wants its node back, and lets the training write a checkpoint.

It is asked by a file that the variable `M3B_INTERRUPT_FILE` names (in m3b's sandbox, where signals would end the shell
above the training too), by SIGUSR1, or by SIGTERM. A job that is started again goes on from the checkpoint: the variable
`M3B_JOB` is `NAME:ATTEMPT`, and Logout says which attempt began the training.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

from m3b.training.distributed import world_size

INTERRUPTED_CODE = 143
"""Exit code of a training that was interrupted: 128 + SIGTERM, as of a program that the signal ended."""
JOB_FILE = "job.txt"
FILE_CHECK_S = 1.0
"""Seconds between two looks at the file."""
_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


class TrainingInterruptedError(RuntimeError):
    """The training was asked to stop, and has written a checkpoint."""


class _Requests:
    """What asks this process to stop."""

    def __init__(self) -> None:
        self.has_signal = False
        self.checked_at = -FILE_CHECK_S
        self._has_fork_hooks = False
        self._masks = threading.local()

    def listen(self) -> None:
        """Note SIGUSR1, and SIGTERM unless several processes train together: torchrun ends them with it.

        A signal that is ignored stays ignored: then the file is the way.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGUSR1, *([signal.SIGTERM] if world_size() == 1 else [])):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, self._note)
        if not self._has_fork_hooks:
            self._has_fork_hooks = True
            os.register_at_fork(
                before=self._block_signals, after_in_parent=self._unblock_signals, after_in_child=self._stop_listening
            )

    def _note(self, number: int, _: FrameType | None) -> None:
        self.has_signal = True

    def _block_signals(self) -> None:
        self._masks.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.mask)

    def _stop_listening(self) -> None:
        """Let the signals end a forked worker as ever.

        A handler in Python would not do: it waits for the interpreter, so a signal just before a worker waits for a
        lock would be noted and never heard, and the pool that ends its workers would wait for ever.
        """
        for number in _SIGNALS:
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL)
        self._unblock_signals()

    def is_pending(self) -> bool:
        """Return whether this process is asked to stop."""
        now, file = time.monotonic(), os.environ.get("M3B_INTERRUPT_FILE")
        if not self.has_signal and file and now - self.checked_at >= FILE_CHECK_S:
            self.checked_at = now
            self.has_signal = os.path.exists(file)
        return self.has_signal


_requests = _Requests()


def listen_for_interruptions() -> None:
    """Let signals ask for a checkpoint instead of ending this process."""
    _requests.listen()


def is_interrupted() -> bool:
    """Return whether the training should write a checkpoint and stop."""
    return _requests.is_pending()


def goes_on_after_restart(logout: Path = Path("Logout")) -> bool:
    """Return whether an earlier attempt of this cluster job began the training in Logout."""
    name, _, attempt = os.environ.get("M3B_JOB", "").rpartition(":")
    try:
        begun_by, _, begun_attempt = (logout / JOB_FILE).read_text(encoding="utf-8").rpartition(":")
    except (OSError, ValueError):
        return False
    return (
        bool(name)
        and begun_by == name
        and attempt.isdecimal()
        and begun_attempt.isdecimal()
        and int(begun_attempt) < int(attempt)
    )


def note_job(logout: Path = Path("Logout")) -> None:
    """Note in Logout which attempt of which cluster job trains; nothing outside of one."""
    if job := os.environ.get("M3B_JOB"):
        (logout / JOB_FILE).write_text(job, encoding="utf-8")
