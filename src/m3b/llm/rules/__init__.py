"""The embedded core: an `LLM` with no model behind it, which works by rules over common layouts.

It is told what any model is told, and plans by the data that its messages carry beside their text (`m3b.facts`): it
never reads prose that m3b wrote. Of free text it reads the user's request, cards and notes. It knows no data set. How a
folder is read is proposed from the survey of its files; where no manifest is borne out, the rules say what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from m3b.facts import IndexBrief, ModelBrief, ModuleBrief, SelectionBrief
from m3b.llm.base import LLMRequest, ModelFacts
from m3b.llm.rules.building import train_model, write_module
from m3b.llm.rules.indexing import write_index
from m3b.llm.rules.selection import select_card
from m3b.llm.rules.view import StageView, format_give_up, read_view
from m3b.llm.tokens import estimate_usage
from m3b.messages import Reply, ToolCall

UNKNOWN_STAGE = (
    "The rules plan by data that messages carry, and these carry none for a stage that they know. Use a language model."
)


def plan_next_step(view: StageView) -> str | list[ToolCall]:
    """What to do next: a closing text, or calls."""
    match view.brief:
        case SelectionBrief() as brief:
            return select_card(brief, view)
        case IndexBrief() as brief:
            return write_index(brief, view)
        case ModuleBrief() as brief:
            return write_module(brief, view)
        case ModelBrief() as brief:
            return train_model(brief, view)


class RulesLLM:
    """An `LLM` that answers by rules. Its usage is an estimate of what a model would have read and written."""

    name = "rules"
    facts = ModelFacts(window=1_000_000, max_output=8_192, price_in=0.0, price_out=0.0)

    def ask(self, request: LLMRequest) -> Reply:
        """The next step of the stage that the conversation is in; never waits, never fails."""
        view = read_view(request.messages)
        answer = plan_next_step(view) if view is not None else format_give_up(UNKNOWN_STAGE)
        text = answer if isinstance(answer, str) else ""
        call_count = sum(len(message.calls) for message in request.messages)
        calls = () if isinstance(answer, str) else tuple(_number_calls(answer, call_count))
        reply = Reply(text, calls, stop="tools" if calls else "end", model="rules")
        return replace(reply, usage=estimate_usage(request, reply, self.facts))


def _number_calls(calls: Sequence[ToolCall], call_count: int) -> list[ToolCall]:
    return [ToolCall(f"rules-{call_count + index}", call.name, call.arguments) for index, call in enumerate(calls)]


__all__ = ["RulesLLM"]
