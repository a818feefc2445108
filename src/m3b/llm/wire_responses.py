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
from m3b.messages import Message, Picture, Reply, Stop, ToolCall, ToolSpec, Usage

from . import tokens
from .base import Facts
from .calls import parse_arguments
from .error_mapping import within
from .wire import NOTHING, answer_of, arguments_of, clean, id_of, name_of, stop_of, unseen

Item = dict[str, Any]
Thoughts = dict[tuple[str, ...], list[Item]]
"""Items of reasoning by the ids of the calls that they led to."""

STOPS: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}


def to_request(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    max_output: int,
    thoughts: Thoughts | None = None,
    vision: bool = False,
) -> dict[str, Any]:
    """`instructions`, `input` and `tools` of the request; equal turns always give equal bytes."""
    system = [clean(message.text) or NOTHING for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    request: dict[str, Any] = {
        "input": [item for message in turns for item in _items(message, thoughts or {}, vision)],
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


def _items(message: Message, thoughts: Thoughts, vision: bool) -> list[Item]:
    text = clean(message.text) if vision else unseen(message)
    images = message.images if vision else ()
    if message.role == "tool":
        output = _content(images, answer_of(text, message.is_error, marks_errors=False))
        return [{"type": "function_call_output", "call_id": id_of(message.call_id), "output": output}]
    if message.role == "user":
        return [{"role": "user", "content": _content(images, text)}]
    items: list[Item] = list(thoughts.get(tuple(call.id for call in message.calls), [])) if message.calls else []
    if text.strip() or not message.calls:
        items.append({"role": "assistant", "content": text or NOTHING})
    for call in message.calls:
        arguments = json.dumps(arguments_of(call), ensure_ascii=False)
        items.append(
            {"type": "function_call", "call_id": id_of(call.id), "name": name_of(call), "arguments": arguments}
        )
    return items


def _content(images: Sequence[Picture], text: str) -> str | list[Item]:
    if not images:
        return text or NOTHING
    parts: list[Item] = [{"type": "input_text", "text": text or NOTHING}]
    for image in images:
        data = base64.b64encode(image.data).decode("ascii")
        parts.append({"type": "input_image", "image_url": f"data:{image.media_type};base64,{data}"})
    return parts


def to_reply(
    body: Any, who: str, facts: Facts, sent: int, taken: frozenset[str] = frozenset()
) -> tuple[Reply, Thoughts]:
    """Read a response; see `m3b.llm.wire_openai.to_reply`.

    Raises:
        Transient: the response holds no output, or says that it failed.
        BadRequest: the response is no response at all.
    """
    if not isinstance(body, dict):
        raise BadRequest(f"{who}: the answer is no JSON object but {str(body)[:80]!r}. Check the address.")
    output = body.get("output")
    incomplete = body.get("incomplete_details")
    if not isinstance(output, list) or (not output and not incomplete) or body.get("status") == "failed":
        if (failure := within(body, who)) is not None:
            raise failure
        error_message = (body.get("error") or {}).get("message", "") if isinstance(body.get("error"), dict) else ""
        raise Transient(f"{who}: the answer holds no output. {error_message}".strip(), kind="garbled answer")
    items = [item for item in output if isinstance(item, dict)]
    calls = _calls(items, taken)
    text, refusal = _text(items, "output_text", "text"), _text(items, "refusal", "refusal")
    stop = stop_of((incomplete or {}).get("reason"), STOPS, bool(calls))
    if refusal and not text:
        text, stop = refusal, "refusal"
    reply = Reply(text, calls, stop=stop, model=str(body.get("model") or ""))
    reply = Reply(text, calls, _usage(body.get("usage"), facts, sent, reply), stop, reply.model)
    # Only what came encrypted can go back: without it the provider looks the item up, and it stored none.
    encrypted_items = [{key: item[key] for key in ("type", "id", "summary", "encrypted_content") if key in item}
            for item in items if item.get("type") == "reasoning" and item.get("encrypted_content")]  # fmt: skip
    return reply, {tuple(call.id for call in calls): encrypted_items} if encrypted_items and calls else {}


def _text(items: Sequence[Item], kind: str, key: str) -> str:
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    return "".join(str(part.get(key) or "") for part in parts if isinstance(part, dict) and part.get("type") == kind)


def _calls(items: Sequence[Item], taken: frozenset[str]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    used_ids = set(taken)
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


def _usage(given: Any, facts: Facts, sent: int, reply: Reply) -> Usage:
    if not isinstance(given, dict) or not isinstance(given.get("input_tokens"), int):
        return facts.usage(sent, 0, tokens.of_reply(reply))
    details = given.get("input_tokens_details") or {}
    cached = min(details.get("cached_tokens") or 0, given["input_tokens"])
    cache_written = min(details.get("cache_write_tokens") or 0, given["input_tokens"] - cached)
    reasoning = (given.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    uncached = given["input_tokens"] - cached - cache_written
    return facts.usage(uncached, cached, given.get("output_tokens") or 0, cache_written, reasoning)
