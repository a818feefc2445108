"""The result of a check of an artifact: accepted, or its issues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import shorten
from types import MappingProxyType
from typing import Any

from m3b.agents.roles import FailureMessage
from m3b.errors import RunEnd
from m3b.facts import Rejection
from m3b.tools import ToolResult

MAX_OUTPUT_LINES = 4
"""Number of lines at the end of a script's output that are quoted, since they usually say why it stopped."""
MAX_QUOTE_CHARS = 500
"""Maximum length of a quotation of a script or an agent in a reason."""
_AGENT_ONLY_PATTERN = re.compile(r"(?:^|[\s(`])--[a-z]|Datapath/|resources/|\bYour reply\b|\bReply with\b")
"""Text that only an agent can act on: options of scripts and files of the working directory."""
_REFUSED_SETTING_PATTERN = re.compile(r"^--set \S+: ")
"""Beginning of the line by which plan.py refuses a setting, before the reason."""


def explain_failure(failure_message: FailureMessage, *findings: str, iterations: int = 0) -> str:
    """Return one text: what was not done, what was found, and what to do next.

    Args:
        findings: sentences; empty ones are omitted.
        iterations: number of debug iterations that were spent on it.
    """
    after = f", after {iterations} debug iteration{'s' if iterations != 1 else ''}" if iterations else ""
    return " ".join(
        _end_sentence(part) for part in (f"{failure_message.summary}{after}", *findings, failure_message.advice) if part
    )


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", '"')) else f"{text}."


def extract_last_line(text: str) -> str:
    """Return the last line of a traceback or any output, which names the error."""
    lines = text.strip().splitlines()
    return shorten(lines[-1], MAX_QUOTE_CHARS, placeholder=" ...") if lines else ""


def describe_script_failure(result: ToolResult) -> str:
    """Return the sentence on a failed script: the end of its output, without what only its caller can act on."""
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
    """Return the sentence that quotes an agent's closing text; '' if it is empty."""
    text = shorten(" ".join(closing_text.split()), MAX_QUOTE_CHARS, placeholder=" ...")
    return f'The agent said: "{text}"' if text else ""


def strip_agent_instructions(text: str) -> str:
    """Return a text without the sentences that only an agent can act on."""
    sentences = re.split(r"(?<=[.!?;])\s+", _REFUSED_SETTING_PATTERN.sub("", text.strip()))
    return " ".join(sentence for sentence in sentences if not _AGENT_ONLY_PATTERN.search(sentence))


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong with an artifact, with a message for the agent and one for the user.

    Args:
        agent_message: for the role that should fix it: what was found, and what to do about it in the working
            directory.
        user_message: for the person who reads why the run ended: what was found and where, without files and commands
            that only agents use. Empty if `agent_message` serves for both.
        code: the issue for programs, such as the code of an audit finding; empty if it has none.
        absent_classes: classes that may be dropped, according to the finding.
    """

    agent_message: str
    user_message: str = ""
    code: str = ""
    absent_classes: tuple[str, ...] = ()

    @property
    def message_for_user(self) -> str:
        """The message for a person."""
        return self.user_message or self.agent_message


@dataclass(frozen=True)
class CheckResult:
    """The result of a check; accepted if there are no `issues` and no `reply`.

    Args:
        issues: what must change.
        warnings: what may be improved; shown in the reflection turn.
        end_error: how the run ends if the role cannot fix the issues; None is an ordinary failure.
        is_fatal: True if another try cannot help, so that the run ends at once.
        reply: what the agent must be told before it decides, such as the user's answer; this is no issue and costs no
            debug iteration.
        facts: the reply as data.
        artifact: the artifact, if it is accepted.
    """

    issues: tuple[Issue, ...] = ()
    warnings: tuple[str, ...] = ()
    end_error: type[RunEnd] | None = None
    is_fatal: bool = False
    reply: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    artifact: Any = field(default=None, compare=False)

    @property
    def is_accepted(self) -> bool:
        return not self.issues and not self.reply

    @property
    def agent_messages(self) -> tuple[str, ...]:
        """The messages of all issues for the agent."""
        return tuple(issue.agent_message for issue in self.issues)

    @property
    def user_messages(self) -> tuple[str, ...]:
        """The messages of all issues for the user."""
        return tuple(issue.message_for_user for issue in self.issues)

    def to_rejection(self) -> Rejection:
        """Return the issues as data."""
        codes = tuple(issue.code for issue in self.issues if issue.code)
        absent_classes = tuple(name for issue in self.issues for name in issue.absent_classes)
        return Rejection(
            faults=self.agent_messages,
            reasons=self.user_messages,
            codes=codes,
            absent=absent_classes,
            warnings=self.warnings,
        )


def reject(*messages: Issue | str, end_error: type[RunEnd] | None = None, is_fatal: bool = False) -> CheckResult:
    """Return a rejection with issues; a string is an issue with the same message for agent and user."""
    issues = tuple(Issue(message) if isinstance(message, str) else message for message in messages)
    return CheckResult(issues, end_error=end_error, is_fatal=is_fatal)


def relay_answer(reply: str, facts: Mapping[str, Any] = MappingProxyType({})) -> CheckResult:
    """Return a check result that passes on the user's answer, in words and as data."""
    return CheckResult(reply=reply, facts=facts)


def accept(artifact: Any, *warnings: str) -> CheckResult:
    """Return a check result that accepts the artifact."""
    return CheckResult(warnings=tuple(warnings), artifact=artifact)
