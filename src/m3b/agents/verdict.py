"""What a check says of a hand-over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from m3b.briefs import Rejection
from m3b.errors import RunEnd


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a hand-over, in two voices.

    Args:
        agent: for the role that shall fix it: what was found, and what to do about it in the working directory.
        user: for the person who reads why the run ended, if nobody fixes it: what was found and where, without files and
            commands that are the agents' alone. Empty where `agent` says just that.
        code: which finding of the audit it is, where it is one.
        absent: classes that may be dropped, where the finding says so.
    """

    agent: str
    user: str = ""
    code: str = ""
    absent: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """What a person is told."""
        return self.user or self.agent


@dataclass(frozen=True)
class Verdict:
    """Accepted when there are no `findings`, and there is nothing to be said.

    Args:
        findings: what must change.
        warnings: what may be improved; shown in the reflection turn.
        end: how the run ends if the role cannot fix the faults; None is an ordinary failure.
        fatal: True when trying again cannot help, so that the run ends at once.
        said: what the agent has to hear before it decides, such as the user's answer; no fault, and no debug iteration.
        facts: the same as data.
        artifact: what was handed over, when accepted.
    """

    findings: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()
    end: type[RunEnd] | None = None
    fatal: bool = False
    said: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    artifact: Any = field(default=None, compare=False)

    @property
    def accepted(self) -> bool:
        return not self.findings and not self.said

    @property
    def faults(self) -> tuple[str, ...]:
        """What must change, in the agent's voice."""
        return tuple(issue.agent for issue in self.findings)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What must change, in the user's voice."""
        return tuple(issue.told for issue in self.findings)

    def rejection(self) -> Rejection:
        """What must change, as data."""
        codes = tuple(issue.code for issue in self.findings if issue.code)
        absent_classes = tuple(name for issue in self.findings for name in issue.absent)
        return Rejection(
            faults=self.faults, reasons=self.reasons, codes=codes, absent=absent_classes, warnings=self.warnings
        )


def rejected(*faults: Fault | str, end: type[RunEnd] | None = None, fatal: bool = False) -> Verdict:
    """A verdict that names faults; a text is one that both voices share."""
    issues = tuple(Fault(message) if isinstance(message, str) else message for message in faults)
    return Verdict(issues, end=end, fatal=fatal)


def answered(said: str, facts: Mapping[str, Any] = MappingProxyType({})) -> Verdict:
    """A verdict that passes on what the user said, in words and as data."""
    return Verdict(said=said, facts=facts)


def accepted(artifact: Any, *warnings: str) -> Verdict:
    """A verdict that carries the artifact."""
    return Verdict(warnings=tuple(warnings), artifact=artifact)
