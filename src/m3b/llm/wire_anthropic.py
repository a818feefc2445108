"""The Anthropic messages wire: conversations to requests, responses to replies. Plain dicts, no SDK."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from m3b.errors import BadRequest, Transient
from m3b.messages import Message, Reply, StopReason, ToolCall, ToolSpec, Usage

from . import tokens
from .base import ModelFacts
from .calls import parse_arguments
from .error_mapping import find_error_in_body
from .wire import (
    EMPTY_TEXT,
    describe_omitted_images,
    encode_base64,
    format_tool_answer,
    get_replay_arguments,
    map_stop_reason,
    remove_surrogates,
    sanitize_call_id,
    sanitize_tool_name,
)

STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal",
}  # fmt: skip
CACHE_CONTROL = {"type": "ephemeral"}
THINKING_BLOCK_TYPES = ("thinking", "redacted_thinking")

Block = dict[str, Any]


def fingerprints(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[str]:
    """For each turn, a digest of the tools and of everything up to and with that turn."""
    running_digest = hashlib.sha256(repr(tuple(tools)).encode("utf-8", "replace"))
    digests = []
    for message in messages:
        running_digest.update(repr(message).encode("utf-8", "replace"))
        digests.append(running_digest.copy().hexdigest())
    return digests


def to_request(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    recall: Callable[[str], list[Block] | None] | None = None,
    vision: bool = False,
) -> dict[str, Any]:
    """`system`, `messages` and `tools` of the request.

    The answers of one turn's calls go into one user turn, and so does the user's text after them. The cache is marked
    at the four places that the provider allows: the last tool, the system, and the last two user turns; the rest of
    the bytes stays the same from request to request.

    Args:
        messages: the conversation.
        tools: the tools.
        recall: the blocks in which a turn came, by its fingerprint, where they must go back as they came.
        vision: whether the model takes images.
    """
    digests = fingerprints(messages, tools)
    system: list[Block] = []
    turns: list[dict[str, Any]] = []
    for message, digest in zip(messages, digests, strict=True):
        if message.role == "system":
            system.append({"type": "text", "text": remove_surrogates(message.text) or EMPTY_TEXT})
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = (recall(digest) if recall and role == "assistant" else None) or _to_blocks(message, vision)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": list(blocks)})
    request: dict[str, Any] = {"messages": turns}
    if system:
        request["system"] = [*system[:-1], _mark_cached(system[-1])]
    if tools:
        definitions = [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in tools]
        request["tools"] = [*definitions[:-1], _mark_cached(definitions[-1])]
    for turn in [turn for turn in turns if turn["role"] == "user"][-2:]:
        turn["content"][-1] = _mark_cached(turn["content"][-1])
    return request


def _mark_cached(block: Block) -> Block:
    return {**block, "cache_control": CACHE_CONTROL}


def _to_image_blocks(message: Message, vision: bool) -> list[Block]:
    sources = [
        {"type": "base64", "media_type": image.media_type, "data": encode_base64(image)} for image in message.images
    ]
    return [{"type": "image", "source": source} for source in sources] if vision else []


def _to_blocks(message: Message, vision: bool) -> list[Block]:
    images = _to_image_blocks(message, vision)
    message_text = remove_surrogates(message.text) if vision else describe_omitted_images(message)
    if message.role == "tool":
        content: Any = format_tool_answer(message_text, message.is_error, marks_errors=True)
        content = [{"type": "text", "text": content}, *images] if images else content
        block: Block = {"type": "tool_result", "tool_use_id": sanitize_call_id(message.call_id), "content": content}
        return [{**block, "is_error": True} if message.is_error else block]
    # A turn of nothing but white space is refused, and so is white space at the end of an assistant's turn.
    text = message_text.rstrip() if message.role == "assistant" else message_text
    blocks: list[Block] = [*images, *([{"type": "text", "text": text}] if text.strip() else [])]
    for call in message.calls:
        blocks.append(
            {
                "type": "tool_use",
                "id": sanitize_call_id(call.id),
                "name": sanitize_tool_name(call),
                "input": get_replay_arguments(call),
            }
        )
    return blocks or [{"type": "text", "text": EMPTY_TEXT}]


def to_reply(body: Any, model_name: str, facts: ModelFacts, request_tokens: int) -> tuple[Reply, list[Block] | None]:
    """Read a response.

    Args:
        body: the decoded JSON of the response.
        model_name: the model's name, for errors.
        facts: for the price.
        request_tokens: estimated tokens of the request, for servers that do not count.

    Returns:
        The reply; and its blocks, where they hold thoughts that must be sent back with the answers to its calls.

    Raises:
        Transient: the response holds an error in place of content.
        BadRequest: the response is no message at all.
    """
    if not isinstance(body, dict):
        raise BadRequest(f"{model_name}: the answer is no JSON object but {str(body)[:80]!r}. Check the address.")
    content = body.get("content")
    if not isinstance(content, list):
        if (failure := find_error_in_body(body, model_name)) is not None:
            raise failure
        error = body.get("error")
        error_message = error.get("message") if isinstance(error, dict) else error
        raise Transient(
            f"{model_name}: the answer holds no content{f': {error_message}' if error_message else ''}.",
            kind="garbled answer",
        )
    blocks = [block for block in content if isinstance(block, dict)]
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    calls = tuple(_to_tool_call(block) for block in blocks if block.get("type") == "tool_use")
    stop = map_stop_reason(body.get("stop_reason"), STOP_REASONS, bool(calls))
    is_truncated = stop == "length" and bool(blocks) and blocks[-1].get("type") == "tool_use"
    if is_truncated:
        # The provider closes the brackets of a call that was cut, so the parser cannot see it.
        error_message = (
            "The output limit was reached within this call, so its arguments are not complete. Nothing was run."
        )
        error_message += " Send less at once: write long files in several smaller calls."
        calls = (*calls[:-1], replace(calls[-1], arguments={}, parse_error=error_message))
    reply = Reply(text, calls, stop=stop, model=str(body.get("model") or ""))
    has_thoughts = any(block.get("type") in THINKING_BLOCK_TYPES for block in blocks)
    thought_blocks = blocks if has_thoughts and calls and not any(call.parse_error for call in calls) else None
    return replace(reply, usage=_parse_usage(body.get("usage"), facts, request_tokens, reply)), thought_blocks


def _to_tool_call(block: Block) -> ToolCall:
    arguments, error = parse_arguments(block.get("input"))
    return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), arguments, error)


def _parse_usage(raw_usage: Any, facts: ModelFacts, request_tokens: int, reply: Reply) -> Usage:
    """`input_tokens` of this wire leaves out what was read from and written to the cache; m3b's counts everything."""
    if not isinstance(raw_usage, dict) or not isinstance(raw_usage.get("input_tokens"), int):
        return facts.compute_usage(request_tokens, 0, tokens.estimate_reply_tokens(reply))
    cached = raw_usage.get("cache_read_input_tokens") or 0
    cache_written = raw_usage.get("cache_creation_input_tokens") or 0
    reasoning = (raw_usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    return facts.compute_usage(
        raw_usage["input_tokens"], cached, raw_usage.get("output_tokens") or 0, cache_written, reasoning
    )
