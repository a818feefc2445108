"""OpenAI's responses wire, for models that are served on no other. Plain dicts, no SDK.

Nothing is stored at the provider: each request carries the whole conversation. Items of reasoning come encrypted and
are sent back with the calls that they led to.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from m3b.errors import BadRequest, Transient
from m3b.messages import ImageContent, Message, Reply, StopReason, ToolCall, ToolSpec, Usage

from . import tokens
from .base import ModelFacts
from .calls import parse_arguments
from .error_mapping import find_error_in_body
from .wire import (
    EMPTY_TEXT,
    describe_omitted_images,
    format_tool_answer,
    get_replay_arguments,
    map_stop_reason,
    remove_surrogates,
    sanitize_call_id,
    sanitize_tool_name,
)

Item = dict[str, Any]
Thoughts = dict[tuple[str, ...], list[Item]]
"""Items of reasoning by the ids of the calls that they led to."""

STOP_REASONS: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refusal"}


def to_request(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    max_output: int,
    thoughts: Thoughts | None = None,
    vision: bool = False,
) -> dict[str, Any]:
    """`instructions`, `input` and `tools` of the request; equal turns always give equal bytes."""
    system = [remove_surrogates(message.text) or EMPTY_TEXT for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    request: dict[str, Any] = {
        "input": [item for message in turns for item in _to_items(message, thoughts or {}, vision)],
        "max_output_tokens": max_output,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if system:
        request["instructions"] = "\n\n".join(system)
    if tools:
        request["tools"] = [
            {"type": "function", "name": t.name, "description": t.description, "parameters": t.parameters,
             "strict": False}
            for t in tools
        ]  # fmt: skip
    return request


def _to_items(message: Message, thoughts: Thoughts, vision: bool) -> list[Item]:
    text = remove_surrogates(message.text) if vision else describe_omitted_images(message)
    images = message.images if vision else ()
    if message.role == "tool":
        output = _to_content(images, format_tool_answer(text, message.is_error, marks_errors=False))
        return [{"type": "function_call_output", "call_id": sanitize_call_id(message.call_id), "output": output}]
    if message.role == "user":
        return [{"role": "user", "content": _to_content(images, text)}]
    items: list[Item] = list(thoughts.get(tuple(call.id for call in message.calls), [])) if message.calls else []
    if text.strip() or not message.calls:
        items.append({"role": "assistant", "content": text or EMPTY_TEXT})
    for call in message.calls:
        arguments = json.dumps(get_replay_arguments(call), ensure_ascii=False)
        items.append(
            {
                "type": "function_call",
                "call_id": sanitize_call_id(call.id),
                "name": sanitize_tool_name(call),
                "arguments": arguments,
            }
        )
    return items


def _to_content(images: Sequence[ImageContent], text: str) -> str | list[Item]:
    if not images:
        return text or EMPTY_TEXT
    parts: list[Item] = [{"type": "input_text", "text": text or EMPTY_TEXT}]
    for image in images:
        data = base64.b64encode(image.data).decode("ascii")
        parts.append({"type": "input_image", "image_url": f"data:{image.media_type};base64,{data}"})
    return parts


def to_reply(
    body: Any, model_name: str, facts: ModelFacts, request_tokens: int, used_ids: frozenset[str] = frozenset()
) -> tuple[Reply, Thoughts]:
    """Read a response; see `m3b.llm.wire_openai.to_reply`.

    Raises:
        Transient: the response holds no output, or says that it failed.
        BadRequest: the response is no response at all.
    """
    if not isinstance(body, dict):
        raise BadRequest(f"{model_name}: the answer is no JSON object but {str(body)[:80]!r}. Check the address.")
    output = body.get("output")
    incomplete = body.get("incomplete_details")
    if not isinstance(output, list) or (not output and not incomplete) or body.get("status") == "failed":
        if (failure := find_error_in_body(body, model_name)) is not None:
            raise failure
        error_message = (body.get("error") or {}).get("message", "") if isinstance(body.get("error"), dict) else ""
        raise Transient(f"{model_name}: the answer holds no output. {error_message}".strip(), kind="garbled answer")
    items = [item for item in output if isinstance(item, dict)]
    calls = _parse_calls(items, used_ids)
    text, refusal = _join_text(items, "output_text", "text"), _join_text(items, "refusal", "refusal")
    stop = map_stop_reason((incomplete or {}).get("reason"), STOP_REASONS, bool(calls))
    if refusal and not text:
        text, stop = refusal, "refusal"
    reply = Reply(text, calls, stop=stop, model=str(body.get("model") or ""))
    reply = Reply(text, calls, _parse_usage(body.get("usage"), facts, request_tokens, reply), stop, reply.model)
    # Only what came encrypted can go back: without it the provider looks the item up, and it stored none.
    encrypted_items = [{key: item[key] for key in ("type", "id", "summary", "encrypted_content") if key in item}
            for item in items if item.get("type") == "reasoning" and item.get("encrypted_content")]  # fmt: skip
    return reply, {tuple(call.id for call in calls): encrypted_items} if encrypted_items and calls else {}


def _join_text(items: Sequence[Item], kind: str, key: str) -> str:
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    return "".join(str(part.get(key) or "") for part in parts if isinstance(part, dict) and part.get("type") == kind)


def _parse_calls(items: Sequence[Item], earlier_ids: frozenset[str]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    used_ids = set(earlier_ids)
    for item in items:
        if item.get("type") != "function_call":
            continue
        call_id = str(item.get("call_id") or item.get("id") or "")
        if not call_id or call_id in used_ids:
            call_id = next(
                new for n in range(len(used_ids) + 1) if (new := f"call_{len(used_ids) + n}") not in used_ids
            )
        used_ids.add(call_id)
        arguments, error = parse_arguments(item.get("arguments"))
        calls.append(ToolCall(call_id, str(item.get("name") or ""), arguments, error))
    return tuple(calls)


def _parse_usage(raw_usage: Any, facts: ModelFacts, request_tokens: int, reply: Reply) -> Usage:
    if not isinstance(raw_usage, dict) or not isinstance(raw_usage.get("input_tokens"), int):
        return facts.compute_usage(request_tokens, 0, tokens.estimate_reply_tokens(reply))
    details = raw_usage.get("input_tokens_details") or {}
    cached = min(details.get("cached_tokens") or 0, raw_usage["input_tokens"])
    cache_written = min(details.get("cache_write_tokens") or 0, raw_usage["input_tokens"] - cached)
    reasoning = (raw_usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    uncached = raw_usage["input_tokens"] - cached - cache_written
    return facts.compute_usage(uncached, cached, raw_usage.get("output_tokens") or 0, cache_written, reasoning)
