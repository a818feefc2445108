"""Chat completions as programs send and expect them, turned into m3b's messages and back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from m3b.llm.calls import parse_arguments
from m3b.messages import Message, Reply, ToolCall, ToolSpec


def read_messages(request: Mapping[str, Any]) -> list[Message]:
    """The conversation of a chat completion request, in the order that every provider takes."""
    messages = []
    for raw_message in request["messages"]:
        role = {"developer": "system", "function": "tool"}.get(raw_message["role"], raw_message["role"])
        calls = tuple(_parse_call(call) for call in raw_message.get("tool_calls") or ())
        messages.append(
            Message(role, _join_text(raw_message.get("content")), calls, str(raw_message.get("tool_call_id") or ""))
        )
    choice_text = _describe_tool_choice(request)
    if choice_text:
        messages.append(Message("user", choice_text))
    return _order_system_turns(messages)


def _order_system_turns(messages: list[Message]) -> list[Message]:
    """System turns first, then one of the user: AIDE sends a system turn alone, aider reminds in a late one."""
    first_turn = next(
        (index for index, message in enumerate(messages) if message.role != "system"), max(0, len(messages) - 1)
    )
    return [
        replace(message, role="user") if message.role == "system" and index >= first_turn else message
        for index, message in enumerate(messages)
    ]


def _describe_tool_choice(request: Mapping[str, Any]) -> str:
    """A tool choice in words, since models that m3b asks cannot be forced to call a function."""
    choice = request.get("tool_choice")
    if isinstance(choice, Mapping):
        return f"Answer with a call of the function `{choice['function']['name']}`, not in text."
    return "Answer with a call of one of the functions, not in text." if choice == "required" else ""


def read_tools(request: Mapping[str, Any]) -> list[ToolSpec]:
    """The functions of a chat completion request."""
    if request.get("tool_choice") == "none":
        return []
    functions = [tool["function"] for tool in request.get("tools") or () if tool.get("type", "function") == "function"]
    return [
        ToolSpec(function["name"], function.get("description", ""), function.get("parameters") or {"type": "object"})
        for function in functions
    ]


def _join_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _parse_call(raw: Mapping[str, Any]) -> ToolCall:
    arguments, error = parse_arguments(raw["function"].get("arguments") or "{}")
    return ToolCall(str(raw.get("id", "")), raw["function"]["name"], arguments, error)


def cut_at_stop(text: str, stops: Any) -> str:
    """The text up to the first stop word; the model behind the relay does not know of them."""
    stop_words = [stops] if isinstance(stops, str) else stops or ()
    return text[: min((text.find(word) for word in stop_words if word in text), default=len(text))]


def to_completion(reply: Reply, request: Mapping[str, Any], request_number: int) -> dict[str, Any]:
    """A reply as the body of a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": cut_at_stop(reply.text, request.get("stop")) or None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id or f"call_{request_number}_{index}", "type": "function",
             "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for index, call in enumerate(reply.calls)
        ]  # fmt: skip
    finish_reason = {"end": "stop", "tools": "tool_calls", "length": "length", "refusal": "content_filter"}[reply.stop]
    usage = {"prompt_tokens": reply.usage.input_tokens, "completion_tokens": reply.usage.output_tokens,
            "total_tokens": reply.usage.total_tokens}  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}
    return {"id": f"relay-{request_number}", "object": "chat.completion", "created": int(time.time()),
            "model": str(request.get("model", "")),
            "choices": [choice], "usage": usage, "system_fingerprint": None}  # fmt: skip
