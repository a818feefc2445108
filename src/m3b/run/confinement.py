"""Choice of the sandbox for a resumed run, and the record of all sandboxes that confined a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from m3b.errors import SandboxError
from m3b.isolation.sandbox import STRENGTH, Sandbox, choose_sandbox
from m3b.run.folder import RunFolder
from m3b.run.registry import read_registry

if TYPE_CHECKING:
    from m3b.run.options import SandboxMode


def resume_mode(run: RunFolder, requested: str, explicit: SandboxMode | None) -> SandboxMode:
    """Return the mode that a resumed run asks for.

    `run.json` can be edited by anybody who passes on a run folder, so it may strengthen the confinement but never
    weaken it. The minimum is the sandbox in the user's list of runs; for a run that is not listed, what `auto` finds.

    Args:
        requested: the mode in run.json.
        explicit: the mode that the user asks for now; it always takes precedence.
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


def choose_for_resume(
    run: RunFolder, mode: SandboxMode, explicit: SandboxMode | None, before: Mapping[str, str]
) -> Sandbox:
    """Return the sandbox for a resumed run, at least as strong as the last one in the user's list of runs and journal.

    Args:
        mode: the value that `resume_mode` returned.
        before: name -> level of earlier sandboxes, as for `used_sandboxes`.
        explicit: the mode that the user asks for now.

    Raises:
        SandboxError: this machine has no sandbox that is strong enough; the message says how to accept a weaker one.
    """
    floor = "off"
    if explicit is None:
        entry = read_registry().at(run.path)
        recorded = [entry.sandbox if entry else "off", *list(before)[-1:]]
        floor = max(recorded, key=lambda name: STRENGTH.get(name, 0))
    try:
        sandbox = choose_sandbox(mode)
    except SandboxError as error:
        if explicit is not None or mode == "auto":
            raise
        raise SandboxError(f"{_describe_weak_sandbox(run, mode, 'it does not work here')} ({error})") from error
    if STRENGTH[sandbox.name] < STRENGTH[floor]:
        raise SandboxError(_describe_weak_sandbox(run, floor, f"only {sandbox.name} works here"))
    return sandbox


def _describe_weak_sandbox(run: RunFolder, floor: str, explanation: str) -> str:
    return (
        f"The scripts of this run were confined by {floor}, and {explanation}. `m3b doctor` says why; "
        f'`{run.format_command("resume")} --sandbox auto` (in Python sandbox="auto") accepts the strongest that works here.'
    )


def sandbox_entry(sandbox: Sandbox) -> dict[str, str]:
    """Return a sandbox as events and run.json store it."""
    return {"name": sandbox.name, "level": sandbox.level}


def used_sandboxes(before: Mapping[str, str], now: Sandbox) -> dict[str, Any]:
    """Return the entries of run.json on all sandboxes of a run: the weakest as `sandbox`, all names as `sandboxes`.

    Args:
        before: name -> level of earlier sandboxes, in the order of their last use, from the journal.
    """
    levels = {**{name: level for name, level in before.items() if name != now.name}, now.name: now.level}
    weakest = min(levels, key=lambda name: STRENGTH.get(name, -1))
    return {"sandbox": {"name": weakest, "level": levels[weakest]}, "sandboxes": list(levels)}


def describe_change(before: Mapping[str, str], now: Sandbox) -> str:
    """Return a sentence for the user if the sandbox differs from that of the last session; else ''."""
    last = list(before)[-1] if before else now.name
    if last == now.name:
        return ""
    change = "less" if STRENGTH[now.name] < STRENGTH.get(last, 0) else "more"
    return (
        f"Scripts were confined by {last} before and are confined by {now.name} from here on, which confines {change}."
    )
