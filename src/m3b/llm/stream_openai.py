"""Pieces of a chat completion, put together again into the body that it would have been without streaming."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .streaming import NotStreamed, TextStream, broken

Json = dict[str, Any]


def assembled(chunks: Iterable[Any], relay: TextStream, who: str) -> Json:
    """The whole body.

    Args:
        chunks: the SDK's stream.
        relay: told the text as it comes.
        who: the model's name, for errors.

    Raises:
        NotStreamed: nothing came that is part of a stream.
        Transient: the stream ended before the choice was finished.
    """
    body: Json = {}
    message: Json = {"role": "assistant", "content": None}
    calls: list[Json] = []
    finish = None
    for chunk in chunks:
        part = chunk.model_dump(mode="python", warnings=False) if hasattr(chunk, "model_dump") else chunk
        if not isinstance(part, dict):
            continue
        body |= {key: part[key] for key in ("id", "created", "model", "usage", "error") if part.get(key)}
        choices = part.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        _add(message, calls, delta if isinstance(delta, dict) else {}, relay)
        finish = choice.get("finish_reason") or finish
    if body.get("error"):
        return body
    if not body and not finish and len(message) == 2:
        raise NotStreamed
    if not finish:
        raise broken(who)
    if calls:
        message["tool_calls"] = [{key: each for key, each in call.items() if key != "index"} for call in calls]
    return {**body, "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def _add(message: Json, calls: list[Json], delta: Json, relay: TextStream) -> None:
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
                relay.put(value)
        elif key != "role" and value is not None:
            message[key] = value


def _add_call(calls: list[Json], piece: Any) -> None:
    if not isinstance(piece, dict):
        return
    call = _call_of(calls, piece)
    given = piece.get("function") or {}
    function = call["function"]
    # The name comes whole; some servers repeat it with every piece.
    function["name"] = function["name"] or given.get("name") or ""
    more = given.get("arguments")
    if isinstance(more, str):
        function["arguments"] = (function["arguments"] or "") + more
    elif more is not None:
        function["arguments"] = more
    call |= {key: value for key, value in piece.items() if key not in ("function", "index", "id") and value is not None}


def _call_of(calls: list[Json], piece: Json) -> Json:
    """The call that a piece belongs to. Servers that number none, or all with 0, begin a new one with a new id."""
    index, call_id = piece.get("index"), piece.get("id")
    known = [call for call in calls if index is None or call["index"] == index]
    if known and (not call_id or known[-1]["id"] in (None, "", call_id)):
        known[-1]["id"] = known[-1]["id"] or call_id
        return known[-1]
    calls.append({"index": index, "id": call_id, "type": "function", "function": {"name": "", "arguments": None}})
    return calls[-1]


def responded(events: Iterable[Any], relay: TextStream, who: str) -> Json:
    """The whole body of the responses protocol, whose last event holds it.

    Raises:
        NotStreamed: nothing came that is part of a stream.
        Transient: the stream ended before the response was finished.
    """
    came = False
    for event in events:
        part = event.model_dump(mode="python", warnings=False) if hasattr(event, "model_dump") else event
        kind = part.get("type") if isinstance(part, dict) else None
        came = came or bool(kind)
        if kind == "response.output_text.delta":
            relay.put(part.get("delta") or "")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            return dict(part["response"])
        elif kind == "error":
            return {"error": part}
    if not came:
        raise NotStreamed
    raise broken(who)
