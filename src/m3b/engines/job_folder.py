"""The folder of a script that runs as a cluster job: what the submitting process and the node tell each other by files.

The folder is on shared storage, out of reach of scripts. One attempt at a time owns it: a restarted job takes the
folder over, and waits until the attempt before it has stopped or was silent for `LEASE_S`; an attempt that lost the
folder stops its command. So a node that was given up, but still computes, does not train next to its successor.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from m3b.isolation.sandbox import ExitReason, ExitStatus, Limits, Mounts
from m3b.writing import write_text_atomically

LEASE_S = 30.0
"""Seconds of silence after which an attempt counts as dead."""
COMMAND_FILE, SUBMISSION_FILE, OWNER_FILE, HEARTBEAT_FILE = "command.json", "submission.json", "owner.json", "beat.json"
EXIT_FILE, STOP_FILE = "exit.json", "stop"


@dataclass(frozen=True)
class ScriptCommand:
    """What the node runs: the arguments of `Sandbox.start`, and the sandbox that it needs.

    Args:
        name: unique name of the job.
        sandbox_mode: mode for `choose_sandbox`.
        min_sandbox: name of the weakest sandbox that is accepted.
        lease_s: seconds of silence after which an attempt counts as dead.
    """

    name: str
    command: tuple[str, ...]
    cwd: Path
    mounts: Mounts
    output: Path
    env: Mapping[str, str]
    limits: Limits
    sandbox_mode: str
    min_sandbox: str
    lease_s: float = LEASE_S

    def to_json(self) -> dict[str, Any]:
        """Return the command for a file."""
        mounts = {kind: [str(path) for path in paths] for kind, paths in vars(self.mounts).items()}
        return {
            **vars(self),
            "command": list(self.command),
            "cwd": str(self.cwd),
            "mounts": mounts,
            "output": str(self.output),
            "env": dict(self.env),
            "limits": asdict(self.limits),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ScriptCommand:
        """Return the command of `to_json`."""
        mounts = Mounts(**{kind: tuple(map(Path, paths)) for kind, paths in values["mounts"].items()})
        return cls(
            **{
                **values,
                "command": tuple(values["command"]),
                "cwd": Path(values["cwd"]),
                "mounts": mounts,
                "output": Path(values["output"]),
                "limits": Limits(**values["limits"]),
            }
        )


@dataclass(frozen=True)
class Attempt:
    """One start of a job on a node, the first is number 1. `spent_s` are the seconds that earlier ones ran."""

    token: str
    number: int
    node: str
    spent_s: float


@dataclass(frozen=True)
class ScriptEnd:
    """How a script ended for good. `error` is why it could not be started; then there is no status."""

    status: ExitStatus | None
    node: str
    attempts: int
    error: str = ""


class JobFolder:
    """Reads and writes the files of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- the submitting process ------------------------------------------------------------------------------------

    def create(self, command: ScriptCommand) -> None:
        """Make the folder with the command.

        Raises:
            OSError: it exists or cannot be made.
        """
        self.path.mkdir(parents=True, mode=0o700)
        self._write(COMMAND_FILE, command.to_json())

    def read_command(self) -> ScriptCommand | None:
        """Return the command; None if there is none."""
        values = self._read(COMMAND_FILE)
        return ScriptCommand.from_json(values) if values else None

    def record_submission(self, engine: str, job_id: str) -> None:
        """Note the job id that an engine gave."""
        self._write(SUBMISSION_FILE, {"engine": engine, "job": job_id, "at": time.time()})

    def read_submission(self) -> tuple[str, str] | None:
        """Return the engine and the job id; None if they were never noted."""
        values = self._read(SUBMISSION_FILE)
        return (str(values["engine"]), str(values["job"])) if values else None

    def request_stop(self) -> None:
        """Ask the node to end the script at once."""
        with contextlib.suppress(OSError):
            (self.path / STOP_FILE).touch()

    def read_end(self) -> ScriptEnd | None:
        """Return how the script ended; None if it has not."""
        values = self._read(EXIT_FILE)
        if not values:
            return None
        status = values.get("status")
        return ScriptEnd(
            ExitStatus(int(status["code"]), status["reason"], float(status["wall_s"])) if status else None,
            str(values["node"]),
            int(values["attempts"]),
            str(values.get("error", "")),
        )

    def count_attempts(self) -> int:
        """Return how often the job was started on a node."""
        return int(self._read(OWNER_FILE).get("number", 0))

    # --- the node ----------------------------------------------------------------------------------------------------

    def is_stop_requested(self) -> bool:
        """Return whether the submitting process wants the script to end."""
        return (self.path / STOP_FILE).exists()

    def claim(self, lease_s: float, is_interrupted: Callable[[], bool]) -> Attempt | None:
        """Take the folder over; return None if the wait for an earlier attempt was interrupted, or another took over.

        Args:
            lease_s: seconds of silence after which the earlier attempt counts as dead.
        """
        earlier = self._read(OWNER_FILE)
        number, node = int(earlier.get("number", 0)) + 1, socket.gethostname()
        attempt = Attempt(uuid.uuid4().hex, number, node, 0.0)
        self._write(OWNER_FILE, {"token": attempt.token, "number": number, "node": node})
        if earlier and not self._wait_for_silence(earlier, lease_s, is_interrupted):
            return None
        if not self.owns(attempt):
            return None
        return Attempt(attempt.token, number, node, self._sum_spent_seconds(number))

    def _wait_for_silence(self, earlier: Mapping[str, Any], lease_s: float, is_interrupted: Callable[[], bool]) -> bool:
        """Wait until an attempt has ended or beat no more for `lease_s`; return False if interrupted.

        Beats are compared with one another, not with a clock of this machine.
        """
        ended = _attempt_file(int(earlier["number"]))
        last_beat, changed_at = self._read(HEARTBEAT_FILE), time.monotonic()
        while not (self.path / ended).exists() and time.monotonic() - changed_at < lease_s:
            if is_interrupted() or self.is_stop_requested():
                return False
            time.sleep(0.2)
            beat = self._read(HEARTBEAT_FILE)
            if beat != last_beat:
                last_beat, changed_at = beat, time.monotonic()
        if not (self.path / ended).exists():
            wall_s = float(last_beat.get("wall_s", 0.0)) if last_beat.get("token") == earlier["token"] else 0.0
            self._write(ended, {"node": earlier["node"], "wall_s": wall_s, "reason": "silent"})
        return True

    def _sum_spent_seconds(self, number: int) -> float:
        return sum(float(self._read(_attempt_file(n)).get("wall_s", 0.0)) for n in range(1, number))

    def owns(self, attempt: Attempt) -> bool:
        """Return whether no later attempt has taken the folder over."""
        return bool(self._read(OWNER_FILE).get("token") == attempt.token)

    def beat(self, attempt: Attempt, wall_s: float) -> None:
        """Say that an attempt is alive.

        Raises:
            OSError: the storage cannot be reached.
        """
        self._write(HEARTBEAT_FILE, {"token": attempt.token, "wall_s": round(wall_s, 1), "pid": os.getpid()})

    def end_attempt(self, attempt: Attempt, wall_s: float, reason: str) -> None:
        """Note that nothing of an attempt runs any more."""
        self._write(_attempt_file(attempt.number), {"node": attempt.node, "wall_s": wall_s, "reason": reason})

    def finish(self, attempt: Attempt, status: ExitStatus | None, error: str = "") -> None:
        """Note how the script ended for good."""
        values = asdict(status) if status else None
        if values:
            values["wall_s"] = round(values["wall_s"] + attempt.spent_s, 2)
        self._write(EXIT_FILE, {"status": values, "node": attempt.node, "attempts": attempt.number, "error": error})

    def set_aside_output(self, attempt: Attempt, output: Path) -> None:
        """Move the output of the attempt before this one into the folder, where people find it."""
        with contextlib.suppress(OSError):
            if attempt.number > 1:
                output.replace(self.path / f"output-{attempt.number - 1:03d}.log")

    # --- files -------------------------------------------------------------------------------------------------------

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        write_text_atomically(self.path / name, json.dumps(values, indent=1), is_private=True)

    def _read(self, name: str) -> dict[str, Any]:
        """Return the content of a file; empty if it is not there (yet)."""
        try:
            values = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}


def _attempt_file(number: int) -> str:
    return f"attempt-{number:03d}.json"


def make_exit_status(reason: ExitReason, wall_s: float = 0.0) -> ExitStatus:
    """Return the exit status of a script that was ended from outside."""
    return ExitStatus(137, reason, wall_s)
