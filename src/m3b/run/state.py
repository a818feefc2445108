"""The state of a run, folded from its events, in the same way live and from a journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from m3b.agents.agent_state import RoleUsage
from m3b.agents.artifacts import DataIndex, Selection, TrainedModel, from_json, kind_of
from m3b.errors import UsageError
from m3b.events import (
    ArtifactAccepted,
    ArtifactChecked,
    CandidateMeasured,
    CandidateStarted,
    Event,
    IndexAudited,
    MessageSent,
    ModelDelivered,
    ModelsCompared,
    NoteAdded,
    PromptSent,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    TrainingAdded,
)
from m3b.facts import AuditSummary
from m3b.messages import Usage
from m3b.run.result import DELIVERED_STATUSES

A = TypeVar("A")
MODEL_KIND = kind_of(TrainedModel)


@dataclass(frozen=True)
class Delivery:
    """A model that was delivered.

    Args:
        model: the artifact, as the journal holds it.
        hashes: of the files of the model folder.
    """

    model: dict[str, Any]
    hashes: dict[str, str]


@dataclass
class RunState:
    """The state of a run, folded from its events.

    Args:
        artifacts: kind -> last accepted artifact, as the journal holds it.
        dialogue: role -> events from which its conversation can be restored.
        closing_remarks: role -> its text with the accepted artifact.
        audit_text: summary of the last audit of the index.
        remark: addition to the reason in the Result, on how the model was made.
    """

    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    role_usage: dict[str, RoleUsage] = field(default_factory=dict)
    dialogue: dict[str, list[Event]] = field(default_factory=dict)
    closing_remarks: dict[str, list[str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    audit_text: str = ""
    remark: str = ""
    worked_seconds: float = 0.0
    sandboxes: dict[str, str] = field(default_factory=dict)
    """Name -> level of each sandbox that confined scripts; the last one is that of the latest session."""
    deliveries: list[Delivery] = field(default_factory=list)
    """The delivered models in their order. The locked test cases were scored for each of them."""
    delivered_result: dict[str, Any] = field(default_factory=dict)
    """The result of the run that delivered the last of them."""
    added_training: TrainingAdded | None = None
    """The added training at work."""
    comparison: ModelsCompared | None = None
    """The result of the last added training."""
    search_events: list[CandidateStarted | CandidateMeasured] = field(default_factory=list)
    """The candidates of a search over plans: each start and each end, in their order."""
    _started_at: float = 0.0
    _last_event_at: float = 0.0
    _audit_event: IndexAudited | None = None
    _parsed_artifacts: dict[str, Any] = field(default_factory=dict)

    @property
    def actions(self) -> int:
        return sum(usage.actions for usage in self.role_usage.values())

    @property
    def iterations(self) -> int:
        return sum(usage.iterations for usage in self.role_usage.values())

    def get_artifact(self, artifact_class: type[A]) -> A:
        """Return the artifact of an earlier stage.

        Raises:
            LookupError: there is none; a stage names the artifacts that it needs in `required_artifacts`.
        """
        artifact = self.find_artifact(artifact_class)
        if artifact is None:
            raise LookupError(
                f"no stage has handed over a {artifact_class.__name__} yet; a stage names in `required_artifacts` what it takes"
            )
        return artifact

    def find_artifact(self, artifact_class: type[A]) -> A | None:
        """Return the artifact of a class; None if there is none yet.

        Raises:
            UsageError: the journal holds it in a form that does not fit this class.
        """
        kind = kind_of(artifact_class)
        if kind not in self.artifacts:
            return None
        if not isinstance(self._parsed_artifacts.get(kind), artifact_class):
            self._parsed_artifacts[kind] = _parse_artifact(artifact_class, kind, self.artifacts[kind])
        artifact: A = self._parsed_artifacts[kind]
        return artifact

    @property
    def test_looks(self) -> int:
        """Number of models whose scores on the locked test cases were computed, including the present one."""
        return len(self.deliveries) + self.has_undelivered_model

    @property
    def has_undelivered_model(self) -> bool:
        """Whether the last accepted model is not delivered yet."""
        model = self.artifacts.get(MODEL_KIND)
        return model is not None and (not self.deliveries or self.deliveries[-1].model != model)

    @property
    def selection(self) -> Selection | None:
        return self.find_artifact(Selection)

    @property
    def index(self) -> DataIndex | None:
        return self.find_artifact(DataIndex)

    @property
    def audit_summary(self) -> AuditSummary:
        """Counts and findings of the last audit of the index, as data."""
        audit_event = self._audit_event
        return (
            AuditSummary.model_validate({**audit_event.facts, "findings": audit_event.findings})
            if audit_event
            else AuditSummary()
        )

    def _record_sandbox(self, sandbox: object) -> None:
        if isinstance(sandbox, dict) and isinstance(name := sandbox.get("name"), str):
            self.sandboxes.pop(name, None)
            self.sandboxes[name] = str(sandbox.get("level", ""))

    def apply_event(self, event: Event) -> None:
        """Fold an event into the state."""
        match event:
            case RunStarted():
                self._record_sandbox(event.sandbox)
                if self._started_at:  # a resumed run: the time between crash and resume does not count
                    self.worked_seconds += max(0.0, self._last_event_at - self._started_at)
                self._started_at = event.at
            case RoleStarted():
                self._get_role_usage(event).status = "working"
            case RoleEnded():
                self._get_role_usage(event).status = event.status
            case ToolCalled():
                self._get_role_usage(event).actions += event.cost
            case ReplyReceived():
                self._add_usage(event)
            case ArtifactChecked(accepted=True):
                dialogue_events = self.dialogue.get(event.role, [])
                if dialogue_events and isinstance(dialogue_events[-1], ReplyReceived):
                    # a reflection replaces the remark before it
                    self.closing_remarks[event.role] = [dialogue_events[-1].text.strip()]
            case IndexAudited():
                self.audit_text = event.summary
                self._audit_event = event
            case ArtifactAccepted():
                self.artifacts[event.artifact] = event.value
                self._parsed_artifacts.pop(event.artifact, None)
                self.remark = event.remark or self.remark
                if event.artifact == MODEL_KIND:
                    self.added_training = None
            case (
                CandidateStarted()
                | CandidateMeasured()
                | TrainingAdded()
                | ModelsCompared()
                | ModelDelivered()
                | RunEnded()
            ):
                self._apply_model_event(event)
        if isinstance(event, ToolCalled | MessageSent | NoteAdded) and event.iteration:
            self._get_role_usage(event).iterations = event.iteration
        if isinstance(event, PromptSent | ToolCalled | ReplyReceived | ToolReturned | MessageSent):
            self.dialogue.setdefault(event.role, []).append(event)
        self._last_event_at = event.at

    def _apply_model_event(
        self, event: CandidateStarted | CandidateMeasured | TrainingAdded | ModelsCompared | ModelDelivered | RunEnded
    ) -> None:
        match event:
            case CandidateStarted() | CandidateMeasured():
                self.search_events.append(event)
            case TrainingAdded():
                self.added_training = event
            case ModelsCompared():
                self.comparison = event
                if event.kept == "earlier":
                    self.added_training = None
            case ModelDelivered() if MODEL_KIND in self.artifacts:
                if not self.has_undelivered_model:  # the same model, delivered again after a crash
                    self.deliveries.pop()
                self.deliveries.append(Delivery(self.artifacts[MODEL_KIND], event.hashes))
                self.delivered_result = {}
            case RunEnded() if self.deliveries and not self.delivered_result:
                self.delivered_result = event.result if event.result.get("status") in DELIVERED_STATUSES else {}

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> RunState:
        """Return the state after the events of an earlier process."""
        state = cls()
        for event in events:
            state.apply_event(event)
        state.worked_seconds += max(0.0, state._last_event_at - state._started_at) if state._started_at else 0.0
        state._started_at = 0.0
        return state

    def _get_role_usage(self, event: Event) -> RoleUsage:
        return self.role_usage.setdefault(event.role, RoleUsage())

    def _add_usage(self, event: ReplyReceived) -> None:
        self.usage = self.usage + event.usage
        role_usage = self._get_role_usage(event)
        role_usage.input_tokens += event.usage.input_tokens
        role_usage.output_tokens += event.usage.output_tokens


def _parse_artifact(artifact_class: type[A], kind: str, value: dict[str, Any]) -> A:
    try:
        return from_json(artifact_class, value)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"The journal holds a {kind!r} that this m3b cannot read as {artifact_class.__name__} ({error!r}). Go on with the version "
            "that wrote it (`versions` in run.json), or start a new run."
        ) from error
