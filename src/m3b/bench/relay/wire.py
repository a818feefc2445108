"""Chat completions as programs send and expect them, turned into m3b's messages and back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from m3b.llm.calls import parse_arguments
from m3b.messages import Message, Reply, ToolCall, ToolSpec


def read_messages(asked: Mapping[str, Any]) -> list[Message]:
    """The conversation of a chat completion request, in the order that every provider takes."""
    found = []
    for one in asked["messages"]:
        role = {"developer": "system", "function": "tool"}.get(one["role"], one["role"])
        calls = tuple(_call(call) for call in one.get("tool_calls") or ())
        found.append(Message(role, _text(one.get("content")), calls, str(one.get("tool_call_id") or "")))
    wish = _wish(asked)
    if wish:
        found.append(Message("user", wish))
    return _ordered(found)


def _ordered(messages: list[Message]) -> list[Message]:
    """System turns first, then one of the user: AIDE sends a system turn alone, aider reminds in a late one."""
    opening = next((place for place, one in enumerate(messages) if one.role != "system"), max(0, len(messages) - 1))
    return [
        replace(one, role="user") if one.role == "system" and place >= opening else one
        for place, one in enumerate(messages)
    ]


def _wish(asked: Mapping[str, Any]) -> str:
    """A tool choice in words, since models that m3b asks cannot be forced to call a function."""
    choice = asked.get("tool_choice")
    if isinstance(choice, Mapping):
        return f"Answer with a call of the function `{choice['function']['name']}`, not in text."
    return "Answer with a call of one of the functions, not in text." if choice == "required" else ""


def read_tools(asked: Mapping[str, Any]) -> list[ToolSpec]:
    """The functions of a chat completion request."""
    if asked.get("tool_choice") == "none":
        return []
    listed = [tool["function"] for tool in asked.get("tools") or () if tool.get("type", "function") == "function"]
    return [
        ToolSpec(one["name"], one.get("description", ""), one.get("parameters") or {"type": "object"}) for one in listed
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _call(raw: Mapping[str, Any]) -> ToolCall:
    arguments, error = parse_arguments(raw["function"].get("arguments") or "{}")
    return ToolCall(str(raw.get("id", "")), raw["function"]["name"], arguments, error)


def cut(text: str, stops: Any) -> str:
    """The text up to the first stop word; the model behind the relay does not know of them."""
    words = [stops] if isinstance(stops, str) else stops or ()
    return text[: min((text.find(word) for word in words if word in text), default=len(text))]


def completion(reply: Reply, asked: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A reply as the body of a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": cut(reply.text, asked.get("stop")) or None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id or f"call_{number}_{place}", "type": "function",
             "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for place, call in enumerate(reply.calls)
        ]  # fmt: skip
    stop = {"end": "stop", "tools": "tool_calls", "length": "length", "refusal": "content_filter"}[reply.stop]
    used = {"prompt_tokens": reply.usage.input_tokens, "completion_tokens": reply.usage.output_tokens,
            "total_tokens": reply.usage.total_tokens}  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": stop, "logprobs": None}
    return {"id": f"relay-{number}", "object": "chat.completion", "created": int(time.time()),
            "model": str(asked.get("model", "")),
            "choices": [choice], "usage": used, "system_fingerprint": None}  # fmt: skip
