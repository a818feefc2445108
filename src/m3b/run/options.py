"""Everything about a run that a user can set."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

from m3b.errors import WrongOption

ToolMode = Literal["auto", "native", "text"]
SandboxMode = Literal["auto", "bubblewrap", "landlock", "off"]

DAY = 24 * 60

LIMITS: dict[str, tuple[float, float, str]] = {
    "max_actions": (1, 100_000, ""),
    "max_iterations": (0, 1_000, ""),
    "max_tokens": (1, 10**12, ""),
    "max_cost": (0, 10**6, "US dollars"),
    "max_wall": (0, 60 * DAY * 60, "seconds"),
    "train_minutes": (0, 14 * DAY, "minutes"),
    "seed": (0, 2**32 - 1, ""),
}
"""Lowest and highest value and unit of what is counted. Of a float, the lowest itself is not allowed: nothing can be
done in no time, or for no money."""
WHOLE = ("max_actions", "max_iterations", "max_tokens", "seed")
NO_LIMIT = ("max_tokens", "max_cost", "max_wall")
"""What may be None."""


class SingleOptions(TypedDict, total=False):
    """The options by name, for `Pipeline(..., train_minutes=20)`: see `Options`. `tools` is a parameter of its own there."""

    max_actions: int
    max_iterations: int
    max_tokens: int | None
    max_cost: float | None
    max_wall: float | None
    train_minutes: float
    roles: Literal["four", "single"]
    reflect: bool
    examples: bool
    debug: bool
    sandbox: SandboxMode
    stream: bool
    phi: Literal["mask", "allow"]
    offline: bool
    seed: int


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Args:
        max_actions: tool calls of all roles together.
        max_iterations: debug iterations and rejected hand-overs of each role.
        max_tokens: input summed over every request, plus output; None is no limit.
        max_cost: US dollars, as far as the model's prices are known.
        max_wall: seconds of the whole run.
        train_minutes: what the templates plan for.
        roles: `four` agents one after the other, or a `single` one for all stages.
        reflect, examples, debug: reflection turns, worked examples in prompts, debug iterations.
        sandbox: which backend confines scripts; `off` only on purpose.
        tools: how the model is told of tools: `native` by its provider's protocol, `text` in plain words for models
            that know or keep no such protocol, `auto` by what is known of the model.
        stream: ask for the model's words as they come; they appear as `delta` events.
        phi: `mask` hides what identifies a person from previews, `allow` shows it.
        offline: refuse models that another machine serves; `M3B_OFFLINE=1` in the environment does the same.
        seed: of splits and bootstrap.
    """

    max_actions: int = 100
    max_iterations: int = 5
    max_tokens: int | None = None
    max_cost: float | None = None
    max_wall: float | None = None
    train_minutes: float = 5.0
    roles: Literal["four", "single"] = "four"
    reflect: bool = True
    examples: bool = True
    debug: bool = True
    sandbox: SandboxMode = "auto"
    tools: ToolMode = "auto"
    stream: bool = False
    phi: Literal["mask", "allow"] = "mask"
    offline: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in LIMITS:
            if fault := _fault(name, getattr(self, name), flags=False):
                raise WrongOption(fault, _fault(name, getattr(self, name), flags=True))
        if self.max_wall is not None and self.train_minutes * 60 >= self.max_wall:
            minutes, whole = f"{self.train_minutes:g} minutes", f"{self.max_wall / 60:g}"
            raise WrongOption(
                f"Training alone may take {minutes} (train_minutes), and the whole run only {whole}"
                f" (max_wall, {self.max_wall:g} seconds). Raise the one or lower the other.",
                f"Training alone may take {minutes} (--train-minutes), and the whole run only {whole} (--max-wall)."
                " Raise the one or lower the other.",
            )
        choices = {"roles": ("four", "single"), "sandbox": ("auto", "bubblewrap", "landlock", "off")}
        choices["tools"] = ("auto", "native", "text")
        for name, known in {**choices, "phi": ("mask", "allow")}.items():
            if getattr(self, name) not in known:
                said = f" must be one of {', '.join(known)}; it is {getattr(self, name)!r}."
                raise WrongOption(name + said, _flag(name) + said)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _fault(name: str, value: object, *, flags: bool) -> str:
    """What is wrong with a limit, or nothing; with `flags` in the command line's words and units."""
    low, high, unit = LIMITS[name]
    said = _flag(name) if flags else name
    if value is None and name in NO_LIMIT:
        return ""
    whole = name in WHOLE
    low_enough = low if whole else math.nextafter(low, high)
    kind = "a whole number" if whole else "a number"
    allowed = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        return f"{said} must be {kind}; it is {value!r}."
    if math.isfinite(value) and low_enough <= value <= high:
        return ""
    if flags and unit == "seconds":  # the command line counts minutes
        high, value, unit = high / 60, value / 60, "minutes"
    span = f"from {low:,.0f} to {high:,.0f}" if whole else f"above {low:,.0f} and at most {high:,.0f}"
    shown = f"{value:,.10g} {unit}" if unit else f"{value}"
    return f"{said} must be {kind} {span}{' ' if unit else ''}{unit}; it is {shown}."


def _flag(name: str) -> str:
    """An option as the command line spells it."""
    if name in ("roles", "max_iterations"):
        return name  # not on the command line
    return f"--{name.replace('_', '-')}"
