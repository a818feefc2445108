"""The relay outside the sandbox: answers the requests of an external system to its language model.

The sandbox has no network and no keys. Inside, `loopback.py` serves the chat completions protocol of OpenAI on the
loopback interface and writes each request to a file. Here it is answered with the client of m3b, metered, and refused
once the budget is used up. So the usage of all systems is measured in the same way.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.errors import Authentication, BadRequest, ContextOverflow, LLMError
from m3b.llm.base import LLM, LLMRequest
from m3b.llm.calls import parse_arguments
from m3b.messages import Message, Reply, ToolCall, ToolSpec, Usage
from m3b.writing import write_text_atomically


def read_messages(request: Mapping[str, Any]) -> list[Message]:
    """Return the conversation of a chat completion request, in an order that every provider accepts."""
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
    """Make system turns behind the beginning user turns: AIDE sends only a system turn, aider sends a late one."""
    first_turn = next(
        (index for index, message in enumerate(messages) if message.role != "system"), max(0, len(messages) - 1)
    )
    return [
        replace(message, role="user") if message.role == "system" and index >= first_turn else message
        for index, message in enumerate(messages)
    ]


def _describe_tool_choice(request: Mapping[str, Any]) -> str:
    """Return a tool choice in words, because the client of m3b cannot force a model to call a function."""
    choice = request.get("tool_choice")
    if isinstance(choice, Mapping):
        return f"Answer with a call of the function `{choice['function']['name']}`, not in text."
    return "Answer with a call of one of the functions, not in text." if choice == "required" else ""


def read_tools(request: Mapping[str, Any]) -> list[ToolSpec]:
    """Return the functions of a chat completion request."""
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
    """Return the text up to the first stop word; stop words are not sent to the model."""
    stop_words = [stops] if isinstance(stops, str) else stops or ()
    return text[: min((text.find(word) for word in stop_words if word in text), default=len(text))]


def to_completion(reply: Reply, request: Mapping[str, Any], request_number: int) -> dict[str, Any]:
    """Return a reply as the body of a chat completion."""
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


POLL_S = 0.02

LOOPBACK_PROGRAM = Path(__file__).with_name("loopback.py")
"""The program that runs inside the sandbox."""

MODEL_ROUTE = "openai/"
"""Prefix of model names for programs that choose the protocol by the name of the model."""


NO_RETRY_STATUS = 401
"""A status after which no program retries; some retry others, even 403, for minutes."""


@dataclass
class UsageMeter:
    """Usage of the language model so far, and its limits."""

    max_requests: int = 100
    max_tokens: int | None = None
    max_cost: float | None = None
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    refusal: str = ""
    failure: str = ""
    failed_in_a_row: int = 0
    """Number of consecutive requests without an answer."""

    def explain_limit(self) -> str:
        """Return why no further request is answered; empty if requests are left."""
        if self.requests >= self.max_requests:
            return f"all {self.max_requests} requests are used"
        if self.max_tokens is not None and self.usage.total_tokens >= self.max_tokens:
            return f"all {self.max_tokens} tokens are used"
        if self.max_cost is not None and self.usage.cost_usd >= self.max_cost:
            return f"all {self.max_cost} US dollars are used"
        return ""


class Relay:
    """Answers the requests that appear in a folder, in a separate thread."""

    def __init__(self, folder: Path, llm: LLM, meter: UsageMeter) -> None:
        self.folder, self.llm, self.meter = folder, llm, meter
        folder.mkdir(parents=True, exist_ok=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve_requests, name="m3b-relay", daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def _serve_requests(self) -> None:
        while not self._stop.is_set():
            request_files = sorted(self.folder.glob("ask-*.json"))
            for file in request_files:
                if not file.is_symlink():
                    self._serve_file(file)
                file.unlink(missing_ok=True)
            if not request_files:
                time.sleep(POLL_S)

    def _serve_file(self, file: Path) -> None:
        status, body = self._answer_request(file)
        write_text_atomically(
            file.with_name(file.name.replace("ask-", "told-")), json.dumps({"status": status, "body": body})
        )

    def _answer_request(self, file: Path) -> tuple[int, dict[str, Any]]:
        limit = self.meter.explain_limit()
        if limit:
            self.meter.refusal = limit
            self.meter.failed_in_a_row += 1
            return NO_RETRY_STATUS, _make_error(f"The budget of this run is used up: {limit}.")
        try:
            request = json.loads(file.read_text(encoding="utf-8"))
            messages, tools = read_messages(request), read_tools(request)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return 400, _make_error(f"This is not a chat completion request: {error}.")
        self.meter.requests += 1
        try:
            reply = self.llm.ask(LLMRequest(messages, tools))
        except LLMError as error:
            return self._record_failure(error)
        self.meter.failure, self.meter.failed_in_a_row = "", 0
        self.meter.usage = self.meter.usage + reply.usage
        return 200, to_completion(reply, request, self.meter.requests)

    def _record_failure(self, error: LLMError) -> tuple[int, dict[str, Any]]:
        """Record a failed request; return the answer, whose status tells the program whether to retry."""
        self.meter.failed_in_a_row += 1
        if isinstance(error, ContextOverflow):  # caused by the program, whose conversation is too long
            return 400, _make_error(str(error), "context_length_exceeded")
        if not isinstance(error, BadRequest) or not self.meter.usage.output_tokens:
            self.meter.failure = str(error)
        if isinstance(error, BadRequest):
            return 400, _make_error(str(error))
        return NO_RETRY_STATUS if isinstance(error, Authentication) else 502, _make_error(str(error))


def _make_error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "m3b_relay", "code": code}}
