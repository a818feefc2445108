"""The embedded core: an `LLM` with no model behind it, which works by rules over common layouts.

It reads the same prompts and tool results as any model and answers with the same tool calls. It knows no data set:
all that it goes by is what the briefing and the tools show. A layout that is beyond it is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from m3b.llm.base import Cancelled, Facts, OnWait
from m3b.llm.rules.building import train_model, write_module
from m3b.llm.rules.indexing import write_index
from m3b.llm.rules.selection import select
from m3b.llm.rules.view import View, read
from m3b.llm.tokens import of_reply, of_request
from m3b.messages import Message, Reply, ToolCall, ToolSpec, Usage

Step = Callable[[View], str | list[ToolCall]]
STEPS: dict[str, Step] = {"selection": select, "index": write_index, "module": write_module, "model": train_model}
"""What to do next, a stage: a closing text, or calls."""


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
        step = STEPS.get(view.stage)
        answer = step(view) if step else "The rules know no such stage; use a language model for it."
        text = answer if isinstance(answer, str) else ""
        made = sum(len(message.calls) for message in messages)
        calls = () if isinstance(answer, str) else tuple(_numbered(answer, made))
        reply = Reply(text, calls, stop="tools" if calls else "end", model="rules")
        usage = Usage(of_request(messages, tools), 0, of_reply(reply), 1, 0.0)
        return Reply(text, calls, usage, reply.stop, "rules")


def _numbered(calls: Sequence[ToolCall], made: int) -> list[ToolCall]:
    return [ToolCall(f"rules-{made + at}", call.name, call.arguments) for at, call in enumerate(calls)]


__all__ = ["Rules"]
