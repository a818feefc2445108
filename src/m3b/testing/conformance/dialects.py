"""The server side of each provider protocol: how its servers answer, and how its requests are read."""

from __future__ import annotations

import json
from typing import Any, Protocol

Body = dict[str, Any]
Call = tuple[str, str, str]
"""Id, name, and arguments as JSON text."""


class Dialect(Protocol):
    """One protocol, from the side of its servers."""

    name: str

    def text(self, text: str, *, stop: str = "end") -> Body:
        """Return a response with text; `stop` is `end`, `length` or `refusal`.

        Usage: 100 input tokens, 60 of them cached, and 7 output tokens, 3 of them reasoning.
        """
        ...

    def calls(self, *calls: Call) -> Body:
        """Return a response with tool calls."""
        ...

    def empty(self) -> Body:
        """Return a response without content."""
        ...

    def error(self, message: str, kind: str = "some_error") -> Body:
        """Return the body of an error response."""
        ...

    def events(self, body: Body) -> tuple[bytes, ...]:
        """Return the same response as the events of a stream; empty for a protocol without streams."""
        ...

    def turns(self, request: Body) -> list[Any]:
        """Return the turns of a request in the order in which they were sent, without cache marks."""
        ...


class ChatCompletionsDialect:
    """The chat completions protocol of OpenAI."""

    name = "openai"

    def text(self, text: str, *, stop: str = "end") -> Body:
        reason = {"end": "stop", "length": "length", "refusal": "content_filter"}[stop]
        return self._body({"role": "assistant", "content": text}, reason)

    def calls(self, *calls: Call) -> Body:
        tool_calls = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
        return self._body({"role": "assistant", "content": None, "tool_calls": tool_calls}, "tool_calls")

    def empty(self) -> Body:
        return {**self.text(""), "choices": []}

    def error(self, message: str, kind: str = "some_error") -> Body:
        return {"error": {"message": message, "type": kind, "code": None, "param": None}}

    def _body(self, message: Body, reason: str) -> Body:
        usage = {
            "prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
            "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 3},
        }  # fmt: skip
        choice = {"index": 0, "finish_reason": reason, "message": message}
        return {"id": "1", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [choice],
                "usage": usage}  # fmt: skip

    def events(self, body: Body) -> tuple[bytes, ...]:
        if not body.get("choices"):
            return (_encode_event({**body, "object": "chat.completion.chunk"}), b"data: [DONE]\n\n")
        choice = body["choices"][0]
        deltas: list[Body] = [{"role": "assistant", "content": ""}]
        text = choice["message"].get("content") or ""
        deltas += [{"content": piece} for piece in _split_in_half(text)]
        for index, call in enumerate(choice["message"].get("tool_calls") or ()):
            first, second = _split_in_half(call["function"]["arguments"])
            begin = {"name": call["function"]["name"], "arguments": first}
            deltas.append({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": begin}]})
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": second}}]})
        head = {key: body[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
        chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
        chunks.append({**head, "choices": [], "usage": body["usage"]})
        return (*map(_encode_event, chunks), b"data: [DONE]\n\n")

    def turns(self, request: Body) -> list[Any]:
        return list(request["messages"])


class ResponsesDialect:
    """The responses protocol of OpenAI."""

    name = "openai-responses"

    def text(self, text: str, *, stop: str = "end") -> Body:
        kind = "refusal" if stop == "refusal" else "output_text"
        part: Body = {"type": kind, kind.removeprefix("output_"): text} | (
            {} if stop == "refusal" else {"annotations": []}
        )
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        return self._body([item], "max_output_tokens" if stop == "length" else "")

    def calls(self, *calls: Call) -> Body:
        return self._body(
            [
                {"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": n, "arguments": a,
                 "status": "completed"}
                for i, n, a in calls
            ]
        )  # fmt: skip

    def empty(self) -> Body:
        return self._body([])

    def error(self, message: str, kind: str = "some_error") -> Body:
        return {"error": {"message": message, "type": kind, "code": None, "param": None}}

    def _body(self, output: list[Body], cut: str = "") -> Body:
        usage = {
            "input_tokens": 100, "output_tokens": 7, "total_tokens": 107,
            "input_tokens_details": {"cached_tokens": 60}, "output_tokens_details": {"reasoning_tokens": 3},
        }  # fmt: skip
        return {
            "id": "resp_1", "object": "response", "created_at": 1, "model": "m-1", "output": output, "usage": usage,
            "status": "incomplete" if cut else "completed", "incomplete_details": {"reason": cut} if cut else None,
            "error": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        }  # fmt: skip

    def events(self, body: Body) -> tuple[bytes, ...]:
        in_progress = {**body, "status": "in_progress", "output": [], "usage": None}
        events: list[Body] = [{"type": "response.created", "response": in_progress}]
        for index, item in enumerate(body["output"]):
            for part in item.get("content") or ():
                location = {"item_id": item["id"], "output_index": index, "content_index": 0, "logprobs": []}
                pieces = _split_in_half(part.get("text") or "")
                events += [{"type": "response.output_text.delta", "delta": piece, **location} for piece in pieces]
        end = "response.incomplete" if body["status"] == "incomplete" else "response.completed"
        events.append({"type": end, "response": body})
        return tuple(_encode_event({**event, "sequence_number": n}, event["type"]) for n, event in enumerate(events))

    def turns(self, request: Body) -> list[Any]:
        first = [request["instructions"]] if "instructions" in request else []
        return [*first, *request["input"]]


class MessagesDialect:
    """The messages protocol of Anthropic."""

    name = "anthropic"

    def text(self, text: str, *, stop: str = "end") -> Body:
        reason = {"end": "end_turn", "length": "max_tokens", "refusal": "refusal"}[stop]
        return self._body([{"type": "text", "text": text}], reason)

    def calls(self, *calls: Call) -> Body:
        tool_uses = [{"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in calls]
        return self._body(tool_uses, "tool_use")

    def empty(self) -> Body:
        return {**self.text(""), "content": None}

    def error(self, message: str, kind: str = "some_error") -> Body:
        return {"type": "error", "error": {"type": kind, "message": message}}

    def _body(self, content: list[Body], reason: str) -> Body:
        usage = {
            "input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0, "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 3},
        }  # fmt: skip
        return {"id": "1", "type": "message", "role": "assistant", "model": "m-1", "stop_reason": reason,
                "stop_sequence": None, "content": content, "usage": usage}  # fmt: skip

    def events(self, body: Body) -> tuple[bytes, ...]:
        start = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
        events: list[Body] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(body["content"] or ()):
            if block["type"] == "text":
                begin: Body = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in _split_in_half(block["text"])]
            else:
                begin = {**block, "input": {}}
                deltas = [
                    {"type": "input_json_delta", "partial_json": piece}
                    for piece in _split_in_half(json.dumps(block["input"]))
                ]
            events.append({"type": "content_block_start", "index": index, "content_block": begin})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        end = {"stop_reason": body["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": end, "usage": body["usage"]})
        events.append({"type": "message_stop"})
        return tuple(_encode_event(event, event["type"]) for event in events)

    def turns(self, request: Body) -> list[Any]:
        system = request.get("system", [])
        return [_strip_cache_marks(turn) for turn in (*system, *request["messages"])]


def _strip_cache_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strip_cache_marks(item) for key, item in value.items() if key != "cache_control"}
    return [_strip_cache_marks(item) for item in value] if isinstance(value, list) else value


def _split_in_half(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


def _encode_event(data: Body, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (ChatCompletionsDialect(), ResponsesDialect(), MessagesDialect())
}
