"""What an agent is told of a script that ended with the process of m3b, and of what it can go on from."""

from __future__ import annotations

import re

from m3b.agents.conversation import INTERRUPTED_NOTE
from m3b.messages import ToolCall
from m3b.run.folder import RunFolder
from m3b.tools import REPEATABLE
from m3b.untrusted import UnsafePathError, walk

LOG_FOLDER = "Logout"
COMPLETE_CHECKPOINT_PATTERN = re.compile(r"(?:^|/)checkpoint(?:-\d+/complete\.json|\.pt)$")
"""Files of the templates that say that a checkpoint was written to its end."""
TRAINING_COMMAND_PATTERN = re.compile(r"\bpython3?\s+train\.py\b")


def answer_interrupted_call(run: RunFolder, call: ToolCall) -> str:
    """The answer to a call that was begun and never answered; empty for one that does the same when it is run again."""
    if call.name in REPEATABLE:
        return ""
    command = str(call.arguments.get("command", "")) if call.name == "run_script" else ""
    return f"{INTERRUPTED_NOTE} {describe_training_resume(run, command)}".strip()


def describe_training_resume(run: RunFolder, command: str) -> str:
    """How a training that was interrupted goes on, where it left a checkpoint."""
    if not TRAINING_COMMAND_PATTERN.search(command) or not (checkpoint := _find_checkpoint(run)):
        return ""
    resume_command = (
        command
        if "--resume" in command
        else TRAINING_COMMAND_PATTERN.sub(lambda match: f"{match[0]} --resume", command, count=1)
    )
    return f"A checkpoint is there ({checkpoint}): `{resume_command}` goes on from it."


def _find_checkpoint(run: RunFolder) -> str:
    try:
        checkpoints = [
            entry.name
            for entry in walk(run.work, LOG_FOLDER)
            if entry.kind == "file" and COMPLETE_CHECKPOINT_PATTERN.search(entry.name)
        ]
    except (OSError, UnsafePathError):
        return ""
    return f"{LOG_FOLDER}/{checkpoints[-1].removesuffix('/complete.json')}" if checkpoints else ""
