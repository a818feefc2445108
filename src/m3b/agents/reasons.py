"""Why a role ended without a hand-over, in the voice of the person who started the run.

A check and the loop speak to the agent: which file to write, which tool to call. Whoever reads a Result cannot do any of
that; they are told what was found, where, and what they can do themselves.
"""

from __future__ import annotations

import re
from textwrap import shorten

from m3b.agents.roles import FailureMessage
from m3b.tools import ToolResult

MAX_OUTPUT_LINES = 4
"""So many lines at the end of a script's output are looked at: it says there what it found and why it stopped."""
MAX_QUOTE_CHARS = 500
"""Characters of a script's words, or of an agent's, in a reason."""
_AGENT_ONLY_PATTERN = re.compile(r"(?:^|[\s(`])--[a-z]|Datapath/|resources/|\bYour reply\b|\bReply with\b")
"""What only an agent can act on: options of scripts and files of the working directory."""


def explain_failure(failure_message: FailureMessage, *findings: str, iterations: int = 0) -> str:
    """One text: what was not done, what was found, and what to do next.

    Args:
        found: sentences; empty ones are left out.
        iterations: debug iterations that were spent on it.
    """
    after = f", after {iterations} debug iteration{'s' if iterations != 1 else ''}" if iterations else ""
    return " ".join(
        _end_sentence(part) for part in (f"{failure_message.summary}{after}", *findings, failure_message.advice) if part
    )


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", '"')) else f"{text}."


def extract_last_line(text: str) -> str:
    """The line that names the error, of a traceback or of any output."""
    lines = text.strip().splitlines()
    return shorten(lines[-1], MAX_QUOTE_CHARS, placeholder=" ...") if lines else ""


def describe_script_failure(result: ToolResult) -> str:
    """The sentence about a failed script: what it said at its end, without what only its caller can act on."""
    error = str(result.data.get("error") or "").strip()
    if result.data.get("reason") not in (None, "exit"):
        output_text = result.text.splitlines()[0]
    elif error:
        output_text = extract_last_line(error)
    else:
        body = result.text.partition(" ---\n")[2]
        lines = [line.strip() for line in body.splitlines() if line.strip()][-MAX_OUTPUT_LINES:]
        output_text = "; ".join(line for line in map(strip_agent_instructions, lines) if line)
    return (
        f'The last script said: "{shorten(output_text, MAX_QUOTE_CHARS, placeholder=" ...")}"'
        if output_text.strip()
        else ""
    )


def quote_agent(closing_text: str) -> str:
    """The sentence with an agent's own words, or nothing."""
    text = shorten(" ".join(closing_text.split()), MAX_QUOTE_CHARS, placeholder=" ...")
    return f'The agent said: "{text}"' if text else ""


def strip_agent_instructions(text: str) -> str:
    """A text without the sentences that only an agent can act on."""
    sentences = re.split(r"(?<=[.!?;])\s+", text.strip())
    return " ".join(sentence for sentence in sentences if not _AGENT_ONLY_PATTERN.search(sentence))
