"""Systems by name."""

from __future__ import annotations

from m3b.bench import paper
from m3b.errors import WrongUse

from .base import System
from .command import from_text
from .outside import OUTSIDE
from .own import ABLATIONS, OwnSystem
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
        return OwnSystem(name, ABLATIONS[name])
    if name in OUTSIDE:
        return OUTSIDE[name]
    if any(row.name.lower().startswith(name.lower()) for row in paper.systems() if row.name not in paper.HEADLESS):
        raise WrongUse(
            f"{name} has no headless form and cannot be run; its published figures stand in `m3b bench table`."
        )
    raise WrongUse(f"There is no system {name!r}; choose {', '.join(known())} or command:PROGRAM.")
