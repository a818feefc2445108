"""What a check says of a hand-over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from m3b.briefs import Rejection
from m3b.errors import RunEnd


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong with a hand-over, in two voices.

    Args:
        agent_message: for the role that shall fix it: what was found, and what to do about it in the working directory.
        user_message: for the person who reads why the run ended, if nobody fixes it: what was found and where, without files and
            commands that are the agents' alone. Empty where `agent_message` says just that.
        code: which finding of the audit it is, where it is one.
        absent_classes: classes that may be dropped, where the finding says so.
    """

    agent_message: str
    user_message: str = ""
    code: str = ""
    absent_classes: tuple[str, ...] = ()

    @property
    def message_for_user(self) -> str:
        """What a person is told."""
        return self.user_message or self.agent_message


@dataclass(frozen=True)
class CheckResult:
    """Accepted when there are no `issues`, and there is nothing to be said.

    Args:
        issues: what must change.
        warnings: what may be improved; shown in the reflection turn.
        end_error: how the run ends if the role cannot fix the faults; None is an ordinary failure.
        is_fatal: True when trying again cannot help, so that the run ends at once.
        reply: what the agent has to hear before it decides, such as the user's answer; no fault, and no debug iteration.
        facts: the same as data.
        artifact: what was handed over, when accepted.
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
        """What must change, in the agent's voice."""
        return tuple(issue.agent_message for issue in self.issues)

    @property
    def user_messages(self) -> tuple[str, ...]:
        """What must change, in the user's voice."""
        return tuple(issue.message_for_user for issue in self.issues)

    def to_rejection(self) -> Rejection:
        """What must change, as data."""
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
    """A verdict that names faults; a text is one that both voices share."""
    issues = tuple(Issue(message) if isinstance(message, str) else message for message in messages)
    return CheckResult(issues, end_error=end_error, is_fatal=is_fatal)


def relay_answer(reply: str, facts: Mapping[str, Any] = MappingProxyType({})) -> CheckResult:
    """A verdict that passes on what the user said, in words and as data."""
    return CheckResult(reply=reply, facts=facts)


def accept(artifact: Any, *warnings: str) -> CheckResult:
    """A verdict that carries the artifact."""
    return CheckResult(warnings=tuple(warnings), artifact=artifact)
