"""The language model of an outside system: an address inside the sandbox, answered by m3b outside of it.

The sandbox has no network and no keys. Inside, `relay_inside.py` listens on the loopback with the wire of OpenAI's chat
completions and hands each request over as a file; here it is answered with m3b's own client, counted, and refused once the
budget is spent. Every system is so measured by one meter.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import LLMError
from m3b.messages import Message, Reply, ToolCall, ToolSpec, Usage

from .base import LLM
from .calls import parse_arguments

POLL_S = 0.02

INSIDE = Path(__file__).with_name("relay_inside.py")
"""The program that runs inside the sandbox."""

ROUTE = "openai/"
"""What programs that choose a wire by the model's name want before it."""


@dataclass
class Meter:
    """What was asked so far, and how much may be."""

    max_requests: int = 100
    max_tokens: int | None = None
    max_cost: float | None = None
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    refused: str = ""
    failure: str = ""

    def over(self) -> str:
        """Why no further request is answered; empty while one may be."""
        if self.requests >= self.max_requests:
            return f"all {self.max_requests} requests are used"
        if self.max_tokens is not None and self.usage.total_tokens >= self.max_tokens:
            return f"all {self.max_tokens} tokens are used"
        if self.max_cost is not None and self.usage.cost_usd >= self.max_cost:
            return f"the {self.max_cost} US dollars are used"
        return ""


class Relay:
    """Answers the requests that appear in a folder, in a thread of its own."""

    def __init__(self, folder: Path, llm: LLM, meter: Meter) -> None:
        self.folder, self.llm, self.meter = folder, llm, meter
        folder.mkdir(parents=True, exist_ok=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="m3b-relay", daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def _work(self) -> None:
        while not self._stop.is_set():
            asked = sorted(self.folder.glob("ask-*.json"))
            for file in asked:
                if not file.is_symlink():
                    self._serve(file)
                file.unlink(missing_ok=True)
            if not asked:
                time.sleep(POLL_S)

    def _serve(self, file: Path) -> None:
        status, body = self._answer(file)
        part = file.with_name(file.name.replace("ask-", ".part-"))
        part.write_text(json.dumps({"status": status, "body": body}), encoding="utf-8")
        part.replace(file.with_name(file.name.replace("ask-", "told-")))

    def _answer(self, file: Path) -> tuple[int, dict[str, Any]]:
        spent = self.meter.over()
        if spent:
            self.meter.refused = spent
            return 403, _error(f"The budget of this run is spent: {spent}.")
        try:
            asked = json.loads(file.read_text(encoding="utf-8"))
            messages, tools = read_messages(asked), read_tools(asked)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return 400, _error(f"This is no chat completion request: {error}.")
        self.meter.requests += 1
        try:
            reply = self.llm.ask(messages, tools)
        except LLMError as error:
            self.meter.failure = str(error)
            return 502, _error(str(error))
        self.meter.usage = self.meter.usage + reply.usage
        return 200, completion(reply, str(asked.get("model", "")), self.meter.requests)


def read_messages(asked: Mapping[str, Any]) -> list[Message]:
    """The conversation of a chat completion request."""
    found = []
    for one in asked["messages"]:
        role = {"developer": "system", "function": "tool"}.get(one["role"], one["role"])
        calls = tuple(_call(call) for call in one.get("tool_calls") or ())
        found.append(Message(role, _text(one.get("content")), calls, str(one.get("tool_call_id") or "")))
    return found


def read_tools(asked: Mapping[str, Any]) -> list[ToolSpec]:
    """The functions of a chat completion request."""
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


def completion(reply: Reply, model: str, number: int) -> dict[str, Any]:
    """A reply as the body of a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
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
    return {"id": f"relay-{number}", "object": "chat.completion", "created": int(time.time()), "model": model,
            "choices": [choice], "usage": used, "system_fingerprint": None}  # fmt: skip


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "m3b_relay", "code": None}}
