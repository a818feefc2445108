"""Anthropic's messages protocol."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

from m3b.messages import Message, Reply, StopReason, ToolCall, ToolSpec, Usage

from .base import LLMRequest, ModelFacts
from .calls import make_call
from .streaming import NotStreamed, TextStream
from .wire import (
    EMPTY_TEXT,
    Json,
    Wire,
    encode_base64,
    get_replay_arguments,
    get_system_text,
    get_visible_text,
    map_stop_reason,
    sanitize_call_id,
    sanitize_tool_name,
)

STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal",
}  # fmt: skip
CACHE_CONTROL = {"type": "ephemeral"}
THINKING_BLOCK_TYPES = ("thinking", "redacted_thinking")
TRUNCATED_CALL = (
    "The output limit was reached within this call, so its arguments are not complete. Nothing was run. Send less at once:"
    " write long files in several smaller calls."
)
_TEXT_FIELD_BY_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class AnthropicWire(Wire):
    """The messages protocol.

    Blocks of thought that came with calls are kept in memory and sent back as they came, as long as nothing before them
    was edited; after an edit or a resume the conversation goes without them.
    """

    dump_options: ClassVar[Json] = {"mode": "json", "exclude_unset": True, "warnings": False}
    address_hint = "Check the address."

    def __init__(self, model: str, name: str = "") -> None:
        super().__init__(model, name)
        self._thoughts: dict[str, list[Json]] = {}

    def import_sdk(self) -> tuple[ModuleType, Callable[..., Any]]:
        import anthropic

        return anthropic, anthropic.Anthropic

    def get_method(self, client: Any) -> Callable[..., Any]:
        method: Callable[..., Any] = client.messages.create
        return method

    def adapt(self, refusal: str) -> Wire | None:
        """If the provider refuses its own thoughts back, they are forgotten."""
        if not self._thoughts or "thinking" not in refusal:
            return None
        self._thoughts.clear()
        return self

    def to_body(self, request: LLMRequest, facts: ModelFacts) -> Json:
        """See `Wire.to_body`.

        The answers of one turn's calls go into one user turn, and so does the user's text after them. The cache is marked
        at the four places that the provider allows: the last tool, the system, and the last two user turns.
        """
        system: list[Json] = []
        turns: list[Json] = []
        for message, digest in zip(request.messages, _digest_turns(request.messages, request.tools), strict=True):
            if message.role == "system":
                system.append({"type": "text", "text": get_system_text(message)})
                continue
            role = "assistant" if message.role == "assistant" else "user"
            thought_blocks = self._thoughts.get(digest) if role == "assistant" else None
            blocks = thought_blocks or _to_blocks(message, facts.vision)
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"].extend(blocks)
            else:
                turns.append({"role": role, "content": list(blocks)})
        body: Json = {"messages": turns}
        if system:
            body["system"] = [*system[:-1], _mark_cached(system[-1])]
        if request.tools:
            definitions = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
            body["tools"] = [*definitions[:-1], _mark_cached(definitions[-1])]
        for turn in [turn for turn in turns if turn["role"] == "user"][-2:]:
            turn["content"][-1] = _mark_cached(turn["content"][-1])
        return {**body, "model": self.model, "max_tokens": facts.max_output}

    def to_reply(self, body: Any, request: LLMRequest, facts: ModelFacts) -> Reply:
        content = body.get("content") if isinstance(body, dict) else None
        if not isinstance(content, list):
            raise self.make_body_error(body, "content")
        blocks = [block for block in content if isinstance(block, dict)]
        text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
        calls = [
            make_call(block.get("id"), block.get("name"), block.get("input"))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        stop = map_stop_reason(body.get("stop_reason"), STOP_REASONS, bool(calls))
        if stop == "length" and blocks and blocks[-1].get("type") == "tool_use":
            # The provider closes the brackets of a call that was cut, so the parser cannot see it.
            calls[-1] = replace(calls[-1], arguments={}, parse_error=TRUNCATED_CALL)
        usage = _parse_usage(body.get("usage"), facts)
        reply = self.make_reply(text, calls, stop, body, usage, request, facts)
        self._keep_thoughts(blocks, reply, request)
        return reply

    def _keep_thoughts(self, blocks: list[Json], reply: Reply, request: LLMRequest) -> None:
        """Keep the blocks of a reply that must be sent back, as they came, with the answers to its calls."""
        has_thoughts = any(block.get("type") in THINKING_BLOCK_TYPES for block in blocks)
        if has_thoughts and reply.calls and not any(call.parse_error for call in reply.calls):
            self._thoughts[_digest_turns([*request.messages, reply.to_message()], request.tools)[-1]] = blocks

    def assemble(self, events: Iterable[Any], stream: TextStream) -> Json:
        body: Json | None = None
        blocks: dict[int, Json] = {}
        raw_inputs: dict[int, str] = {}
        is_finished = False
        for event in self.iter_event_data(events):
            kind = event.get("type")
            if kind == "message_start":
                body = dict(event["message"])
            elif kind == "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            elif kind == "content_block_delta" and event["index"] in blocks:
                _apply_delta(blocks[event["index"]], event["index"], event["delta"], raw_inputs, stream)
            elif kind == "message_delta" and body is not None:
                body |= {key: value for key, value in event["delta"].items() if value is not None}
                # Counts at the end are totals, not what was added.
                final_usage = {key: value for key, value in (event.get("usage") or {}).items() if value is not None}
                body["usage"] = {**(body.get("usage") or {}), **final_usage}
            elif kind == "message_stop":
                is_finished = True
        if body is None:
            raise NotStreamed
        if not is_finished and not body.get("stop_reason"):
            raise self.make_broken_stream_error()
        for index, text in raw_inputs.items():
            blocks[index]["input"] = _parse_input(text)
        body["content"] = [blocks[index] for index in sorted(blocks)]
        return body


def _digest_turns(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[str]:
    """Return, for each turn, a digest of the tools and of everything up to and with that turn."""
    running_digest = hashlib.sha256(repr(tuple(tools)).encode("utf-8", "replace"))
    digests = []
    for message in messages:
        running_digest.update(repr(message).encode("utf-8", "replace"))
        digests.append(running_digest.copy().hexdigest())
    return digests


def _mark_cached(block: Json) -> Json:
    return {**block, "cache_control": CACHE_CONTROL}


def _to_blocks(message: Message, vision: bool) -> list[Json]:
    images: list[Json] = [
        {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": encode_base64(image)}}
        for image in (message.images if vision else ())
    ]
    text = get_visible_text(message, vision)
    if message.role == "tool":
        text = text or EMPTY_TEXT
        content = [{"type": "text", "text": text}, *images] if images else text
        block = {"type": "tool_result", "tool_use_id": sanitize_call_id(message.call_id), "content": content}
        return [{**block, "is_error": True} if message.is_error else block]
    # A turn of nothing but white space is refused, and so is white space at the end of an assistant's turn.
    text = text.rstrip() if message.role == "assistant" else text
    blocks: list[Json] = [*images, *([{"type": "text", "text": text}] if text.strip() else [])]
    blocks += [_to_tool_use(call) for call in message.calls]
    return blocks or [{"type": "text", "text": EMPTY_TEXT}]


def _to_tool_use(call: ToolCall) -> Json:
    name, arguments = sanitize_tool_name(call), get_replay_arguments(call)
    return {"type": "tool_use", "id": sanitize_call_id(call.id), "name": name, "input": arguments}


def _parse_usage(raw_usage: Any, facts: ModelFacts) -> Usage | None:
    """`input_tokens` of this protocol leaves out what was read from and written to the cache; m3b's counts everything."""
    if not isinstance(raw_usage, dict) or not isinstance(raw_usage.get("input_tokens"), int):
        return None
    cached = raw_usage.get("cache_read_input_tokens") or 0
    cache_written = raw_usage.get("cache_creation_input_tokens") or 0
    reasoning = (raw_usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    output = raw_usage.get("output_tokens") or 0
    return facts.compute_usage(raw_usage["input_tokens"], cached, output, cache_written, reasoning)


def _apply_delta(block: Json, index: int, delta: Json, raw_inputs: dict[int, str], stream: TextStream) -> None:
    kind = delta.get("type")
    if kind in _TEXT_FIELD_BY_DELTA:
        key = _TEXT_FIELD_BY_DELTA[kind]
        block[key] = (block.get(key) or "") + (delta.get(key) or "")
        if kind == "text_delta":
            stream.add_piece(delta.get("text") or "")
    elif kind == "input_json_delta":
        raw_inputs[index] = raw_inputs.get(index, "") + (delta.get("partial_json") or "")
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta.get("citation")]


def _parse_input(text: str) -> Any:
    """Return the arguments of a call; text that is no JSON stays text, whose fault is told to the model."""
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except ValueError:
        return text
