"""What the protocols of providers share: their interface, and texts, names and ids that no provider refuses."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

from m3b.errors import BadRequest, LLMError, Transient
from m3b.messages import ImageContent, Message, Reply, StopReason, ToolCall, Usage

from . import tokens
from .base import LLMRequest, ModelFacts
from .error_mapping import find_error_in_body
from .streaming import TextStream

Json = dict[str, Any]

EMPTY_TEXT = "(empty)"
"""Stands for a text that is empty, which some providers refuse."""

_INVALID_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


class Wire(ABC):
    """One protocol, for one model: how a request becomes a body, and a response, at once or as a stream, a reply.

    It keeps what the provider wants back with later requests (thoughts), and what the provider refused.

    Args:
        model: the model's name in requests.
        name: its name in errors; `model` if not given.
    """

    dump_options: ClassVar[Json]
    """How the SDK's objects become plain data: arguments of pydantic's `model_dump`."""

    address_hint: ClassVar[str] = "Check the address; most servers want it to end in /v1."

    def __init__(self, model: str, name: str = "") -> None:
        self.model, self.name = model, name or model
        self.can_stream = True
        """False once the server has answered a request for a stream without one."""
        self.stream_options: Json = {}
        """What a request for a stream says besides."""

    @abstractmethod
    def import_sdk(self) -> tuple[ModuleType, Callable[..., Any]]:
        """Import the SDK, when the first request is made; return it and its client class."""

    @abstractmethod
    def get_method(self, client: Any) -> Callable[..., Any]:
        """Return the method of the SDK's client that sends a request."""

    @abstractmethod
    def to_body(self, request: LLMRequest, facts: ModelFacts) -> Json:
        """Return the body of the request; equal turns always give equal bytes, so that caches serve them."""

    @abstractmethod
    def to_reply(self, body: Any, request: LLMRequest, facts: ModelFacts) -> Reply:
        """Read the decoded JSON of a response.

        Raises:
            Transient: the response holds an error, or nothing, in place of content.
            BadRequest: it is no response of this protocol at all.
        """

    @abstractmethod
    def assemble(self, events: Iterable[Any], stream: TextStream) -> Json:
        """Put the pieces of a stream together into the body that the response would have been without streaming.

        Args:
            events: the SDK's stream.
            stream: told the text as it comes.

        Raises:
            NotStreamed: nothing came that is part of a stream.
            Transient: the stream ended before the response was complete.
        """

    def adapt(self, refusal: str) -> Wire | None:
        """Return the wire with which a refused request is made again; None if nothing can be said otherwise."""
        return None

    def to_data(self, answer: Any) -> Any:
        """Return what the SDK gave as plain data. A response under another content type than JSON comes as text."""
        if hasattr(answer, "model_dump"):
            return answer.model_dump(**self.dump_options)
        if isinstance(answer, str):
            with contextlib.suppress(ValueError):
                return json.loads(answer)
        return answer

    def iter_event_data(self, events: Iterable[Any]) -> Iterator[Json]:
        """Yield the events of a stream as plain data; what is no object is left out."""
        for event in map(self.to_data, events):
            if isinstance(event, dict):
                yield event

    def make_reply(
        self,
        text: str,
        calls: Sequence[ToolCall],
        stop: StopReason,
        body: Json,
        usage: Usage | None,
        request: LLMRequest,
        facts: ModelFacts,
    ) -> Reply:
        """Return the reply; its usage is estimated if the response states none."""
        reply = Reply(text, tuple(calls), stop=stop, model=str(body.get("model") or ""))
        return replace(reply, usage=usage or tokens.estimate_usage(request, reply, facts))

    def make_body_error(self, body: Any, missing_part: str) -> LLMError:
        """Return the error for a body without the part that holds the answer."""
        if not isinstance(body, dict):
            return BadRequest(f"{self.name}: the answer is no JSON object but {str(body)[:80]!r}. {self.address_hint}")
        if (failure := find_error_in_body(body, self.name)) is not None:
            return failure
        error = body.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        reason = f": {message}" if message else ""
        return Transient(f"{self.name}: the answer holds no {missing_part}{reason}.", kind="garbled answer")

    def make_broken_stream_error(self) -> Transient:
        """Return the error for a stream that ended before its end."""
        return Transient(f"{self.name}: the stream broke off before the reply was complete. It is asked for again.")


