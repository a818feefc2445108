"""OpenAI's chat-completions protocol, which most other servers speak too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from m3b.messages import ImageContent, Message, Reply, StopReason, ToolCall, Usage

from .base import LLMRequest, ModelFacts
from .calls import assign_call_ids, make_call
from .streaming import NotStreamed, TextStream
from .wire import (
    EMPTY_TEXT,
    Json,
    OpenAIWire,
    Wire,
    dump_arguments,
    get_marked_answer,
    get_visible_text,
    make_data_url,
    map_stop_reason,
    parse_openai_usage,
    sanitize_call_id,
    sanitize_tool_name,
)
from .wire_responses import ResponsesWire

STOP_REASONS: dict[str, StopReason] = {"length": "length", "content_filter": "refusal"}

TOOL_IMAGES_HEADING = "The images of the results above:"

_RESPONSES_ONLY = re.compile(r"(?:only|must|use)\b[^.]{0,60}v1/responses\b[^.]{0,20}(?:not|instead)", re.IGNORECASE)
"""How OpenAI says that it serves a model on its responses protocol alone."""

_REASONING_REFUSED = re.compile(r"tools.*reasoning_effort|reasoning_effort.*tools")
_LIMIT_REFUSED = re.compile(r"(unknown|unsupported|unrecognized).*max_completion", re.IGNORECASE)


class ChatWire(OpenAIWire):
    """The chat-completions protocol.

    Args:
        model, name: see `Wire`.
        is_openai: whether requests go to OpenAI's own address.
        limit: the name of the field that limits a reply; other servers than OpenAI's often know only `max_tokens`, which
            they get if it is not given.
        extra: fields that every request carries besides the protocol's own.
    """

    def __init__(
        self,
        model: str,
        name: str = "",
        *,
        is_openai: bool = False,
        limit: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, name)
        self.stream_options = {"stream_options": {"include_usage": True}}
        self._is_openai = is_openai
        self._limit_name = limit or ("max_completion_tokens" if is_openai else "max_tokens")
        self._options: Json = {"extra_body": dict(extra)} if extra else {}
        self.extras: dict[tuple[str, ...], dict[str, Json]] = {}
        """What the server wants back with a turn's calls and m3b has no word for, by the ids of these calls: `turn` for
        the turn, and `calls` by id."""

    def get_method(self, client: Any) -> Callable[..., Any]:
        method: Callable[..., Any] = client.chat.completions.create
        return method

    def adapt(self, refusal: str) -> Wire | None:
        """Return a refusal that names a parameter changes that parameter, once each; or the protocol."""
        extra_body: Json = self._options.get("extra_body", {})
        is_reasoning_refused = bool(_REASONING_REFUSED.search(refusal))
        if self._limit_name == "max_tokens" and "max_completion_tokens" in refusal:
            self._limit_name = "max_completion_tokens"
        elif self._limit_name != "max_tokens" and _LIMIT_REFUSED.search(refusal):
            self._limit_name = "max_tokens"
        elif _RESPONSES_ONLY.search(refusal) or (is_reasoning_refused and self._is_openai):
            return ResponsesWire(self.model, self.name)
        elif is_reasoning_refused and "reasoning_effort" not in self._options:
            # Some models take tools on this protocol only without reasoning, and reason unless told not to.
            self._options["reasoning_effort"] = "none"
        elif "enable_thinking" in refusal and "enable_thinking" not in extra_body:
            self._options["extra_body"] = {**extra_body, "enable_thinking": False}
        elif "stream" in refusal and self.can_stream:
            # First without the wish for the usage, which older servers do not know; then without a stream.
            self.can_stream, self.stream_options = bool(self.stream_options), {}
        else:
            return None
        return self

    def to_body(self, request: LLMRequest, facts: ModelFacts) -> Json:
        """See `Wire.to_body`.

        The protocol has no images in tools' answers: they go into a turn of the user after the last answer of the turn.
        """
        turns: list[Json] = []
        pending_images: tuple[ImageContent, ...] = ()
        for message in request.messages:
            images = message.images if message.role == "user" else ()
            if pending_images and message.role != "tool":
                if message.role == "user":
                    images = (*pending_images, *images)
                else:
                    turns.append({"role": "user", "content": _to_image_content(TOOL_IMAGES_HEADING, pending_images)})
                pending_images = ()
            turn = self._to_turn(message, facts.vision)
            if images and facts.vision:
                turn["content"] = _to_image_content(turn["content"], images)
            turns.append(turn)
            pending_images += message.images if facts.vision and message.role == "tool" else ()
        if pending_images:
            turns.append({"role": "user", "content": _to_image_content(TOOL_IMAGES_HEADING, pending_images)})
        body: Json = {"model": self.model, "messages": turns, self._limit_name: facts.max_output, **self._options}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
        return body

    def _to_turn(self, message: Message, vision: bool) -> Json:
        if message.role == "tool":
            content = get_marked_answer(message, vision)
            return {"role": "tool", "tool_call_id": sanitize_call_id(message.call_id), "content": content}
        text = get_visible_text(message, vision)
        if not message.calls:
            return {"role": message.role, "content": text or EMPTY_TEXT}
        extra_fields = self.extras.get(tuple(call.id for call in message.calls), {})
        calls: list[Json] = []
        for call in message.calls:
            function = {"name": sanitize_tool_name(call), "arguments": dump_arguments(call)}
            entry = {"id": sanitize_call_id(call.id), "type": "function", "function": function}
            calls.append({**entry, **extra_fields.get("calls", {}).get(call.id, {})})
        return {"role": message.role, "content": text or None, "tool_calls": calls, **extra_fields.get("turn", {})}

    def to_reply(self, body: Any, request: LLMRequest, facts: ModelFacts) -> Reply:
        choices = body.get("choices") if isinstance(body, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            raise self.make_body_error(body, "choice")
        calls = self._parse_calls(message, request.used_call_ids)
        text, refusal = _join_text(message.get("content")), message.get("refusal")
        stop = map_stop_reason(choice.get("finish_reason"), STOP_REASONS, bool(calls))
        if isinstance(refusal, str) and refusal and not message.get("content"):
            text, stop = refusal, "refusal"
        return self.make_reply(text, calls, stop, body, _parse_usage(body.get("usage"), facts), request, facts)

    def _parse_calls(self, message: Json, used_ids: set[str]) -> tuple[ToolCall, ...]:
        """Read the calls of a reply, and keep what the server wants back with them."""
        raw_calls = [
            raw_call
            for raw_call in message.get("tool_calls") or ()
            if isinstance(raw_call, dict) and isinstance(raw_call.get("function"), dict)
        ]
        calls = assign_call_ids(
            [
                make_call(raw_call.get("id"), raw_call["function"].get("name"), raw_call["function"].get("arguments"))
                for raw_call in raw_calls
            ],
            used_ids,
        )
        extra_by_call = {
            call.id: {"extra_content": raw_call["extra_content"]}  # Gemini's signatures of its thoughts
            for call, raw_call in zip(calls, raw_calls, strict=True)
            if raw_call.get("extra_content")
        }
        reasoning = message.get("reasoning_content")
        turn_extra = {"reasoning_content": reasoning} if calls and isinstance(reasoning, str) else {}
        if turn_extra or extra_by_call:
            self.extras[tuple(call.id for call in calls)] = {"turn": turn_extra, "calls": extra_by_call}
        return calls

    def assemble(self, events: Iterable[Any], stream: TextStream) -> Json:
        body: Json = {}
        message: Json = {"role": "assistant", "content": None}
        calls: list[Json] = []
        finish_reason = None
        for chunk in self.iter_event_data(events):
            body |= {key: chunk[key] for key in ("id", "created", "model", "usage", "error") if chunk.get(key)}
            choices = chunk.get("choices")
            choice = choices[0] if isinstance(choices, list) and choices else None
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            _apply_delta(message, calls, delta if isinstance(delta, dict) else {}, stream)
            finish_reason = choice.get("finish_reason") or finish_reason
        if body.get("error"):
            return body
        if not body and not finish_reason and len(message) == 2:
            raise NotStreamed
        if not finish_reason:
            raise self.make_broken_stream_error()
        if calls:
            message["tool_calls"] = [{key: value for key, value in call.items() if key != "index"} for call in calls]
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        return {**body, "object": "chat.completion", "choices": [choice]}


def _to_image_content(text: str, images: Sequence[ImageContent]) -> list[Json]:
    urls = map(make_data_url, images)
    return [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


def _join_text(content: Any) -> str:
    """Return the text; some servers give a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _parse_usage(raw_usage: Any, facts: ModelFacts) -> Usage | None:
    usage = parse_openai_usage(raw_usage, "prompt", "completion", facts)
    cost = raw_usage.get("cost") if usage and facts.price_in is None else None
    if usage and isinstance(cost, int | float) and not isinstance(cost, bool) and cost > 0:
        return replace(usage, cost_usd=float(cost))  # in US dollars, from relays that say what they charge
    return usage


