"""Pieces of a message, put together again into the body that it would have been without streaming."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .streaming import NotStreamed, TextStream, make_broken_stream_error

Json = dict[str, Any]

_TEXT_FIELD_BY_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def assemble_message(events: Iterable[Any], relay: TextStream, model_name: str) -> Json:
    """The whole body.

    Args:
        events: the SDK's stream.
        relay: told the text as it comes.
        model_name: the model's name, for errors.

    Raises:
        NotStreamed: nothing came that is part of a stream.
        Transient: the stream ended before the message was finished.
    """
    body: Json | None = None
    blocks: dict[int, Json] = {}
    raw_inputs: dict[int, str] = {}
    is_finished = False
    for event in events:
        payload = event.model_dump(mode="json", exclude_unset=True, warnings=False) if _is_model(event) else event
        kind = payload.get("type") if isinstance(payload, dict) else None
        if kind == "message_start":
            body = dict(payload["message"])
        elif kind == "content_block_start":
            blocks[payload["index"]] = dict(payload["content_block"])
        elif kind == "content_block_delta" and payload["index"] in blocks:
            _apply_delta(blocks[payload["index"]], payload["index"], payload["delta"], raw_inputs, relay)
        elif kind == "message_delta" and body is not None:
            body |= {key: value for key, value in payload["delta"].items() if value is not None}
            # Counts at the end are totals, not what was added.
            final_usage = {key: value for key, value in (payload.get("usage") or {}).items() if value is not None}
            body["usage"] = {**(body.get("usage") or {}), **final_usage}
        elif kind == "message_stop":
            is_finished = True
    if body is None:
        raise NotStreamed
    if not is_finished and not body.get("stop_reason"):
        raise make_broken_stream_error(model_name)
    for index, text in raw_inputs.items():
        blocks[index]["input"] = _parse_input(text)
    body["content"] = [blocks[index] for index in sorted(blocks)]
    return body


def _is_model(event: Any) -> bool:
    return hasattr(event, "model_dump")


def _apply_delta(block: Json, index: int, delta: Json, raw_inputs: dict[int, str], relay: TextStream) -> None:
    kind = delta.get("type")
    if kind in _TEXT_FIELD_BY_DELTA:
        key = _TEXT_FIELD_BY_DELTA[kind]
        block[key] = (block.get(key) or "") + (delta.get(key) or "")
        if kind == "text_delta":
            relay.add_piece(delta.get("text") or "")
    elif kind == "input_json_delta":
        raw_inputs[index] = raw_inputs.get(index, "") + (delta.get("partial_json") or "")
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta.get("citation")]


def _parse_input(text: str) -> Any:
    """The arguments of a call; text that is no JSON stays text, whose fault is told to the model."""
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except ValueError:
        return text
