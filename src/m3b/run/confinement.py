"""Which sandbox confines a run that is taken up again, and what its record says of all that confined it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from m3b.errors import SandboxError
from m3b.run.folder import RunFolder
from m3b.run.registry import read_registry
from m3b.sandbox import STRENGTH, Sandbox, choose_sandbox

if TYPE_CHECKING:
    from m3b.run.options import SandboxMode


def resume_mode(run: RunFolder, requested: str, explicit: SandboxMode | None) -> SandboxMode:
    """Return the mode that a resumed run asks for.

    `run.json` can be edited by whoever hands on a run folder, so it can strengthen the confinement and never weaken it. The
    floor is what the user's list of runs says, or for a run that is not in it what `auto` finds.

    Args:
        requested: the mode in run.json.
        explicit: what the user asks for now, which is obeyed.
    """
    if explicit is not None:
        return explicit
    entry = read_registry().at(run.path)
    floor = entry.sandbox if entry else "auto"
    if "bubblewrap" in (requested, floor):
        return "bubblewrap"
    if floor == "auto":
        return "auto"
    if requested == "off":
        return "off" if floor == "off" else "auto"
    return "landlock" if requested == "landlock" else "auto"


def choose_for_resume(run: RunFolder, mode: SandboxMode, explicit: SandboxMode | None) -> Sandbox:
    """Return the sandbox for a resumed run, at least as strong as the list of the user's runs says.

    Args:
        mode: as `resume_mode` returned it.

    Raises:
        SandboxError: this machine has none that is strong enough; the message says how to accept less.
    """
    entry = read_registry().at(run.path) if explicit is None else None
    floor = entry.sandbox if entry else "off"
    try:
        sandbox = choose_sandbox(mode)
    except SandboxError as error:
        if explicit is not None or mode == "auto":
            raise
        raise SandboxError(f"{_too_weak(run, mode, 'it does not work here')} ({error})") from error
    if STRENGTH[sandbox.name] < STRENGTH[floor]:
        raise SandboxError(_too_weak(run, floor, f"only {sandbox.name} works here"))
    return sandbox


def _too_weak(run: RunFolder, floor: str, explanation: str) -> str:
    return (
        f"The scripts of this run were confined by {floor}, and {explanation}. `m3b doctor` says why; "
        f'`{run.format_command("resume")} --sandbox auto` (in Python sandbox="auto") accepts the strongest that works here.'
    )


def sandbox_entry(sandbox: Sandbox) -> dict[str, str]:
    """Return what events and run.json hold of a sandbox."""
    return {"name": sandbox.name, "level": sandbox.level}


def used_sandboxes(before: Mapping[str, str], now: Sandbox) -> dict[str, Any]:
    """Return what run.json holds of all sandboxes that confined a run: the weakest as `sandbox`, all as `sandboxes`.

    Args:
        before: name -> level, in the order of their last use, as the journal tells them.
    """
    levels = {**{name: level for name, level in before.items() if name != now.name}, now.name: now.level}
    weakest = min(levels, key=lambda name: STRENGTH.get(name, -1))
    return {"sandbox": {"name": weakest, "level": levels[weakest]}, "sandboxes": list(levels)}


def describe_change(before: Mapping[str, str], now: Sandbox) -> str:
    """Return a sentence for the user if another sandbox than the one of the last session confines scripts; else nothing."""
    last = list(before)[-1] if before else now.name
    if last == now.name:
        return ""
    change = "less" if STRENGTH[now.name] < STRENGTH.get(last, 0) else "more"
    return (
        f"Scripts were confined by {last} before and are confined by {now.name} from here on, which confines {change}."
    )
