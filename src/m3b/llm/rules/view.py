"""What the rules see of a conversation: the brief of its stage, and what has happened since, all of it typed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from m3b.facts import (
    Answer,
    Brief,
    IndexBrief,
    ModelBrief,
    ModuleBrief,
    Rejection,
    ScriptOutcome,
    SelectionBrief,
    parse_facts,
)
from m3b.messages import Message, ToolCall


@dataclass(frozen=True)
class Step:
    """One call and what came of it; `outcome` where it ran a script."""

    call: ToolCall
    is_error: bool
    outcome: ScriptOutcome | None = None

    @property
    def command(self) -> str:
        return str(self.call.arguments.get("command", ""))

    @property
    def has_failed(self) -> bool:
        return self.is_error or (self.outcome is not None and self.outcome.has_failed)


@dataclass(frozen=True)
class StageView:
    """The conversation from the last brief on.

    Args:
        brief: of the stage.
        steps: calls and results since.
        rejection: what a check said last, where nothing was done since.
        answer: what the user said last, where nothing was done since.
    """

    brief: Brief
    steps: tuple[Step, ...] = ()
    rejection: Rejection | None = None
    answer: Answer | None = None


def read_view(messages: Sequence[Message]) -> StageView | None:
    """The view of a conversation; None where no message carries a brief."""
    for index in range(len(messages) - 1, -1, -1):
        briefs = [fact for fact in parse_facts(messages[index].facts) if isinstance(fact, BRIEF_TYPES)]
        if briefs:
            return _view_since(briefs[-1], messages[index + 1 :])
    return None


BRIEF_TYPES = (SelectionBrief, IndexBrief, ModuleBrief, ModelBrief)


def _view_since(brief: Brief, messages: Sequence[Message]) -> StageView:
    calls: dict[str, ToolCall] = {}
    steps: list[Step] = []
    rejection: Rejection | None = None
    answer: Answer | None = None
    for message in messages:
        if message.role == "assistant":
            calls.update({call.id: call for call in message.calls})
            continue
        rejection = answer = None  # whatever was said before has been acted on
        facts = parse_facts(message.facts)
        if message.role == "tool" and message.call_id in calls:
            outcome = next((fact for fact in facts if isinstance(fact, ScriptOutcome)), None)
            steps.append(Step(calls[message.call_id], message.is_error, outcome))
        elif message.role == "user":
            rejection = next((fact for fact in facts if isinstance(fact, Rejection)), None)
            answer = next((fact for fact in facts if isinstance(fact, Answer)), None)
    return StageView(brief, tuple(steps), rejection, answer)


def make_call(name: str, **arguments: object) -> ToolCall:
    """A call; its id is set when it is sent."""
    return ToolCall("", name, dict(arguments))


def format_give_up(words: str) -> str:
    """The closing text of a role that cannot go on, with what the user is told."""
    return json.dumps({"given_up": words}, ensure_ascii=False)
