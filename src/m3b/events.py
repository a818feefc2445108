"""The events of a run: what the journal keeps, the live view shows and `RunHandle.events` yields.

Each kind is a class of its own, so that `match` can distinguish them:

    match event:
        case ToolCalled(name="run_script", arguments=arguments): ...
        case RunEnded(result=result): ...

`event.kind` and `event.data` are the same as a name and plain JSON values.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from m3b.messages import ToolCall, Usage

MessageReason = Literal["", "answer", "circle", "reflection", "rejected", "unusable", "wrap_up"]
"""Why m3b sends a message to an agent: the user's answer, repeated calls, a reflection turn, a rejected artifact, an
unusable reply, the end of the budget. Empty if a journal does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a run.

    Args:
        role: the agent at work, empty between roles.
        at: seconds since 1970.
    """

    kind: ClassVar[str] = ""
    is_journaled: ClassVar[bool] = True
    """Whether the journal keeps events of this kind."""
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    role: str = ""
    at: float = field(default_factory=time.time)

    @property
    def data(self) -> dict[str, Any]:
        """The event's content as plain JSON values."""
        values = {name: getattr(self, name) for name in FIELDS_BY_KIND[self.kind]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def with_role(self, role: str) -> Self:
        """Return the same event for a role."""
        if not role:
            return self
        # `replace` takes twice as long, and this is called for every event of a run
        labelled_event = object.__new__(type(self))
        for name in FIELDS_BY_KIND[self.kind]:
            object.__setattr__(labelled_event, name, getattr(self, name))
        object.__setattr__(labelled_event, "at", self.at)
        object.__setattr__(labelled_event, "role", role)
        return labelled_event


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A process starts or resumes the work on the run.

    Args:
        sandbox: `name` and `level` of the sandbox that confines scripts from here on.
        notes: messages for the user before the work begins, e.g. that another sandbox confined the scripts before.
        train_minutes: minutes that training may take, to estimate when the run ends; 0 if unknown.
        record: digest of each entry of run.json (`m3b.run.record_digests`); empty in journals of early versions.
        origins: name of a data card -> where its folder was mirrored from (`m3b.remote.origin.Origin`).
    """

    kind: ClassVar[str] = "run_started"
    request: str
    id: str
    sandbox: dict[str, str]
    notes: tuple[str, ...] = ()
    train_minutes: float = 0.0
    record: dict[str, str] = field(default_factory=dict)
    origins: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoleStarted(Event):
    """An agent starts or is resumed."""

    kind: ClassVar[str] = "role_started"
    title: str
    llm: str


@dataclass(frozen=True, slots=True)
class PromptSent(Event):
    """The briefing of an agent at the start of its stage.

    Args:
        system: the system prompt; empty if the conversation has one already.
        facts: the briefing as data (`m3b.facts`).
    """

    kind: ClassVar[str] = "prompt"
    system: str
    text: str
    facts: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WaitingForModel(Event):
    """m3b waits for the provider."""

    kind: ClassVar[str] = "waiting"
    is_journaled: ClassVar[bool] = False
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplyDelta(Event):
    """A piece of a reply that is being streamed; an empty text discards all pieces before it."""

    kind: ClassVar[str] = "delta"
    is_journaled: ClassVar[bool] = False
    text: str


@dataclass(frozen=True, slots=True)
class ReplyReceived(Event):
    """A complete reply of a model; `stop` says why it ended."""

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
    """A tool starts to run.

    Args:
        cost: actions that it takes from the budget.
        iteration: number of the debug iteration that begins with it, from 1; 0 if none does.
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
    """The result of a tool: `text` for the model, `facts` for programs (`data["data"]` in JSON)."""

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
    """A message of m3b to the agent.

    Args:
        iteration: number of the debug iteration that begins with it; 0 if none does.
        facts: the message as data (`m3b.facts`).
    """

    kind: ClassVar[str] = "message"
    text: str
    reason: MessageReason = ""
    iteration: int = 0
    facts: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ArtifactChecked(Event):
    """The result of the check of an artifact.

    Args:
        faults: the issues in the words for the agent.
        reasons: the issues in the words for the user.
    """

    kind: ClassVar[str] = "check"
    accepted: bool
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArtifactAccepted(Event):
    """An artifact that a check accepted.

    Args:
        artifact: its kind; `m3b.agents.artifacts` has the classes.
        hashes: of its files, if it has any.
        remark: addition to the result at the end of the run.
    """

    kind: ClassVar[str] = "artifact"
    artifact: str
    value: dict[str, Any]
    hashes: dict[str, str] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True, slots=True)
