"""Calls of tools that a model wrote into its text instead of making them by its provider's protocol.

Only what can be nothing else is taken for a call. Marked-up forms count whatever tool they name, so that a wrong name is
answered; JSON in a fence, JSON that is the whole reply, and lines of `tool(argument=...)` count only if they name a
tool that was offered. Everything after a result that the model made up itself is dropped.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from m3b.messages import Message, Reply, StopReason, ToolCall, ToolSpec

from .base import LLMRequest, LLMWrapper
from .calls import assign_call_ids, parse_arguments
from .python_text import parse_with_retries

NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "action_input")

_TOOL_CALL_TAG = re.compile(r"<(tool_call|function_call|tool_use)>(?P<body>.*?)(?:</\1>|(?=<\1>)|\Z)", re.DOTALL)
_FUNCTION_TAG = re.compile(r"<function\s*=\s*\"?([\w.-]+)\"?\s*>(.*?)(?:</function>|\Z)", re.DOTALL)
_TOOL_CALLS_LIST = re.compile(r"\[TOOL_CALLS\]\s*(?P<body>\[.*)", re.DOTALL)
_FENCE = re.compile(r"^```[ \t]*([\w-]*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_INVENTED_RESULT = re.compile(r"^\s*<(?:result|tool_response|tool_result)\b", re.MULTILINE)

ANNOUNCED_CALL_REMINDER = (
    "You speak of calling a tool, but your reply holds no call that could be read, so nothing was run. If you want to "
    "call {tool} now, write the call itself, by your function-calling format. If you are done, repeat your closing reply "
    "and name no tool."
)
_INTENT = re.compile(
    r"\b(?:I(?:'|’)ll|I will|I am going to|I(?:'|’)m going to|I would|I want to|I need to|let me|let us|let(?:'|’)s"
    r"|first,|next,|now,? I|then I|we (?:should|will|need to)|should (?:now )?(?:call|use|run)|calling|please (?:call|run))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TextCall:
    """One call in a text, and where it stands."""

    start: int
    end: int
    name: str
    arguments: dict[str, Any]
    error: str = ""


def find_calls(text: str, tools: Sequence[ToolSpec]) -> tuple[str, list[TextCall]]:
    """Return the calls in a model's text, in order, and the text without them.

    Args:
        text: the reply.
        tools: those that were offered.
    """
    offered = {tool.name: list(tool.parameters.get("properties", {})) for tool in tools}
    invented_result = _INVENTED_RESULT.search(text)
    usable_text = text[: invented_result.start()] if invented_result else text
    calls: list[TextCall] = []
    for find_form in (_find_marked_json, _find_function_tags, _find_fenced_calls):
        for call in find_form(usable_text, offered):
            if all(call.end <= earlier_call.start or call.start >= earlier_call.end for earlier_call in calls):
                calls.append(call)
    if not calls:
        calls = list(_find_whole_reply_calls(usable_text, offered)) or list(_find_python_calls(usable_text, offered))
    if not calls:
        return text, []
    calls.sort(key=lambda call: call.start)
    remaining_text, position = "", 0
    for call in calls:
        remaining_text += usable_text[position : call.start]
        position = max(position, call.end)
    return re.sub(r"\n{3,}", "\n\n", remaining_text + usable_text[position:]).strip(), calls


class RepairingLLM(LLMWrapper):
    """A model whose calls count in its text as well, and that is asked once more for a call that it only announced.

    Neither the announcement nor the reminder is kept in the conversation.
    """

    def ask(self, request: LLMRequest) -> Reply:
        """See `LLM.ask`."""
        reply = self.llm.ask(request)
        first_reply = _extract_calls(reply, request)
        tool = find_announced_tool(first_reply, request.tools)
        if not tool:
            return first_reply
        if request.on_text is not None:
            request.on_text("")
        reminder = Message("user", ANNOUNCED_CALL_REMINDER.format(tool=tool))
        request = replace(request, messages=[*request.messages, Message("assistant", reply.text), reminder])
        second_reply = _extract_calls(self.llm.ask(request), request)
        # What was announced twice is a closing reply after all, and the first one is as good.
        is_usable = second_reply.calls or not find_announced_tool(second_reply, request.tools)
        return replace(second_reply if is_usable else first_reply, usage=first_reply.usage + second_reply.usage)


def _extract_calls(reply: Reply, request: LLMRequest) -> Reply:
    """Return the reply with the calls that stand in its text."""
    if reply.calls or not request.tools:
        return reply
    text, text_calls = find_calls(reply.text, request.tools)
    if not text_calls:
        return reply
    calls = [ToolCall("", call.name, call.arguments, call.error) for call in text_calls]
    stop: StopReason = "length" if reply.stop == "length" else "tools"
    return replace(reply, text=text, calls=assign_call_ids(calls, request.used_call_ids), stop=stop)


def find_announced_tool(reply: Reply, tools: Sequence[ToolSpec]) -> str:
    """Return the tool that a reply without a call says it will call now, or an empty text."""
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


# --- one function a form: every call of that form ----------------------------------------------------------------

OfferedTools = Mapping[str, list[str]]
"""The names of a tool's arguments, in order, by its name."""


def _find_marked_json(text: str, offered: OfferedTools) -> Iterator[TextCall]:
    """`<tool_call>{"name": ..., "arguments": ...}</tool_call>`, as Hermes and Qwen were taught, and Mistral's
    `[TOOL_CALLS] [{...}, ...]`.
    """
    for pattern in (_TOOL_CALL_TAG, _TOOL_CALLS_LIST):
        for match in pattern.finditer(text):
            yield from _parse_json_calls(match["body"], *match.span(), offered, is_marked=True)


