"""Tasks in the background that a labelling tool starts: training of a served model, and predictions of all studies."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from m3b.errors import M3bError
from m3b.isolation.untrusted import TemporaryFolder
from m3b.run.folder import is_own_model
from m3b.serve.model_pool import ServedModel
from m3b.serve.serve_errors import ServeError

DEFAULT_MINUTES, MAX_MINUTES = 5.0, 24 * 60.0
STOP_S = 30.0
_POLL_S = 0.25
Work = Callable[["LabelTask"], Awaitable[bool]]
"""Does the work of a task; returns whether it succeeded."""


@dataclass
class LabelTask:
    """One task: what was asked for, its state, and lines on its progress."""

    request: dict[str, Any]
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "RUNNING"
    began: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S"))
    ended: str = ""
    details: list[str] = field(default_factory=list)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values that clients read."""
        return {
            "id": self.identity, "status": self.status, "request": self.request, "start_ts": self.began,
            **({"end_ts": self.ended} if self.ended else {}), "details": self.details[-20:],
        }  # fmt: skip


class TaskRunner:
    """Runs one task of a kind at a time."""

    def __init__(self) -> None:
        self.latest: LabelTask | None = None

    @property
    def is_running(self) -> bool:
        """Whether a task is at work."""
        return self.latest is not None and self.latest.status == "RUNNING"

    def start(self, request: dict[str, Any], work: Work, start_soon: Callable[..., None]) -> LabelTask:
        """Start a task. Raises ServeError if another one is at work."""
        if self.is_running:
            raise ServeError(429, "task_running", "Another task of this kind is at work; stop it, or wait.")
        task = self.latest = LabelTask(request)
        start_soon(self._run, task, work)
        return task

    async def _run(self, task: LabelTask, work: Work) -> None:
        status = "ERROR"
        try:
            with task.scope:
                status = "DONE" if await work(task) else "ERROR"
            if task.scope.cancelled_caught:
                status = "STOPPED"
        except (M3bError, OSError) as error:
            task.details.append(type(error).__name__)
        finally:
            task.status, task.ended = status, time.strftime("%Y-%m-%d %H:%M:%S")

    def get_latest(self, *, only_running: bool) -> LabelTask:
        """Return the latest task. Raises ServeError if there is none, or none is at work."""
        if self.latest is None or (only_running and not self.is_running):
            raise ServeError(
                404, "no_task", "No task of this kind is at work." if only_running else "There is no task."
            )
        return self.latest

    def stop(self) -> LabelTask | None:
        """Tell the task to end; return it, or None if none is at work."""
        if not self.is_running or self.latest is None:
            return None
        self.latest.scope.cancel()
        return self.latest


def find_run(served: ServedModel) -> Path:
    """Return the folder of the run that delivered a served model.

    Raises:
        ServeError: the model is not of a run of this user, so that nothing can go on.
    """
    folder = served.model.folder
    if folder.name != "model" or not is_own_model(folder):
        message = "This model is served without its run, so its training cannot go on: serve the run itself."
        raise ServeError(409, "no_run", message)
    return folder.parent


def read_minutes(params: dict[str, Any]) -> float:
    """Return the minutes of a training. Raises ServeError."""
    minutes = params.get("minutes", DEFAULT_MINUTES)
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes <= MAX_MINUTES:
        raise ServeError(422, "invalid_minutes", f"`minutes` must be a number up to {MAX_MINUTES:g}.")
    return float(minutes)


def make_training(served: ServedModel, minutes: float) -> Work:
    """Return the work that trains the model of a run for longer (`m3b train`), and then serves the better one.

    Raises:
        ServeError: as `find_run`.
    """
    run = find_run(served)

    async def train(task: LabelTask) -> bool:
        command = [sys.executable, "-m", "m3b", "train", str(run), "--minutes", f"{minutes:g}", "--quiet", "--json"]
        with TemporaryFolder("train") as folder, (folder / "result").open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
            )
            try:
                while process.poll() is None:
                    await anyio.sleep(_POLL_S)
            finally:
                await _stop(process)
            has_result = (folder / "result").stat().st_size > 0
        has_changed = served.model.version != served.version
        if has_changed:
            await served.reload()
        task.details.append("a better model was delivered" if has_changed else "the earlier model stays")
        return has_result

    return train


async def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process as Ctrl-C does, and wait for it."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    end = time.monotonic() + STOP_S
    with anyio.CancelScope(shield=True):
        while process.poll() is None and time.monotonic() < end:
            await anyio.sleep(_POLL_S)
    if process.poll() is None:
        process.kill()
        process.wait()
