"""The embedded core: an `LLM` with no model behind it, which works by rules over common layouts.

It is told what any model is told, and plans by the data that its messages carry beside their text (`m3b.briefs`): it
never reads prose that m3b wrote. Of free text it reads the user's request, cards and notes. It knows no data set. How a
folder is read is proposed from the survey of its files; where no reading is borne out, the rules say what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from m3b.briefs import IndexBrief, ModelBrief, ModuleBrief, SelectionBrief
from m3b.llm.base import Cancelled, Facts, OnWait
from m3b.llm.rules.building import train_model, write_module
from m3b.llm.rules.indexing import write_index
from m3b.llm.rules.selection import select
from m3b.llm.rules.view import View, given_up, read
from m3b.llm.tokens import of_reply, of_request
from m3b.messages import Message, Reply, ToolCall, ToolSpec, Usage

UNKNOWN = (
    "The rules plan by data that messages carry, and these carry none for a stage that they know. Use a language model."
)


def plan(view: View) -> str | list[ToolCall]:
    """What to do next: a closing text, or calls."""
    match view.brief:
        case SelectionBrief() as brief:
            return select(brief, view)
        case IndexBrief() as brief:
            return write_index(brief, view)
        case ModuleBrief() as brief:
            return write_module(brief, view)
        case ModelBrief() as brief:
            return train_model(brief, view)


class Rules:
    """An `LLM` that answers by rules. Its usage is an estimate of what a model would have read and written."""

    name = "rules"
    facts = Facts(window=1_000_000, max_output=8_192, price_in=0.0, price_out=0.0)

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_wait: OnWait | None = None,
        cancelled: Cancelled | None = None,
    ) -> Reply:
        """The next step of the stage that the conversation is in; never waits, never fails."""
        view = read(messages)
        answer = plan(view) if view is not None else given_up(UNKNOWN)
        text = answer if isinstance(answer, str) else ""
        call_count = sum(len(message.calls) for message in messages)
        calls = () if isinstance(answer, str) else tuple(_numbered(answer, call_count))
        reply = Reply(text, calls, stop="tools" if calls else "end", model="rules")
        usage = Usage(of_request(messages, tools), 0, of_reply(reply), 1, 0.0)
        return Reply(text, calls, usage, reply.stop, "rules")


def _numbered(calls: Sequence[ToolCall], made: int) -> list[ToolCall]:
    return [ToolCall(f"rules-{made + index}", call.name, call.arguments) for index, call in enumerate(calls)]


__all__ = ["Rules"]
