"""The OpenAI chat-completions wire: conversations to requests, responses to replies. Plain dicts, no SDK."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
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
    encode_base64,
    format_tool_answer,
    get_replay_arguments,
    map_stop_reason,
    remove_surrogates,
    sanitize_call_id,
    sanitize_tool_name,
)

STOP_REASONS: dict[str, StopReason] = {"length": "length", "content_filter": "refusal"}

TOOL_IMAGES_HEADING = "The images of the results above:"

Extras = dict[tuple[str, ...], dict[str, Any]]
"""What a server wants back with a turn's calls and m3b has no word for, by the ids of these calls."""


def to_messages(
    messages: Sequence[Message], extras: Extras | None = None, vision: bool = False
) -> list[dict[str, Any]]:
    """The conversation as the request's `messages`; equal turns always give equal bytes.

    The protocol has no images in tools' answers: they go into a turn of the user after the last answer of the turn.
    """
    turns: list[dict[str, Any]] = []
    pending_images: tuple[ImageContent, ...] = ()
    for message in messages:
        images = message.images if message.role == "user" else ()
        if pending_images and message.role != "tool":
            if message.role == "user":
                images = (*pending_images, *images)
            else:
                turns.append({"role": "user", "content": _to_image_content(TOOL_IMAGES_HEADING, pending_images)})
            pending_images = ()
        turn = _to_turn(message, extras or {}, vision)
        if images and vision:
            turn["content"] = _to_image_content(turn["content"], images)
        turns.append(turn)
        pending_images += message.images if vision and message.role == "tool" else ()
    return (
        [*turns, {"role": "user", "content": _to_image_content(TOOL_IMAGES_HEADING, pending_images)}]
        if pending_images
        else turns
    )


def _to_image_content(text: str, images: Sequence[ImageContent]) -> list[dict[str, Any]]:
    """A content of text and images."""
    urls = [f"data:{image.media_type};base64,{encode_base64(image)}" for image in images]
    return [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


def _to_turn(message: Message, extras: Extras, vision: bool) -> dict[str, Any]:
    text = remove_surrogates(message.text) if vision else describe_omitted_images(message)
    if message.role == "tool":
        text = format_tool_answer(text, message.is_error, marks_errors=False)
        return {"role": "tool", "tool_call_id": sanitize_call_id(message.call_id), "content": text}
    if message.role != "assistant":
        return {"role": message.role, "content": text or EMPTY_TEXT}
    if not message.calls:
        return {"role": "assistant", "content": remove_surrogates(message.text) or EMPTY_TEXT}
    extra_fields = extras.get(tuple(call.id for call in message.calls), {})
    calls: list[dict[str, Any]] = []
    for call in message.calls:
        arguments = json.dumps(get_replay_arguments(call), ensure_ascii=False)
        call_entry = {
            "id": sanitize_call_id(call.id),
            "type": "function",
            "function": {"name": sanitize_tool_name(call), "arguments": arguments},
        }
        calls.append({**call_entry, **extra_fields.get("calls", {}).get(call.id, {})})
    return {
        "role": "assistant",
        "content": remove_surrogates(message.text) or None,
        "tool_calls": calls,
        **extra_fields.get("turn", {}),
    }


def to_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The request's `tools`."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def to_reply(
    body: Any, model_name: str, facts: ModelFacts, request_tokens: int, used_ids: frozenset[str] = frozenset()
) -> tuple[Reply, Extras]:
    """Read a response.

    Args:
        body: the decoded JSON of the response.
        model_name: the model's name, for errors.
        facts: for the price.
        request_tokens: estimated tokens of the request, for servers that do not count.
        used_ids: ids that earlier calls of the conversation have; a server that repeats one is given another.

    Raises:
        Transient: the response holds no choice, or an error in place of one.
        BadRequest: the response is no chat completion at all.
    """
    if not isinstance(body, dict):
        raise BadRequest(
            f"{model_name}: the answer is no JSON object but {str(body)[:80]!r}. Check the address; most servers want it to"
            " end in /v1."
        )
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        if (failure := find_error_in_body(body, model_name)) is not None:
            raise failure
        error = body.get("error")
        error_message = error.get("message") if isinstance(error, dict) else error
        raise Transient(
            f"{model_name}: the answer holds no choice{f': {error_message}' if error_message else ''}.",
            kind="garbled answer",
        )
    calls, extras = _parse_calls(message, used_ids)
    text = message.get("content")
    refusal = message.get("refusal")
    stop = map_stop_reason(choice.get("finish_reason"), STOP_REASONS, bool(calls))
    if isinstance(refusal, str) and refusal and not text:
        text, stop = refusal, "refusal"
    reply = Reply(_join_text(text), calls, stop=stop, model=str(body.get("model") or ""))
    return Reply(
        reply.text, calls, _parse_usage(body.get("usage"), facts, request_tokens, reply), stop, reply.model
    ), extras


def _join_text(content: Any) -> str:
    """The text; some servers give a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _parse_calls(message: dict[str, Any], earlier_ids: frozenset[str]) -> tuple[tuple[ToolCall, ...], Extras]:
    calls: list[ToolCall] = []
    used_ids = set(earlier_ids)
    extra_by_call: dict[str, dict[str, Any]] = {}
    for raw_call in message.get("tool_calls") or ():
        function = raw_call.get("function") if isinstance(raw_call, dict) else None
        if not isinstance(function, dict):
            continue
        call_id = str(raw_call.get("id") or "")
        if not call_id or call_id in used_ids:
            call_id = next(
                new for n in range(len(used_ids) + 1) if (new := f"call_{len(used_ids) + n}") not in used_ids
            )
        used_ids.add(call_id)
        arguments, error = parse_arguments(function.get("arguments"))
        calls.append(ToolCall(call_id, str(function.get("name") or ""), arguments, error))
        if raw_call.get("extra_content"):  # Gemini's signatures of its thoughts
            extra_by_call[call_id] = {"extra_content": raw_call["extra_content"]}
    turn_extra = {key: message[key] for key in ("reasoning_content",) if calls and isinstance(message.get(key), str)}
    if not turn_extra and not extra_by_call:
        return tuple(calls), {}
    return tuple(calls), {tuple(call.id for call in calls): {"turn": turn_extra, "calls": extra_by_call}}


def _parse_usage(raw_usage: Any, facts: ModelFacts, request_tokens: int, reply: Reply) -> Usage:
    if not isinstance(raw_usage, dict) or not isinstance(raw_usage.get("prompt_tokens"), int):
        return facts.compute_usage(request_tokens, 0, tokens.estimate_reply_tokens(reply))
    details = raw_usage.get("prompt_tokens_details") or {}
    input_tokens = raw_usage["prompt_tokens"]
    cached = details.get("cached_tokens") or raw_usage.get("prompt_cache_hit_tokens") or 0
    cached = min(cached, input_tokens)
    cache_written = min(details.get("cache_write_tokens") or 0, input_tokens - cached)
    reasoning = (raw_usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    output = raw_usage.get("completion_tokens") or 0
    usage = facts.compute_usage(input_tokens - cached - cache_written, cached, output, cache_written, reasoning)
    billed_cost = raw_usage.get("cost")  # in US dollars, from relays that say what they charge
    if (
        facts.price_in is None
        and isinstance(billed_cost, int | float)
        and not isinstance(billed_cost, bool)
        and billed_cost > 0
    ):
        return replace(usage, cost_usd=float(billed_cost))
    return usage
