"""What has happened in a run so far, folded from its events: the same live and from a journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from m3b.agents.artifacts import DataIndex, Selection, from_json, kind_of
from m3b.errors import WrongUse
from m3b.events import (
    Audited,
    Briefed,
    Called,
    Checked,
    Event,
    HandedOver,
    Noted,
    Replied,
    Returned,
    RoleEnded,
    RoleStarted,
    RunStarted,
    Told,
)
from m3b.messages import Usage
from m3b.summaries import AuditSummary

A = TypeVar("A")


@dataclass
class RoleTally:
    """What one role has used; `status` is `working`, `done`, or how it failed."""

    status: str = "working"
    actions: int = 0
    iterations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class History:
    """State of a run as its events tell it.

    `artifacts` holds what was handed over last of each kind, as the journal does; `dialogue`, a role, the events from which
    its conversation can be restored; `closing` what it said with a hand-over that was accepted; `audit` what the audit of the
    index said last; `remark` what the Result has to say of how the model came to be.
    """

    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    roles: dict[str, RoleTally] = field(default_factory=dict)
    dialogue: dict[str, list[Event]] = field(default_factory=dict)
    closing: dict[str, list[str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    audit: str = ""
    remark: str = ""
    seconds: float = 0.0
    sandboxes: dict[str, str] = field(default_factory=dict)
    """Name of each sandbox that confined scripts -> its level; the last is that of the latest session."""
    _started: float = 0.0
    _last: float = 0.0
    _audited: Audited | None = None
    _read: dict[str, Any] = field(default_factory=dict)

    @property
    def actions(self) -> int:
        return sum(usage.actions for usage in self.roles.values())

    @property
    def iterations(self) -> int:
        return sum(usage.iterations for usage in self.roles.values())

    def made(self, of: type[A]) -> A | None:
        """What was handed over of a class; None where nothing was yet.

        Raises:
            WrongUse: the journal has it in a form that this class does not have.
        """
        kind = kind_of(of)
        if kind not in self.artifacts:
            return None
        if not isinstance(self._read.get(kind), of):
            self._read[kind] = _read(of, kind, self.artifacts[kind])
        artifact: A = self._read[kind]
        return artifact

    @property
    def selection(self) -> Selection | None:
        return self.made(Selection)

    @property
    def index(self) -> DataIndex | None:
        return self.made(DataIndex)

    @property
    def audited(self) -> AuditSummary:
        """What the audit of the index counted and found last, as data."""
        audit_event = self._audited
        return (
            AuditSummary.model_validate({**audit_event.facts, "findings": audit_event.findings})
            if audit_event
            else AuditSummary()
        )

    def _confined_by(self, sandbox: object) -> None:
        if isinstance(sandbox, dict) and isinstance(name := sandbox.get("name"), str):
            self.sandboxes.pop(name, None)
            self.sandboxes[name] = str(sandbox.get("level", ""))

    def take(self, event: Event) -> None:
        """Fold one event in."""
        match event:
            case RunStarted():
                self._confined_by(event.sandbox)
                if self._started:  # a resumed run: the time between crash and resume was not worked
                    self.seconds += max(0.0, self._last - self._started)
                self._started = event.at
            case RoleStarted():
                self._of(event).status = "working"
            case RoleEnded():
                self._of(event).status = event.status
            case Called():
                self._of(event).actions += event.cost
            case Replied():
                self._add_usage(event)
            case Checked(accepted=True):
                dialogue_events = self.dialogue.get(event.role, [])
                if dialogue_events and isinstance(dialogue_events[-1], Replied):
                    self.closing[event.role] = [
                        dialogue_events[-1].text.strip()
                    ]  # a reflection corrects what came before
            case Audited():
                self.audit = event.summary
                self._audited = event
            case HandedOver():
                self.artifacts[event.artifact] = event.value
                self._read.pop(event.artifact, None)
                self.remark = event.remark or self.remark
        if isinstance(event, Called | Told | Noted) and event.iteration:
            self._of(event).iterations = event.iteration
        if isinstance(event, Briefed | Called | Replied | Returned | Told):
            self.dialogue.setdefault(event.role, []).append(event)
        self._last = event.at

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """The state after these events, which another process told."""
        state = cls()
        for event in events:
            state.take(event)
        state.seconds += max(0.0, state._last - state._started) if state._started else 0.0
        state._started = 0.0
        return state

    def _of(self, event: Event) -> RoleTally:
        return self.roles.setdefault(event.role, RoleTally())

    def _add_usage(self, event: Replied) -> None:
        self.usage = self.usage + event.usage
        role_usage = self._of(event)
        role_usage.input_tokens += event.usage.input_tokens
        role_usage.output_tokens += event.usage.output_tokens

    def roles_json(self) -> dict[str, dict[str, Any]]:
        return {name: usage.to_json() for name, usage in self.roles.items()}


def _read(of: type[A], kind: str, value: dict[str, Any]) -> A:
    try:
        return from_json(of, value)
    except (KeyError, TypeError, ValueError) as error:
        raise WrongUse(
            f"The journal holds a {kind!r} that this m3b cannot read as {of.__name__} ({error!r}). Go on with the version "
            "that wrote it (`versions` in run.json), or start a new run."
        ) from error