class IndexAudited(Event):
    """Counts and findings of the audit of an index; `facts` is the same as data (`m3b.facts.AuditSummary`)."""

    kind: ClassVar[str] = "audit"
    summary: str
    findings: list[Any] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """m3b itself starts something that takes a while."""

    kind: ClassVar[str] = "stage"
    text: str


@dataclass(frozen=True, slots=True)
class NoteAdded(Event):
    """A note for later reading; `iteration` counts debug iterations in journals of format 1."""

    kind: ClassVar[str] = "note"
    text: str
    iteration: int = 0


@dataclass(frozen=True, slots=True)
class ModelDelivered(Event):
    """The model folder is written; `hashes` are the SHA-256 of all its files, including provenance.json."""

    kind: ClassVar[str] = "delivered"
    hashes: dict[str, str]


@dataclass(frozen=True, slots=True)
class TrainingAdded(Event):
    """More training of the delivered model starts; the next model, or that of an interrupted one, ends it.

    Args:
        number: of the delivered model from whose weights it starts, counted from 1.
    """

    kind: ClassVar[str] = "training_added"
    minutes: float
    number: int


@dataclass(frozen=True, slots=True)
class ModelsCompared(Event):
    """The model of an added training was compared with the delivered one on validation cases.

    Args:
        kept: which one is delivered: `new` or `earlier`.
        reason: a sentence for people.
        earlier, new: the validation metric of each, as `Measure.to_dict` returns it; empty if there is none.
    """

    kind: ClassVar[str] = "models_compared"
    kept: Literal["new", "earlier"]
    reason: str
    earlier: dict[str, Any] = field(default_factory=dict)
    new: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CandidateStarted(Event):
    """A candidate plan of a search starts to be trained.

    Args:
        number: of the candidate, counted from 1; 1 is the plan as it was before the search.
        rung: of the successive halving, counted from 0.
        minutes: of this training.
        source: `default`, `table`, `sampler` or `agent`.
        settings: by which it differs from the plan as it was, by dotted name.
    """

    kind: ClassVar[str] = "candidate_started"
    number: int
    rung: int
    minutes: float
    source: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CandidateMeasured(Event):
    """The training of a candidate plan has ended.

    Args:
        number, rung: as in `CandidateStarted`.
        seconds: from the start to the measured figure, in this process.
        value: the metric on the cases that it held out; None if it has none.
        problem: why it has none.
        rows: SHA-256 of the file with its measured cases.
        steps: that each of its networks was trained for, the fewest of several; 0 if unknown.
    """

    kind: ClassVar[str] = "candidate_measured"
    number: int
    rung: int
    seconds: float
    value: float | None = None
    problem: str = ""
    rows: str = ""
    steps: int = 0


@dataclass(frozen=True, slots=True)
class RoleEnded(Event):
    """An agent has ended; `status` is `done`, or how it failed."""

    kind: ClassVar[str] = "role_ended"
    status: str


@dataclass(frozen=True, slots=True)
class FilesRecorded(Event):
    """The state of the run's files just before `RunEnded`.

    Args:
        hashes: SHA-256 of ledger, audit, scores and other files that the result relies on.
        record: digest of each entry of run.json, as in `RunStarted`.
    """

    kind: ClassVar[str] = "files"
    hashes: dict[str, str]
    record: dict[str, str]


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
    IndexAudited, StepStarted, NoteAdded, CandidateStarted, CandidateMeasured, ModelDelivered, TrainingAdded, ModelsCompared,
    RoleEnded,
    FilesRecorded, RunEnded,
)  # fmt: skip
"""All classes of events, roughly in the order of a run."""

EVENT_CLASS_BY_KIND = {event_class.kind: event_class for event_class in EVENT_CLASSES}
EVENT_KINDS = tuple(EVENT_CLASS_BY_KIND)
UNJOURNALED_KINDS = tuple(event_class.kind for event_class in EVENT_CLASSES if not event_class.is_journaled)
"""Kinds of events that are shown but not journaled."""
FIELDS_BY_KIND = {
    event_class.kind: tuple(item.name for item in fields(event_class) if item.name not in ("role", "at"))
    for event_class in EVENT_CLASSES
}


def _field_values(instance: ToolCall | Usage) -> dict[str, Any]:
    """Return name -> value of the fields; `asdict` would copy every argument of a call deeply."""
    return {name: getattr(instance, name) for name in instance.__slots__}
