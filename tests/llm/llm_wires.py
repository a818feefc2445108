"""Both wires, as their servers answer on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from m3b.llm import ModelFacts, registry
from m3b.llm.keys import Key
from m3b.messages import Message, ToolSpec

CANARY = "sk-canary-0123456789abcdefCANARY"
FACTS = ModelFacts(window=1000, max_output=100, price_in=1.0, price_cached=0.1, price_out=10.0, price_cache_write=1.25)
TOOLS = [
    ToolSpec("list_files", "Lists.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("read_files", "Reads.", {"type": "object", "properties": {}}),
]
START = [Message("system", "You are a tester."), Message("user", "Go.")]


class OpenAIWire:
    name = "openai"

    @staticmethod
    def llm(url: str, retry: Any, **options: Any) -> Any:
        options = {"key": Key(CANARY, "SOME_KEY"), "facts": FACTS, **options}
        return registry.open_provider("openai", "m", url + "/v1", retry, **options)

    @staticmethod
    def text(text: str) -> dict[str, Any]:
        return {
            "id": "1", "object": "chat.completion", "created": 1, "model": "m-1",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
                      "prompt_tokens_details": {"cached_tokens": 60}},
        }  # fmt: skip

    @staticmethod
    def calls(*calls: tuple[str, str, str], finish: str = "tool_calls", **extra: Any) -> dict[str, Any]:
        body = OpenAIWire.text("")
        tool_calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
        message = {"role": "assistant", "content": None, "tool_calls": tool_calls, **extra}
        body["choices"] = [{"index": 0, "finish_reason": finish, "message": message}]
        return body

    @staticmethod
    def error(message: str, code: str = "") -> dict[str, Any]:
        return {"error": {"message": message, "type": "some_error", "code": code or None, "param": None}}


class AnthropicWire:
    name = "anthropic"

    @staticmethod
    def llm(url: str, retry: Any, **options: Any) -> Any:
        options = {"key": Key(CANARY, "SOME_KEY"), "facts": FACTS, **options}
        return registry.open_provider("anthropic", "m", url, retry, **options)

    @staticmethod
    def text(text: str) -> dict[str, Any]:
        return {
            "id": "1", "type": "message", "role": "assistant", "model": "m-1", "stop_reason": "end_turn",
            "stop_sequence": None, "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0,
                      "output_tokens": 7},
        }  # fmt: skip

    @staticmethod
    def calls(*calls: tuple[str, str, str], finish: str = "tool_use", **extra: Any) -> dict[str, Any]:
        body = AnthropicWire.text("")
        tool_uses = [{"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in calls]
        body["content"] = [*extra.get("before", []), *tool_uses]
        body["stop_reason"] = finish
        return body

    @staticmethod
    def error(message: str, code: str = "") -> dict[str, Any]:
        return {"type": "error", "error": {"type": code or "some_error", "message": message}}


WIRES = [pytest.param(OpenAIWire, id="openai"), pytest.param(AnthropicWire, id="anthropic")]
both = pytest.mark.parametrize("wire", WIRES)
