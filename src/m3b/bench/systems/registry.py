"""Systems by name."""

from __future__ import annotations

import json
from typing import Any

from m3b.errors import WrongUse
from m3b.resources import resources_dir

from .base import System
from .command import from_text
from .outside import OUTSIDE
from .own import ABLATIONS, Own
from .role import NAMES, PREFIX, one_role


def known() -> tuple[str, ...]:
    """The names that `system` takes, besides `command:...`."""
    return (*ABLATIONS, *OUTSIDE, *(PREFIX + name for name in NAMES))


def system(name: str) -> System:
    """The system of that name; `command:PROGRAM ...` is any program.

    Raises:
        WrongUse: there is none; systems that only exist as published figures are named as such.
    """
    if name.startswith("command:"):
        if not name.removeprefix("command:").strip():
            raise WrongUse("command: needs a program, as in `command:my-agent --task {prompt_file}`.")
        return from_text(name)
    if name.startswith(PREFIX):
        return one_role(name)
    if name in ABLATIONS:
        return Own(name, ABLATIONS[name])
    if name in OUTSIDE:
        return OUTSIDE[name]
    if name.lower() in {row["system"].lower() for row in paper()["published_only"]}:
        raise WrongUse(
            f"{name} has no headless form and cannot be run; its published figures stand in `m3b bench table`."
        )
    raise WrongUse(f"There is no system {name!r}; choose {', '.join(known())} or command:PROGRAM.")


def paper() -> dict[str, Any]:
    """The published figures that ship with m3b."""
    raw: dict[str, Any] = json.loads((resources_dir() / "bench" / "paper.json").read_text(encoding="utf-8"))
    return raw


def published() -> list[dict[str, Any]]:
    """Rows of published figures: system, model, successes and runs where they are at hand."""
    raw = paper()
    return [*raw["rows"], *raw["published_only"]]
