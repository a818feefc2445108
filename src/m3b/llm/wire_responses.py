"""OpenAI's responses protocol, for models that are served on no other.

Nothing is stored at the provider: each request carries the whole conversation. Items of reasoning come encrypted and
are sent back with the calls that they led to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from m3b.messages import ImageContent, Message, Reply, StopReason

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
    get_system_text,
    get_visible_text,
    make_data_url,
    map_stop_reason,
    parse_openai_usage,
    sanitize_call_id,
    sanitize_tool_name,
)

STOP_REASONS: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refusal"}


class ResponsesWire(OpenAIWire):
    """The responses protocol."""

    def __init__(self, model: str, name: str = "") -> None:
        super().__init__(model, name)
        self._thoughts: dict[tuple[str, ...], list[Json]] = {}
        """Items of reasoning by the ids of the calls that they led to."""

    def get_method(self, client: Any) -> Callable[..., Any]:
        method: Callable[..., Any] = client.responses.create
        return method

    def adapt(self, refusal: str) -> Wire | None:
        if "stream" not in refusal or not self.can_stream:
            return None
        self.can_stream = False
        return self

    def to_body(self, request: LLMRequest, facts: ModelFacts) -> Json:
        system = [message for message in request.messages if message.role == "system"]
        turns = [message for message in request.messages if message.role != "system"]
        body: Json = {
            "input": [item for message in turns for item in self._to_items(message, facts.vision)],
            "max_output_tokens": facts.max_output,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "model": self.model,
        }
        if system:
            body["instructions"] = "\n\n".join(get_system_text(message) for message in system)
        if request.tools:
            body["tools"] = [
                {"type": "function", "name": t.name, "description": t.description, "parameters": t.parameters,
                 "strict": False}
                for t in request.tools
            ]  # fmt: skip
        return body

    def _to_items(self, message: Message, vision: bool) -> list[Json]:
        images = message.images if vision else ()
        if message.role == "tool":
            output = _to_content(images, get_marked_answer(message, vision))
            return [{"type": "function_call_output", "call_id": sanitize_call_id(message.call_id), "output": output}]
        text = get_visible_text(message, vision)
        if message.role == "user":
            return [{"role": "user", "content": _to_content(images, text)}]
        items: list[Json] = list(self._thoughts.get(tuple(call.id for call in message.calls), []))
        if text.strip() or not message.calls:
            items.append({"role": "assistant", "content": text or EMPTY_TEXT})
        for call in message.calls:
            name, arguments = sanitize_tool_name(call), dump_arguments(call)
            call_id = sanitize_call_id(call.id)
            items.append({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments})
        return items

    def to_reply(self, body: Any, request: LLMRequest, facts: ModelFacts) -> Reply:
        output = body.get("output") if isinstance(body, dict) else None
        incomplete = body.get("incomplete_details") if isinstance(body, dict) else None
        if not isinstance(output, list) or (not output and not incomplete) or body.get("status") == "failed":
            raise self.make_body_error(body, "output")
        items = [item for item in output if isinstance(item, dict)]
        calls = assign_call_ids(
            [
                make_call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments"))
                for item in items
                if item.get("type") == "function_call"
            ],
            request.used_call_ids,
        )
        text, refusal = _join_text(items, "output_text", "text"), _join_text(items, "refusal", "refusal")
        stop = map_stop_reason((incomplete or {}).get("reason"), STOP_REASONS, bool(calls))
        if refusal and not text:
            text, stop = refusal, "refusal"
        # Only what came encrypted can go back: without it the provider looks the item up, and it stored none.
        thoughts = [
            {key: item[key] for key in ("type", "id", "summary", "encrypted_content") if key in item}
            for item in items
            if item.get("type") == "reasoning" and item.get("encrypted_content")
        ]
        if thoughts and calls:
            self._thoughts[tuple(call.id for call in calls)] = thoughts
        usage = parse_openai_usage(body.get("usage"), "input", "output", facts)
        return self.make_reply(text, calls, stop, body, usage, request, facts)

    def assemble(self, events: Iterable[Any], stream: TextStream) -> Json:
        """See `Wire.assemble`; the last event holds the whole body."""
        has_events = False
        for event in self.iter_event_data(events):
            kind = event.get("type")
            has_events = has_events or bool(kind)
            if kind == "response.output_text.delta":
                stream.add_piece(event.get("delta") or "")
            elif kind in ("response.completed", "response.incomplete", "response.failed"):
                return dict(event["response"])
            elif kind == "error":
                return {"error": event}
        if not has_events:
            raise NotStreamed
        raise self.make_broken_stream_error()


def _to_content(images: Sequence[ImageContent], text: str) -> str | list[Json]:
    if not images:
        return text or EMPTY_TEXT
    urls = map(make_data_url, images)
    return [
        {"type": "input_text", "text": text or EMPTY_TEXT},
        *({"type": "input_image", "image_url": url} for url in urls),
    ]


def _join_text(items: Sequence[Json], kind: str, key: str) -> str:
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    return "".join(str(part.get(key) or "") for part in parts if isinstance(part, dict) and part.get("type") == kind)