class OpenAIWire(Wire):
    """What the two protocols of OpenAI share: the SDK, and how its objects become plain data."""

    dump_options: ClassVar[Json] = {"mode": "python", "warnings": False}

    def import_sdk(self) -> tuple[ModuleType, Callable[..., Any]]:
        import openai

        return openai, openai.OpenAI


# --- requests ----------------------------------------------------------------------------------------------------


def remove_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which no UTF-8 request can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def encode_base64(image: ImageContent) -> str:
    """Return the image's bytes as base64."""
    return base64.b64encode(image.data).decode("ascii")


def make_data_url(image: ImageContent) -> str:
    """Return the image as the URL that OpenAI's protocols take."""
    return f"data:{image.media_type};base64,{encode_base64(image)}"


def get_system_text(message: Message) -> str:
    """Return the text of a system turn for protocols that have a field for it."""
    return remove_surrogates(message.text) or EMPTY_TEXT


def get_visible_text(message: Message, vision: bool) -> str:
    """Return the text of a turn; a model that sees nothing is told that there was something to see."""
    text = remove_surrogates(message.text)
    if vision or not message.images:
        return text
    count = len(message.images)
    images_text = "One image is" if count == 1 else f"{count} images are"
    return f"{text}\n[{images_text} left out here: this model does not take images.]".lstrip()


def get_marked_answer(message: Message, vision: bool) -> str:
    """Return a tool's answer for a protocol that cannot mark an error, so that its text does."""
    text = get_visible_text(message, vision) or EMPTY_TEXT
    return f"Error: {text}" if message.is_error and not text.lower().startswith("error") else text


def sanitize_tool_name(call: ToolCall) -> str:
    """Return the tool's name as every provider takes it; a model may have invented one that none does."""
    return _INVALID_NAME_CHARACTER.sub("_", call.name)[:64] or "unknown"


def sanitize_call_id(call_id: str) -> str:
    """Return a call's id as every provider takes it, the same for the call and its answer."""
    return _INVALID_NAME_CHARACTER.sub("_", call_id)[:64] or "call_0"


def get_replay_arguments(call: ToolCall) -> Json:
    """Return the arguments to replay; a malformed call is replayed without any, so that the conversation stays valid."""
    arguments: Json = json.loads(dump_arguments(call))
    return arguments


def dump_arguments(call: ToolCall) -> str:
    """Return the arguments to replay as JSON text."""
    arguments = {} if call.parse_error else call.arguments
    return remove_surrogates(json.dumps(arguments, ensure_ascii=False, default=str))


# --- replies -----------------------------------------------------------------------------------------------------


def map_stop_reason(reason: Any, table: dict[str, StopReason], has_calls: bool) -> StopReason:
    """Return why the model stopped; calls are acted on even if a server says that the turn just ended."""
    return table.get(str(reason), "tools" if has_calls else "end")


def parse_openai_usage(raw_usage: Any, input_name: str, output_name: str, facts: ModelFacts) -> Usage | None:
    """Return the usage as OpenAI's protocols report it, whose input holds its cached part; None if it is not there."""
    if not isinstance(raw_usage, dict) or not isinstance(raw_usage.get(f"{input_name}_tokens"), int):
        return None
    details = raw_usage.get(f"{input_name}_tokens_details") or {}
    input_tokens, output = raw_usage[f"{input_name}_tokens"], raw_usage.get(f"{output_name}_tokens") or 0
    cached = min(details.get("cached_tokens") or raw_usage.get("prompt_cache_hit_tokens") or 0, input_tokens)
    cache_written = min(details.get("cache_write_tokens") or 0, input_tokens - cached)
    reasoning = (raw_usage.get(f"{output_name}_tokens_details") or {}).get("reasoning_tokens") or 0
    return facts.compute_usage(input_tokens - cached - cache_written, cached, output, cache_written, reasoning)
