"""Tools for models that know no protocol for them, or keep it badly: told in plain words, called in plain text.

Both wrappers are an `LLM` around another one, so that the loop above them is the same. `TextToolsLLM` turns calls and
results into text and back. `RepairingLLM` leaves the protocol to the provider, and takes calls that the model wrote into its
text all the same. What either of them says to bring a call about is not kept in the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from m3b.messages import Message, Reply, ToolCall, ToolSpec

from .base import LLM, IsCancelled, ModelFacts, OnText, OnWait, spec_of
from .streaming import ask_llm
from .text_calls import TextCall, find_calls

ToolMode = Literal["auto", "native", "text"]

TOOL_PROTOCOL = """\
# Tools
You have the tools below. To call one, write exactly this, with the arguments as one JSON object:

<call tool="NAME">
{"ARGUMENT": "VALUE"}
</call>

A long text (code, for instance) may stand below the JSON as it is, without any escaping; its place in the JSON then \
holds "@" and its id:

<call tool="NAME">
{"ARGUMENT": "@1"}
<text id="1">
any text, line by line
</text>
</call>

Several calls may follow one another. End your reply after the last call: its results come to you in the next turn, \
between <result> and </result>. Never write a result yourself. A reply without a call means that you are done.

Each tool, with the JSON Schema of its arguments:"""

ANNOUNCED_CALL_REMINDER = (
    "You speak of calling a tool, but your reply holds no call that could be read, so nothing was run. If you want to "
    "call {tool} now, write the call itself{form}. If you are done, repeat your closing reply and name no tool."
)
_INTENT = re.compile(
    r"\b(?:I(?:'|’)ll|I will|I am going to|I(?:'|’)m going to|I would|I want to|I need to|let me|let us|let(?:'|’)s"
    r"|first,|next,|now,? I|then I|we (?:should|will|need to)|should (?:now )?(?:call|use|run)|calling|please (?:call|run))",
    re.IGNORECASE,
)


def adapt_tools(llm: LLM, tools: ToolMode, *, repairs: bool = False) -> LLM:
    """The model, wrapped as its way with tools demands.

    Args:
        llm: any model.
        tools: see `m3b.llm.connect`.
        repairs: whether `auto` takes calls from the text of a model that knows tools.
    """
    if isinstance(llm, TextToolsLLM | RepairingLLM) or tools == "native":
        return llm
    if tools == "text" or not llm.facts.tools:
        return TextToolsLLM(llm)
    return RepairingLLM(llm) if repairs else llm


class _ToolWrapper:
    """What both wrappers share: asking, and asking once more when a call was only announced."""

    streams = True
    call_form = ""
    """How a call is written, for the reminder."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    @property
    def name(self) -> str:
        """The model's own name."""
        return self.llm.name

    @property
    def spec(self) -> str:
        """What `connect` makes the model again from."""
        return spec_of(self.llm)

    @property
    def facts(self) -> ModelFacts:
        """The model's own facts."""
        return self.llm.facts

    def ask(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        on_wait: OnWait | None = None,
        cancelled: IsCancelled | None = None,
        on_text: OnText | None = None,
    ) -> Reply:
        """See `LLM.ask`."""
        request_messages, request_tools = self._prepare_request(messages, tools)
        reply = ask_llm(
            self.llm, request_messages, request_tools, on_wait=on_wait, cancelled=cancelled, on_text=on_text
        )
        first_reply = self._parse_reply(reply, messages, tools)
        tool = find_announced_tool(first_reply, tools)
        if not tool:
            return first_reply
        if on_text is not None:
            on_text("")
        reminder = Message("user", ANNOUNCED_CALL_REMINDER.format(tool=tool, form=self.call_form))
        request_messages = [*request_messages, Message("assistant", reply.text), reminder]
        second_response = ask_llm(
            self.llm, request_messages, request_tools, on_wait=on_wait, cancelled=cancelled, on_text=on_text
        )
        second_reply = self._parse_reply(second_response, messages, tools)
        # What was announced twice is a closing reply after all, and the first one is as good.
        final_reply = (
            second_reply if second_reply.calls or not find_announced_tool(second_reply, tools) else first_reply
        )
        return replace(final_reply, usage=first_reply.usage + second_reply.usage)

    def _prepare_request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[list[Message], Sequence[ToolSpec]]:
        return list(messages), tools

    def _parse_reply(self, reply: Reply, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        """The reply with the calls that stand in its text."""
        if reply.calls or not tools:
            return reply
        text, text_calls = find_calls(reply.text, tools)
        if not text_calls:
            return reply
        stop: Any = "length" if reply.stop == "length" else "tools"
        return replace(reply, text=text, calls=_assign_call_ids(text_calls, messages), stop=stop)


class RepairingLLM(_ToolWrapper):
    """A model that is told of tools by its provider's protocol, and whose calls count in its text as well."""

    call_form = ", by your function-calling format"


class TextToolsLLM(_ToolWrapper):
    """A model that is told of tools in the system's turn, and whose calls and results are text.

    The wording is the same in every request, byte for byte, so that a cache can serve it.
    """

    call_form = ', beginning with <call tool="{tool}">'

    def _prepare_request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[list[Message], Sequence[ToolSpec]]:
        return to_text_messages(messages, tools), ()


# --- a conversation without the protocol -------------------------------------------------------------------------


def to_text_messages(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """The conversation with its tools, calls and results as text; turns of one speaker in a row become one."""
    merged_turns: list[Message] = []
    tool_names = {call.id: call.name for message in messages for call in message.calls}
    system_count = sum(message.role == "system" for message in messages)
    system = [message for message in messages[:system_count]]
    if tools:
        last_system = system.pop() if system else Message("system")
        system.append(replace(last_system, text="\n\n".join(filter(None, [last_system.text, format_tools(tools)]))))
    for message in messages[system_count:]:
        turn = message
        if message.role == "tool":
            turn = Message("user", _format_result(message, tool_names), images=message.images)
        elif message.calls:
            turn = Message("assistant", "\n\n".join(filter(None, [message.text, *map(format_call, message.calls)])))
        if merged_turns and merged_turns[-1].role == turn.role:
            previous_turn = merged_turns[-1]
            merged_turns[-1] = replace(
                previous_turn, text=f"{previous_turn.text}\n\n{turn.text}", images=(*previous_turn.images, *turn.images)
            )
        else:
            merged_turns.append(turn)
    return [*system, *merged_turns]


def format_tools(tools: Sequence[ToolSpec]) -> str:
    """What a model is told of its tools."""
    tool_texts = []
    for tool in tools:
        schema = json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":"))
        tool_texts.append(f"## {tool.name}\n{tool.description}\n{schema}")
    return "\n\n".join([TOOL_PROTOCOL, *tool_texts])