def _find_function_tags(text: str, offered: OfferedTools) -> Iterator[TextCall]:
    """`<function=NAME>{...}</function>`, as Llama was taught."""
    for match in _FUNCTION_TAG.finditer(text):
        arguments, error = parse_arguments(match[2].strip())
        yield TextCall(*match.span(), match[1], arguments, error)


def _find_fenced_calls(text: str, offered: OfferedTools) -> Iterator[TextCall]:
    """Return a fence with one or several JSON calls, or with lines of `tool(argument=...)`."""
    for match in _FENCE.finditer(text):
        language = match[1].lower()
        is_marked = language in ("tool", "tool_call", "call")
        calls = list(_parse_json_calls(match[2], *match.span(), offered, is_marked=is_marked))
        if not calls and language in ("", "python", "py", "tool_code", "tool"):
            start, end = match.span()
            calls = [replace(call, start=start, end=end) for call in _find_python_calls(match[2], offered)]
        yield from calls


def _find_whole_reply_calls(text: str, offered: OfferedTools) -> Iterator[TextCall]:
    """Return the whole reply is JSON that names a tool, perhaps with a sentence before it."""
    opening = re.search(r"^\s*[\[{]", text, re.MULTILINE)
    if opening:
        yield from _parse_json_calls(text[opening.start() :], opening.start(), len(text), offered, is_marked=False)


def _find_python_calls(text: str, offered: OfferedTools) -> Iterator[TextCall]:
    """Lines of `tool(argument="...", ...)`: each the whole statement, over several lines where its brackets say so."""
    lines = text.split("\n")
    position, number = 0, 0
    while number < len(lines):
        name = re.match(r"\s*(?:\w+\s*=\s*)?([A-Za-z_]\w*)\(", lines[number])
        line_count = 1
        if name and name[1] in offered:
            for count in range(1, min(len(lines) - number, 400) + 1):
                statement = "\n".join(lines[number : number + count])
                arguments = _parse_python_call(statement, name[1], offered[name[1]])
                if arguments is not None:
                    line_count = count
                    yield TextCall(position, position + len(statement), name[1], arguments)
                    break
        position += sum(len(line) + 1 for line in lines[number : number + line_count])
        number += line_count


def _parse_python_call(statement: str, name: str, parameters: list[str]) -> dict[str, Any] | None:
    """Return the arguments of a call written as Python, of literals only; None if it is none."""
    try:
        body = parse_with_retries(ast.parse, statement.strip().rstrip(";")).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr | ast.Assign) else None
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == name):
        return None
    if len(value.args) > len(parameters) or any(keyword.arg is None for keyword in value.keywords):
        return None
    pairs = [
        *zip(parameters, value.args, strict=False),
        *((str(keyword.arg), keyword.value) for keyword in value.keywords),
    ]
    try:
        values = {key: ast.literal_eval(node) for key, node in pairs}
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    arguments, error = parse_arguments(values)
    return None if error or len(values) != len(pairs) else arguments


# --- JSON that names a tool --------------------------------------------------------------------------------------


def _parse_json_calls(raw: str, start: int, end: int, offered: OfferedTools, *, is_marked: bool) -> Iterator[TextCall]:
    """Every call in a JSON object, a list of them, or one after the other; a marked one that cannot be read is told."""
    values = _parse_json_values(raw)
    if values is None:
        if is_marked:
            _, error = parse_arguments(raw)
            error = error or "The call names no tool"
            yield TextCall(start, end, _find_tool_name(raw), {}, error)
        return
    parsed_calls = [_parse_call(value, offered, is_marked) for value in values]
    if all(parsed_calls):
        yield from (TextCall(start, end, *parsed_call) for parsed_call in parsed_calls if parsed_call)
    elif is_marked:
        excerpt = json.dumps(values, ensure_ascii=False)[:80]
        yield TextCall(
            start, end, _find_tool_name(raw), {}, f'This call is not {{"name": ..., "arguments": {{...}}}}: {excerpt}'
        )


def _parse_json_values(raw: str) -> list[Any] | None:
    """JSON values one after the other, lists opened; None if there is anything else, or nothing."""
    decoder, text, values = json.JSONDecoder(strict=False), raw.strip(), []
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            value, error = parse_arguments(text)
            if error or not value:
                return None
            end = len(text)
        values += value if isinstance(value, list) else [value]
        text = text[end:].lstrip(" \t\r\n,;")
        if not re.search(r"\w", text):
            break
    return values or None


def _parse_call(value: Any, offered: OfferedTools, is_marked: bool) -> tuple[str, dict[str, Any], str] | None:
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), None)
    if name is None or not (is_marked or name in offered):
        return None
    argument_keys = [key for key in ARGUMENT_KEYS if key in value]
    if argument_keys:
        return name, *parse_arguments(value[argument_keys[0]])
    arguments = {key: argument for key, argument in value.items() if key not in (*NAME_KEYS, "id", "type")}
    return (name, *parse_arguments(arguments)) if is_marked or set(arguments) <= set(offered.get(name, ())) else None


def _find_tool_name(raw: str) -> str:
    match = re.search(r"[\"'](?:name|tool)[\"']\s*:\s*[\"']([\w.-]+)[\"']", raw)
    return match[1] if match else "unknown"
