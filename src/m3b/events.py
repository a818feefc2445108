"""The events of a run: what the journal keeps, the live view shows and `RunHandle.events` yields.

Each kind is a class of its own, so that whoever takes events can tell them apart with `match`:

    match event:
        case Called(name="run_script", arguments=arguments): ...
        case RunEnded(result=result): ...

`event.kind` and `event.data` say the same as a name and plain JSON values.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from m3b.messages import ToolCall, Usage

MessageReason = Literal["", "answer", "circle", "reflection", "rejected", "unusable", "wrap_up"]
"""Why m3b speaks to an agent: the user's answer, a circle that the agent goes in, a reflection turn, a hand-over that is
not accepted, a reply that cannot be used, the end of the budget. Empty where a journal does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened.

    Args:
        role: the agent at work, empty between roles.
        at: seconds since the epoch.
    """

    kind: ClassVar[str] = ""
    is_journaled: ClassVar[bool] = True
    """Whether the journal keeps events of this kind."""
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    role: str = ""
    at: float = field(default_factory=time.time)

    @property
    def data(self) -> dict[str, Any]:
        """What happened, as plain JSON values."""
        values = {name: getattr(self, name) for name in FIELDS_BY_KIND[self.kind]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def with_role(self, role: str) -> Self:
        """The same event, of a role."""
        if not role:
            return self
        labelled_event = object.__new__(
            type(self)
        )  # `replace` takes twice as long, and every event of a run comes by here
        for name in FIELDS_BY_KIND[self.kind]:
            object.__setattr__(labelled_event, name, getattr(self, name))
        object.__setattr__(labelled_event, "at", self.at)
        object.__setattr__(labelled_event, "role", role)
        return labelled_event


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A process begins to work on the run, for the first time or again.

    Args:
        sandbox: `name` and `level` of what confines scripts from here on.
        notes: what the user is told before the work begins, e.g. that another sandbox confined the scripts before.
    """

    kind: ClassVar[str] = "run_started"
    request: str
    id: str
    sandbox: dict[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleStarted(Event):
    """An agent begins, or is taken up again."""

    kind: ClassVar[str] = "role_started"
    title: str
    llm: str


@dataclass(frozen=True, slots=True)
class PromptSent(Event):
    """What an agent is told when its stage begins; `system` is empty where the conversation has its system prompt. `facts`
    is the same as data (`m3b.facts`)."""

    kind: ClassVar[str] = "prompt"
    system: str
    text: str
    facts: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WaitingForModel(Event):
    """The provider is waited for."""

    kind: ClassVar[str] = "waiting"
    is_journaled: ClassVar[bool] = False
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplyDelta(Event):
    """A piece of a reply that is being written; an empty one voids those before it."""

    kind: ClassVar[str] = "delta"
    is_journaled: ClassVar[bool] = False
    text: str


@dataclass(frozen=True, slots=True)
class ReplyReceived(Event):
    """A model's whole reply; `stop` is why it ended there."""

    kind: ClassVar[str] = "reply"
    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: str = ""

    @property
    def data(self) -> dict[str, Any]:
        return {"text": self.text, "calls": [_field_values(call) for call in self.calls], "usage": _field_values(self.usage),
                "stop": self.stop}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolCalled(Event):
    """A tool begins to run.

    Args:
        cost: actions that it takes off the budget.
        iteration: the debug iteration that begins with it, counted from 1; 0 where none does.
    """

    kind: ClassVar[str] = "call"
    id: str
    name: str
    arguments: dict[str, Any]
    cost: int = 1
    iteration: int = 0


@dataclass(frozen=True, slots=True)
class ScriptOutput(Event):
    """The tail of what a running script has printed; job 0 is m3b's own."""

    kind: ClassVar[str] = "output"
    is_journaled: ClassVar[bool] = False
    job: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolReturned(Event):
    """What a tool answered: `text` for the model, `facts` for programs (`data["data"]` in JSON)."""

    kind: ClassVar[str] = "result"
    id: str
    name: str
    text: str
    is_error: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "text": self.text, "is_error": self.is_error, "data": self.facts}


@dataclass(frozen=True, slots=True)
class MessageSent(Event):
    """m3b speaks to the agent; `iteration` is the debug iteration that begins with it, 0 where none does. `facts` is the
    same as data (`m3b.facts`)."""

    kind: ClassVar[str] = "message"
    text: str
    reason: MessageReason = ""
    iteration: int = 0
    facts: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ArtifactChecked(Event):
    """The verdict on a hand-over: `faults` as the agent hears them, `reasons` the same in the user's words."""

    kind: ClassVar[str] = "check"
    accepted: bool
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArtifactAccepted(Event):
    """What a role handed over and a check accepted.

    Args:
        artifact: its kind; `m3b.agents.artifacts` has the classes.
        hashes: of its files, where it has any.
        remark: what the end of the run has to say of it.
    """

    kind: ClassVar[str] = "artifact"
    artifact: str
    value: dict[str, Any]
    hashes: dict[str, str] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True, slots=True)
class IndexAudited(Event):
    """What the audit of an index counted and found; `facts` is the same as data (`m3b.facts.AuditSummary`)."""

    kind: ClassVar[str] = "audit"
    summary: str
    findings: list[Any] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """m3b itself begins something that takes a while."""

    kind: ClassVar[str] = "stage"
    text: str


@dataclass(frozen=True, slots=True)
class NoteAdded(Event):
    """Something worth knowing afterwards; `iteration` counts debug iterations in journals of format 1."""

    kind: ClassVar[str] = "note"
    text: str
    iteration: int = 0


@dataclass(frozen=True, slots=True)
class ModelDelivered(Event):
    """The model folder is written; `hashes` are the SHA-256 of all its files, provenance.json among them."""

    kind: ClassVar[str] = "delivered"
    hashes: dict[str, str]


@dataclass(frozen=True, slots=True)
class RoleEnded(Event):
    """An agent is done, or how it failed."""

    kind: ClassVar[str] = "role_ended"
    status: str


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The process has ended its work on the run; `result` is `Result.to_json()`."""

    kind: ClassVar[str] = "run_ended"
    result: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        return self.result


EVENT_CLASSES: tuple[type[Event], ...] = (
    RunStarted, RoleStarted, PromptSent, WaitingForModel, ReplyDelta, ReplyReceived, ToolCalled, ScriptOutput,
    ToolReturned, MessageSent, ArtifactChecked, ArtifactAccepted,
    IndexAudited, StepStarted, NoteAdded, ModelDelivered, RoleEnded, RunEnded,
)  # fmt: skip
"""Every kind that occurs, in about the order in which a run meets them."""

EVENT_CLASS_BY_KIND = {one.kind: one for one in EVENT_CLASSES}
EVENT_KINDS = tuple(EVENT_CLASS_BY_KIND)
UNJOURNALED_KINDS = tuple(one.kind for one in EVENT_CLASSES if not one.is_journaled)
"""Kinds that are shown but not kept."""
FIELDS_BY_KIND = {one.kind: tuple(f.name for f in fields(one) if f.name not in ("role", "at")) for one in EVENT_CLASSES}


def _field_values(instance: ToolCall | Usage) -> dict[str, Any]:
    """By name; `asdict` would copy every argument of a call deeply."""
    return {name: getattr(instance, name) for name in instance.__slots__}
