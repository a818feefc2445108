"""What an agent is told of a script that ended with the process of m3b, and of what it can go on from."""

from __future__ import annotations

import re

from m3b.agents.conversation import INTERRUPTED
from m3b.messages import ToolCall
from m3b.run.folder import Run
from m3b.tools import REPEATABLE
from m3b.untrusted import Unsafe, walk

LOGOUT = "Logout"
WHOLE = re.compile(r"(?:^|/)checkpoint(?:-\d+/complete\.json|\.pt)$")
"""Files of the templates that say that a checkpoint was written to its end."""
TRAINING = re.compile(r"\bpython3?\s+train\.py\b")


def told(run: Run, call: ToolCall) -> str:
    """The answer to a call that was begun and never answered; empty for one that does the same when it is run again."""
    if call.name in REPEATABLE:
        return ""
    command = str(call.arguments.get("command", "")) if call.name == "run_script" else ""
    return f"{INTERRUPTED} {going_on(run, command)}".strip()


def going_on(run: Run, command: str) -> str:
    """How a training that was interrupted goes on, where it left a checkpoint."""
    if not TRAINING.search(command) or not (checkpoint := _find_checkpoint(run)):
        return ""
    resume_command = (
        command if "--resume" in command else TRAINING.sub(lambda match: f"{match[0]} --resume", command, count=1)
    )
    return f"A checkpoint is there ({checkpoint}): `{resume_command}` goes on from it."


def _find_checkpoint(run: Run) -> str:
    try:
        checkpoints = [
            entry.name for entry in walk(run.work, LOGOUT) if entry.kind == "file" and WHOLE.search(entry.name)
        ]
    except (OSError, Unsafe):
        return ""
    return f"{LOGOUT}/{checkpoints[-1].removesuffix('/complete.json')}" if checkpoints else ""
