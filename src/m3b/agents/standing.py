"""Where an agent stood when its process ended, from the events that tell of it: what it goes on from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from m3b.agents.reasons import cause
from m3b.agents.stuck import StuckDetector
from m3b.events import Briefed, Called, Event, Replied, Returned, Told
from m3b.messages import ToolCall
from m3b.tools import ToolResult


@dataclass
class Standing:
    """The state of an agent beside its conversation.

    Args:
        begun: calls of the last reply that were begun and never answered: nobody knows what they did.
        waiting: calls of the last reply that were never begun.
        reflected: whether it was asked to look again.
        failed_script: whether the last script failed, and `cause` why.
        odd_replies: unusable replies in a row.
        lost: scripts that ran on in the background, which have ended with their process: number -> command.
    """

    iterations: int = 0
    begun: list[ToolCall] = field(default_factory=list)
    waiting: list[ToolCall] = field(default_factory=list)
    reflected: bool = False
    stuck: StuckDetector = field(default_factory=StuckDetector)
    failed_script: bool = False
    cause: str = ""
    odd_replies: int = 0
    lost: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Standing:
        """What the events of one conversation lead to."""
        state = cls()
        for event in events:
            match event:
                case Briefed():
                    state.reflected = False  # a new stage of a single agent
                case Replied():
                    state.begun, state.waiting = [], list(event.calls)
                case Called():
                    state._call(event)
                case Returned():
                    state._result(event)
                case Told():
                    state._told(event)
        return state

    def _call(self, event: Called) -> None:
        self.odd_replies = 0
        self.iterations = event.iteration or self.iterations
        matching_calls = [call for call in self.waiting if call.id == event.id]
        self.begun += matching_calls[:1]
        self.waiting = [call for call in self.waiting if call.id != event.id]

    def _result(self, event: Returned) -> None:
        answered_call = next((call for call in (*self.begun, *self.waiting) if call.id == event.id), None)
        self.begun = [call for call in self.begun if call.id != event.id]
        self.waiting = [call for call in self.waiting if call.id != event.id]
        facts = event.facts
        if event.name == "run_script" and "exit_code" in facts:
            self.failed_script = facts["exit_code"] != 0
            self.cause = cause(ToolResult(event.text, event.is_error, facts)) if self.failed_script else ""
        if isinstance(job := facts.get("job"), int):
            self.lost.pop(job, None)
            if facts.get("running") and answered_call is not None:
                self.lost[job] = str(answered_call.arguments.get("command") or f"job {job}")
        if answered_call is not None and not facts.get("running"):
            self.stuck.note(answered_call, event.text, bool(facts.get("malformed")))

    def _told(self, event: Told) -> None:
        self.iterations = event.iteration or self.iterations
        self.odd_replies = self.odd_replies + 1 if event.reason == "unusable" else 0
        self.reflected = self.reflected or event.reason == "reflection"
        self.stuck.warned = self.stuck.warned or event.reason == "circle"