def _apply_delta(message: Json, calls: list[Json], delta: Json, stream: TextStream) -> None:
    """Apply one delta: texts grow, calls are found by their index, everything else stays as it came last."""
    for key, value in delta.items():
        if key == "tool_calls":
            for piece in value or ():
                _add_call_piece(calls, piece)
        elif key == "content" and isinstance(value, list):
            message[key] = [*(message.get(key) or []), *value]
        elif key != "role" and isinstance(value, str):
            message[key] = (message.get(key) or "") + value
            if key == "content":
                stream.add_piece(value)
        elif key != "role" and value is not None:
            message[key] = value


def _add_call_piece(calls: list[Json], piece: Any) -> None:
    if not isinstance(piece, dict):
        return
    call = _find_or_add_call(calls, piece)
    function_piece = piece.get("function") or {}
    function = call["function"]
    # The name comes whole; some servers repeat it with every piece.
    function["name"] = function["name"] or function_piece.get("name") or ""
    arguments_piece = function_piece.get("arguments")
    if isinstance(arguments_piece, str):
        function["arguments"] = (function["arguments"] or "") + arguments_piece
    elif arguments_piece is not None:
        function["arguments"] = arguments_piece
    call |= {key: value for key, value in piece.items() if key not in ("function", "index", "id") and value is not None}


def _find_or_add_call(calls: list[Json], piece: Json) -> Json:
    """Return the call that a piece belongs to. Servers that number none, or all with 0, begin a new one with a new id."""
    index, call_id = piece.get("index"), piece.get("id")
    matching_calls = [call for call in calls if index is None or call["index"] == index]
    if matching_calls and (not call_id or matching_calls[-1]["id"] in (None, "", call_id)):
        matching_calls[-1]["id"] = matching_calls[-1]["id"] or call_id
        return matching_calls[-1]
    calls.append({"index": index, "id": call_id, "type": "function", "function": {"name": "", "arguments": None}})
    return calls[-1]
