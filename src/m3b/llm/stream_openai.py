"""Pieces of a chat completion, put together again into the body that it would have been without streaming."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .streaming import NotStreamed, TextStream, make_broken_stream_error

Json = dict[str, Any]


def assemble_completion(chunks: Iterable[Any], relay: TextStream, model_name: str) -> Json:
    """The whole body.

    Args:
        chunks: the SDK's stream.
        relay: told the text as it comes.
        model_name: the model's name, for errors.

    Raises:
        NotStreamed: nothing came that is part of a stream.
        Transient: the stream ended before the choice was finished.
    """
    body: Json = {}
    message: Json = {"role": "assistant", "content": None}
    calls: list[Json] = []
    finish_reason = None
    for chunk in chunks:
        payload = chunk.model_dump(mode="python", warnings=False) if hasattr(chunk, "model_dump") else chunk
        if not isinstance(payload, dict):
            continue
        body |= {key: payload[key] for key in ("id", "created", "model", "usage", "error") if payload.get(key)}
        choices = payload.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        _apply_delta(message, calls, delta if isinstance(delta, dict) else {}, relay)
        finish_reason = choice.get("finish_reason") or finish_reason
    if body.get("error"):
        return body
    if not body and not finish_reason and len(message) == 2:
        raise NotStreamed
    if not finish_reason:
        raise make_broken_stream_error(model_name)
    if calls:
        message["tool_calls"] = [{key: value for key, value in call.items() if key != "index"} for call in calls]
    return {
        **body,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }


def _apply_delta(message: Json, calls: list[Json], delta: Json, relay: TextStream) -> None:
    """One delta: texts grow, calls are found by their index, everything else stays as it came last."""
    for key, value in delta.items():
        if key == "tool_calls":
            for piece in value or ():
                _add_call(calls, piece)
        elif key == "content" and isinstance(value, list):
            message[key] = [*(message.get(key) or []), *value]
        elif key != "role" and isinstance(value, str):
            message[key] = (message.get(key) or "") + value
            if key == "content":
                relay.add_piece(value)
        elif key != "role" and value is not None:
            message[key] = value


def _add_call(calls: list[Json], piece: Any) -> None:
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
    """The call that a piece belongs to. Servers that number none, or all with 0, begin a new one with a new id."""
    index, call_id = piece.get("index"), piece.get("id")
    matching_calls = [call for call in calls if index is None or call["index"] == index]
    if matching_calls and (not call_id or matching_calls[-1]["id"] in (None, "", call_id)):
        matching_calls[-1]["id"] = matching_calls[-1]["id"] or call_id
        return matching_calls[-1]
    calls.append({"index": index, "id": call_id, "type": "function", "function": {"name": "", "arguments": None}})
    return calls[-1]


def assemble_response(events: Iterable[Any], relay: TextStream, model_name: str) -> Json:
    """The whole body of the responses protocol, whose last event holds it.

    Raises:
        NotStreamed: nothing came that is part of a stream.
        Transient: the stream ended before the response was finished.
    """
    has_events = False
    for event in events:
        payload = event.model_dump(mode="python", warnings=False) if hasattr(event, "model_dump") else event
        kind = payload.get("type") if isinstance(payload, dict) else None
        has_events = has_events or bool(kind)
        if kind == "response.output_text.delta":
            relay.add_piece(payload.get("delta") or "")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            return dict(payload["response"])
        elif kind == "error":
            return {"error": payload}
    if not has_events:
        raise NotStreamed
    raise make_broken_stream_error(model_name)
