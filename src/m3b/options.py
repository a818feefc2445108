"""Everything about a run that a user can set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from m3b.errors import WrongUse

ToolMode = Literal["auto", "native", "text"]
SandboxMode = Literal["auto", "bubblewrap", "landlock", "off"]


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Args:
        max_actions: tool calls of all roles together.
        max_iterations: debug rounds and rejected hand-overs of each role.
        max_tokens: input summed over every request, plus output; None is no limit.
        max_cost: US dollars, as far as the model's prices are known.
        max_wall: seconds of the whole run.
        train_minutes: what the templates plan for.
        roles: `four` agents one after the other, or a `single` one for all stages.
        reflect, examples, debug: reflection turns, worked examples in prompts, debug rounds.
        sandbox: which backend confines scripts; `off` only on purpose.
        tools: how the model is told of tools: `native` by its provider's protocol, `text` in plain words for models
            that know or keep no such protocol, `auto` by what is known of the model.
        stream: ask for the model's words as they come; they appear as `delta` events.
        phi: `mask` hides what identifies a person from previews, `allow` shows it.
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
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_actions", "train_minutes"):
            if not getattr(self, name) > 0:
                raise WrongUse(f"{name} must be above 0; it is {getattr(self, name)!r}.")
        if self.max_iterations < 0:
            raise WrongUse(f"max_iterations must not be negative; it is {self.max_iterations!r}.")
        choices = {"roles": ("four", "single"), "sandbox": ("auto", "bubblewrap", "landlock", "off")}
        choices["tools"] = ("auto", "native", "text")
        for name, known in {**choices, "phi": ("mask", "allow")}.items():
            if getattr(self, name) not in known:
                raise WrongUse(f"{name} must be one of {', '.join(known)}; it is {getattr(self, name)!r}.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
