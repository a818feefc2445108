"""What passes between an agent and a language model, in no provider's dialect."""

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
    """One call that the model asks for.

    `parse_error` is set, and `arguments` is empty, when the arguments were not a JSON object: the call is then
    answered with that error instead of being run.
    """

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    parse_error: str = ""


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image that a model is shown.

    Args:
        data: the bytes of the file.
        media_type: what they are; told by their first bytes where not given.

    Raises:
        ValueError: no type was given, and the bytes are none of PNG, JPEG, GIF and WebP.
    """

    data: bytes
    media_type: str = ""

    def __post_init__(self) -> None:
        if not self.media_type:
            object.__setattr__(self, "media_type", _detect_media_type(self.data))

    @classmethod
    def from_file(cls, file: str | os.PathLike[str]) -> ImageContent:
        """The picture in a file, as it is now.

        Raises:
            OSError, ValueError: it cannot be read, or is of no kind that models take.
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
    """One turn. `calls` belongs to the assistant; `call_id` and `is_error` to a tool's answer; `images` to the user's
    turns and to tools' answers, and only models whose facts say `vision` get to see them.

    `facts` is what the text says as data (`m3b.facts.parse_facts` reads it): for models in this process, never sent to others.
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
    """Tokens and money of one or several requests.

    `input_tokens` is everything that was sent, cached or not; `cached_tokens` is the part of it served from a cache,
    `written_tokens` the part written to one. `reasoning_tokens` is the part of `output_tokens` that nobody gets to see.
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
        """Part of the input that a cache served, 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def total_tokens(self) -> int:
        """Input summed over every request, plus output: the way the M3Builder paper counts."""
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
    """What the model answered: text, calls or both, why it stopped, and what that cost."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: StopReason = "end"
    model: str = ""

    def to_message(self) -> Message:
        """The reply as a turn of the conversation."""
        return Message("assistant", self.text, self.calls)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]
