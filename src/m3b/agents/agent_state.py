"""The state of an agent when its process ended, folded from its events, so that a resumed run can continue."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from m3b.agents.check_result import describe_script_failure
from m3b.events import Event, MessageSent, PromptSent, ReplyReceived, ToolCalled, ToolReturned
from m3b.messages import ToolCall
from m3b.tools import ToolResult

MAX_SAME_RESULTS = 4
"""Equal results of equal calls that count as going round in circles; strong models correct themselves after three."""
MAX_MALFORMED_CALLS = 3

_VARYING_PATTERN = re.compile(r"(?<=\bafter )\d+(\.\d+)? s\b|(?<=Logout/)\w+/\d+(?=\.\w)|(?<=\bjob=)\d+|(?<=\bJob )\d+")
"""Parts of a result that always differ: the run time of a script, its number, the name of its log."""


@dataclass
class RepetitionDetector:
    """Counts repeated calls and malformed calls of one role."""

    counts: Counter[str] = field(default_factory=Counter)
    malformed_calls: int = 0
    has_warned: bool = False

    def observe(self, call: ToolCall, result: str, is_malformed: bool) -> str:
        """Count one call and its result.

        Returns:
            A sentence on what has been repeated too often; '' otherwise.
        """
        self.malformed_calls = self.malformed_calls + 1 if is_malformed else 0
        if self.malformed_calls >= MAX_MALFORMED_CALLS:
            self.malformed_calls = 0
            return f"{MAX_MALFORMED_CALLS} calls running could not be understood; the last was to `{call.name}`."
        key = _fingerprint_call(call, result)
        self.counts[key] += 1
        if self.counts[key] >= MAX_SAME_RESULTS:
            self.counts[key] = 0
            arguments = json.dumps(call.arguments, ensure_ascii=False)[:200]
            return f"`{call.name}` was called {MAX_SAME_RESULTS} times with {arguments}, and each time the result was the same."
        return ""


def _fingerprint_call(call: ToolCall, result: str) -> str:
    text = json.dumps([call.name, call.arguments, _VARYING_PATTERN.sub("#", result)], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass
class RoleUsage:
    """The usage of one role; `status` is `working`, `done`, or how it failed."""

    status: str = "working"
    actions: int = 0
    iterations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class AgentState:
    """The state of an agent in addition to its conversation.

    Args:
        started_calls: calls of the last reply that were started and never answered, so that their effect is unknown.
        waiting_calls: calls of the last reply that were never started.
        has_reflected: whether the reflection was sent.
        script_failed: whether the last script failed; `script_error` says why, `disk_was_full` whether for lack of room.
        unusable_replies: number of unusable replies in a row.
        lost_jobs: number -> command of background scripts, which ended with their process.
    """

    iterations: int = 0
    started_calls: list[ToolCall] = field(default_factory=list)
    waiting_calls: list[ToolCall] = field(default_factory=list)
    has_reflected: bool = False
    repetitions: RepetitionDetector = field(default_factory=RepetitionDetector)
    script_failed: bool = False
    script_error: str = ""
    disk_was_full: bool = False
    unusable_replies: int = 0
    lost_jobs: dict[int, str] = field(default_factory=dict)

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> AgentState:
        """Return the state after the events of one conversation."""
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
            self.script_failed, self.disk_was_full = facts["exit_code"] != 0, bool(facts.get("disk_full"))
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
