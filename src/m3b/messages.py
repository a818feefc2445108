"""The messages between an agent and a language model, independent of any provider."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

MessageRole = Literal["system", "user", "assistant", "tool"]
StopReason = Literal["end", "tools", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the model.

    If the arguments were no JSON object, `parse_error` is set and `arguments` is empty; the call is then answered with
    that error instead of being run.
    """

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    parse_error: str = ""


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image that is shown to a model.

    Args:
        data: the bytes of the file.
        media_type: detected from the first bytes if empty.

    Raises:
        ValueError: no type was given, and the bytes are no PNG, JPEG, GIF or WebP.
    """

    data: bytes
    media_type: str = ""

    def __post_init__(self) -> None:
        if not self.media_type:
            object.__setattr__(self, "media_type", _detect_media_type(self.data))

    @classmethod
    def from_file(cls, file: str | os.PathLike[str]) -> ImageContent:
        """Return the current picture of a file.

        Raises:
            OSError, ValueError: it cannot be read, or has a format that models do not take.
        """
        return cls(Path(file).read_bytes())


def _detect_media_type(data: bytes) -> str:
    for magic_bytes, name in ((b"\x89PNG\r\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif")):
        if data.startswith(magic_bytes):
            return f"image/{name}"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError("The image is no PNG, JPEG, GIF or WebP, which are what models take. Convert it to PNG.")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Args:
        calls: tool calls of the assistant.
        call_id, is_error: for a tool's result.
        images: in user turns and tool results; only models whose facts say `vision` see them.
        facts: the text as data (read by `m3b.facts.parse_facts`), for models in this process; never sent to others.
    """

    role: MessageRole
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    is_error: bool = False
    images: tuple[ImageContent, ...] = ()
    facts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of one or several requests.

    Args:
        input_tokens: everything that was sent, cached or not.
        cached_tokens: part of the input that was served from a cache.
        written_tokens: part of the input that was written to a cache.
        reasoning_tokens: part of `output_tokens` that is not shown.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    cost_usd: float = 0.0
    reasoning_tokens: int = 0
    written_tokens: int = 0

    @property
    def cached_share(self) -> float:
        """Share of the input that was served from a cache, 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def total_tokens(self) -> int:
        """Input tokens of every request plus output tokens, counted as in the M3Builder paper."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other_usage: Usage) -> Usage:
        return Usage(
            self.input_tokens + other_usage.input_tokens,
            self.cached_tokens + other_usage.cached_tokens,
            self.output_tokens + other_usage.output_tokens,
            self.requests + other_usage.requests,
            self.cost_usd + other_usage.cost_usd,
            self.reasoning_tokens + other_usage.reasoning_tokens,
            self.written_tokens + other_usage.written_tokens,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the model: text, calls or both, why it stopped, and its usage."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: StopReason = "end"
    model: str = ""

    def to_message(self) -> Message:
        """Return the reply as a turn of the conversation."""
        return Message("assistant", self.text, self.calls)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for a model; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]
