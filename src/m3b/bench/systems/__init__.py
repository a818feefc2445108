"""The benchmark systems: m3b, its ablations, and external programs that run in the same workspace."""

from __future__ import annotations

from m3b.bench import published_results
from m3b.bench.systems.base import CellJob, CellOutcome, System
from m3b.bench.systems.command import parse_command
from m3b.bench.systems.external_systems import EXTERNAL_SYSTEMS
from m3b.bench.systems.pipeline_systems import ABLATIONS, ROLE_NAMES, ROLE_PREFIX, PipelineSystem, parse_role_system
from m3b.errors import UsageError


def list_systems() -> tuple[str, ...]:
    """Return the names that `get_system` accepts, without `command:...`."""
    return (*ABLATIONS, *EXTERNAL_SYSTEMS, *(ROLE_PREFIX + name for name in ROLE_NAMES))


def get_system(name: str) -> System:
    """Return the system of a name; `command:PROGRAM ...` is any program.

    Raises:
        UsageError: there is no such system; the message says so if there are only published figures of it.
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
        for row in published_results.load_systems()
        if row.name not in published_results.RUNNABLE_SYSTEMS
    ):
        raise UsageError(
            f"{name} has no headless form and cannot be run; its published figures are in `m3b bench table`."
        )
    raise UsageError(f"There is no system {name!r}; choose {', '.join(list_systems())} or command:PROGRAM.")


__all__ = ["CellJob", "CellOutcome", "System", "list_systems", "get_system"]
