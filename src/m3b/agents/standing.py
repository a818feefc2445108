"""Where an agent stood when its process ended, from the events that tell of it: what it goes on from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from m3b.agents.reasons import describe_script_failure
from m3b.agents.stuck import RepetitionDetector
from m3b.events import Event, MessageSent, PromptSent, ReplyReceived, ToolCalled, ToolReturned
from m3b.messages import ToolCall
from m3b.tools import ToolResult


@dataclass
class AgentState:
    """The state of an agent beside its conversation.

    Args:
        started_calls: calls of the last reply that were begun and never answered: nobody knows what they did.
        waiting_calls: calls of the last reply that were never begun.
        has_reflected: whether it was asked to look again.
        script_failed: whether the last script failed, and `script_error` why.
        unusable_replies: unusable replies in a row.
        lost_jobs: scripts that ran on in the background, which have ended with their process: number -> command.
    """

    iterations: int = 0
    started_calls: list[ToolCall] = field(default_factory=list)
    waiting_calls: list[ToolCall] = field(default_factory=list)
    has_reflected: bool = False
    repetitions: RepetitionDetector = field(default_factory=RepetitionDetector)
    script_failed: bool = False
    script_error: str = ""
    unusable_replies: int = 0
    lost_jobs: dict[int, str] = field(default_factory=dict)

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> AgentState:
        """What the events of one conversation lead to."""
        state = cls()
        for event in events:
            match event:
                case PromptSent():
                    state.has_reflected = False  # a new stage of a single agent
                case ReplyReceived():
                    state.started_calls, state.waiting_calls = [], list(event.calls)
                case ToolCalled():
                    state._apply_call(event)
                case ToolReturned():
                    state._apply_result(event)
                case MessageSent():
                    state._apply_message(event)
        return state

    def _apply_call(self, event: ToolCalled) -> None:
        self.unusable_replies = 0
        self.iterations = event.iteration or self.iterations
        matching_calls = [call for call in self.waiting_calls if call.id == event.id]
        self.started_calls += matching_calls[:1]
        self.waiting_calls = [call for call in self.waiting_calls if call.id != event.id]

    def _apply_result(self, event: ToolReturned) -> None:
        answered_call = next((call for call in (*self.started_calls, *self.waiting_calls) if call.id == event.id), None)
        self.started_calls = [call for call in self.started_calls if call.id != event.id]
        self.waiting_calls = [call for call in self.waiting_calls if call.id != event.id]
        facts = event.facts
        if event.name == "run_script" and "exit_code" in facts:
            self.script_failed = facts["exit_code"] != 0
            self.script_error = (
                describe_script_failure(ToolResult(event.text, event.is_error, facts)) if self.script_failed else ""
            )
        if isinstance(job := facts.get("job"), int):
            self.lost_jobs.pop(job, None)
            if facts.get("running") and answered_call is not None:
                self.lost_jobs[job] = str(answered_call.arguments.get("command") or f"job {job}")
        if answered_call is not None and not facts.get("running"):
            self.repetitions.observe(answered_call, event.text, bool(facts.get("malformed")))

    def _apply_message(self, event: MessageSent) -> None:
        self.iterations = event.iteration or self.iterations
        self.unusable_replies = self.unusable_replies + 1 if event.reason == "unusable" else 0
        self.has_reflected = self.has_reflected or event.reason == "reflection"
        self.repetitions.has_warned = self.repetitions.has_warned or event.reason == "circle"
