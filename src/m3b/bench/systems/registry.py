"""Systems by name."""

from __future__ import annotations

from m3b.bench import paper
from m3b.errors import UsageError

from .base import System
from .command import parse_command
from .outside import EXTERNAL_SYSTEMS
from .own import ABLATIONS, PipelineSystem
from .role import ROLE_NAMES, ROLE_PREFIX, parse_role_system


def list_systems() -> tuple[str, ...]:
    """The names that `get_system` takes, besides `command:...`."""
    return (*ABLATIONS, *EXTERNAL_SYSTEMS, *(ROLE_PREFIX + name for name in ROLE_NAMES))


def get_system(name: str) -> System:
    """The system of that name; `command:PROGRAM ...` is any program.

    Raises:
        UsageError: there is none; systems that only exist as published figures are named as such.
    """
    if name.startswith("command:"):
        if not name.removeprefix("command:").strip():
            raise UsageError("command: needs a program, as in `command:my-agent --task {prompt_file}`.")
        return parse_command(name)
    if name.startswith(ROLE_PREFIX):
        return parse_role_system(name)
    if name in ABLATIONS:
        return PipelineSystem(name, ABLATIONS[name])
    if name in EXTERNAL_SYSTEMS:
        return EXTERNAL_SYSTEMS[name]
    if any(
        row.name.lower().startswith(name.lower())
        for row in paper.load_systems()
        if row.name not in paper.RUNNABLE_SYSTEMS
    ):
        raise UsageError(
            f"{name} has no headless form and cannot be run; its published figures stand in `m3b bench table`."
        )
    raise UsageError(f"There is no system {name!r}; choose {', '.join(list_systems())} or command:PROGRAM.")
