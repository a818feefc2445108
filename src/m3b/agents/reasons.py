"""Why a role ended without a hand-over, in the voice of the person who started the run.

A check and the loop speak to the agent: which file to write, which tool to call. Whoever reads a Result cannot do any of
that; they are told what was found, where, and what they can do themselves.
"""

from __future__ import annotations

import re
from textwrap import shorten

from m3b.agents.roles import Duty
from m3b.tools import ToolResult

LAST_LINES = 4
"""So many lines at the end of a script's output are looked at: it says there what it found and why it stopped."""
MOST = 500
"""Characters of a script's words, or of an agent's, in a reason."""
_AGENT_ONLY_PATTERN = re.compile(r"(?:^|[\s(`])--[a-z]|Datapath/|resources/|\bYour reply\b|\bReply with\b")
"""What only an agent can act on: options of scripts and files of the working directory."""


def why(duty: Duty, *found: str, rounds: int = 0) -> str:
    """One text: what was not done, what was found, and what to do next.

    Args:
        found: sentences; empty ones are left out.
        rounds: debug iterations that were spent on it.
    """
    after = f", after {rounds} debug iteration{'s' if rounds != 1 else ''}" if rounds else ""
    return " ".join(_closed(part) for part in (f"{duty.failed}{after}", *found, duty.advice) if part)


def _closed(text: str) -> str:
    return text if text.endswith((".", "!", "?", '"')) else f"{text}."


def last_line(text: str) -> str:
    """The line that names the error, of a traceback or of any output."""
    lines = text.strip().splitlines()
    return shorten(lines[-1], MOST, placeholder=" ...") if lines else ""


def cause(result: ToolResult) -> str:
    """The sentence about a failed script: what it said at its end, without what only its caller can act on."""
    error = str(result.data.get("error") or "").strip()
    if result.data.get("reason") not in (None, "exit"):
        output_text = result.text.splitlines()[0]
    elif error:
        output_text = last_line(error)
    else:
        body = result.text.partition(" ---\n")[2]
        lines = [line.strip() for line in body.splitlines() if line.strip()][-LAST_LINES:]
        output_text = "; ".join(line for line in map(for_people, lines) if line)
    return f'The last script said: "{shorten(output_text, MOST, placeholder=" ...")}"' if output_text.strip() else ""


def quoted(said: str) -> str:
    """The sentence with an agent's own words, or nothing."""
    text = shorten(" ".join(said.split()), MOST, placeholder=" ...")
    return f'The agent said: "{text}"' if text else ""


def for_people(text: str) -> str:
    """A text without the sentences that only an agent can act on."""
    sentences = re.split(r"(?<=[.!?;])\s+", text.strip())
    return " ".join(sentence for sentence in sentences if not _AGENT_ONLY_PATTERN.search(sentence))
