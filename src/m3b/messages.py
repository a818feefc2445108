"""What passes between an agent and a language model, in no provider's dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Speaker = Literal["system", "user", "assistant", "tool"]
Stop = Literal["end", "tools", "length", "refusal"]


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
class Message:
    """One turn. `calls` belongs to the assistant; `call_id` and `is_error` to a tool's answer."""

    role: Speaker
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of one or several requests.

    `input_tokens` is everything that was sent, cached or not; `cached_tokens` is the part of it served from a cache.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    cost_usd: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Input summed over every request, plus output: the way the M3Builder paper counts."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.requests + other.requests,
            self.cost_usd + other.cost_usd,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered: text, calls or both, why it stopped, and what that cost."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: Stop = "end"
    model: str = ""

    def message(self) -> Message:
        """The reply as a turn of the conversation."""
        return Message("assistant", self.text, self.calls)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]