def format_call(call: ToolCall) -> str:
    """A call as the model should have written it; a malformed one stands there without arguments."""
    arguments = {} if call.parse_error else call.arguments
    name = re.sub(r"[^\w.-]", "_", call.name) or "unknown"
    return f'<call tool="{name}">\n{json.dumps(arguments, ensure_ascii=False, default=str)}\n</call>'


def _format_result(message: Message, names: dict[str, str]) -> str:
    error_attribute = ' error="true"' if message.is_error else ""
    return f'<result tool="{names.get(message.call_id, "")}"{error_attribute}>\n{message.text}\n</result>'


def find_announced_tool(reply: Reply, tools: Sequence[ToolSpec]) -> str:
    """The tool that a reply without a call says it will call now, or an empty text."""
    if reply.calls or reply.stop != "end" or len(reply.text) > 4000:
        return ""
    # The closing JSON of a stage may name a tool in its plan.
    if re.match(r"\s*(?:```\w*\s*)?\{", reply.text):
        return ""
    for sentence in re.split(r"(?<=[.!?:])\s+|\n+", reply.text):
        if not _INTENT.search(sentence):
            continue
        for tool in tools:
            if re.search(rf"\b{re.escape(tool.name)}\b", sentence):
                return tool.name
    return ""


def _assign_call_ids(text_calls: Sequence[TextCall], messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Calls with ids that the conversation does not hold yet."""
    used_ids = {call.id for message in messages for call in message.calls}
    calls: list[ToolCall] = []
    number = len(used_ids)
    for text_call in text_calls:
        number += 1
        while f"text_{number}" in used_ids:
            number += 1
        calls.append(ToolCall(f"text_{number}", text_call.name, text_call.arguments, text_call.error))
    return tuple(calls)
