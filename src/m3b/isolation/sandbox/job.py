"""Code shared by the backends: the check of the mounted paths, and the job for the supervisor."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from m3b.errors import SandboxError
from m3b.isolation.sandbox import bundle
from m3b.isolation.sandbox.base import Limits, Mounts
from m3b.isolation.sandbox.environment import bootstrap_command, command_environment, gpu_nodes, sandboxed_python
from m3b.isolation.sandbox.guard import seccomp as seccomp_filter
from m3b.isolation.sandbox.guard.job import Confinement, LandlockRules, SeccompPolicy, SupervisorJob

_MIB = 1 << 20
_THREADS_PER_PROCESS = 8


def resolve_mounts(mounts: Mounts, cwd: Path) -> Mounts:
    """Return the mounts with absolute paths and all links resolved.

    Raises SandboxError if a path does not exist, is `/`, or if `cwd` lies in no mounted folder.
    """
    resolved: dict[str, tuple[Path, ...]] = {}
    for kind in ("read", "write"):
        paths: tuple[Path, ...] = getattr(mounts, kind)
        for path in paths:
            if not path.exists():
                raise SandboxError(f"{path} should be mounted for the sandbox ({kind}), but does not exist; create it")
            if path.resolve() == Path("/"):
                raise SandboxError(f"{path} is the root folder: mounting it would confine nothing; name the folders")
        resolved[kind] = tuple(dict.fromkeys(p.resolve() for p in paths))
    mounted = [*resolved["read"], *resolved["write"]]
    working_dir = cwd.resolve()
    if not any(working_dir.is_relative_to(p) for p in mounted):
        raise SandboxError(
            f"the working directory {working_dir} lies in no mounted folder; add it to Mounts.write or read"
        )
    hidden = tuple(p.resolve() for p in mounts.hide if p.exists())
    return replace(mounts, read=resolved["read"], write=resolved["write"], hide=hidden)


def make_supervisor_job(
    command: Sequence[str],
    *,
    cwd: Path,
    mounts: Mounts,
    env: Mapping[str, str],
    limits: Limits,
    private: str,
    home: str,
    outer: Sequence[str] = (),
    unprivileged: bool = True,
    landlock: LandlockRules | None = None,
    seccomp: SeccompPolicy | None = None,
    keep: Sequence[int] = (),
) -> SupervisorJob:
    """Return the job for the supervisor. `home` is the path of the private folder inside the sandbox.

    The mounts must be resolved. Raises SandboxError for an empty command or one with a NUL byte.
    """
    if not command or any("\0" in word for word in command):
        raise SandboxError(f"not a command line: {list(command)!r}; give a list of words without NUL bytes")
    threads = limits.processes * _THREADS_PER_PROCESS
    confinement = Confinement(
        command=[sandboxed_python() if command[0] == sys.executable else command[0], *command[1:]],
        cwd=str(cwd.resolve()),
        env=command_environment(home, {**_limit_variables(limits), **env}),
        rlimits=_make_rlimits(limits),
        threads=threads,
        unprivileged=unprivileged,
        landlock=landlock,
        filter=_make_filter(seccomp),
    )
    return SupervisorJob(
        outer=list(outer),
        launcher=bootstrap_command("launcher"),
        guards=bundle.bundle_descriptor(),
        confinement=confinement,
        private=private,
        watched=[str(p) for p in mounts.write if p.is_dir()] + [private],
        memory=limits.memory_mib * _MIB,
        processes=limits.processes,
        disk=limits.disk_mib * _MIB,
        files=limits.files,
        wall_s=limits.wall_s,
        output=limits.output_kib * 1024,
        keep=list(keep),
    )


def _limit_variables(limits: Limits) -> dict[str, str]:
    """Return the limits that a training must know to stay below them."""
    return {"M3B_DISK_GROWTH_MIB": str(limits.disk_mib), "M3B_MEMORY_MIB": str(limits.memory_mib)}


def _make_filter(policy: SeccompPolicy | None) -> bytes:
    if policy is None:
        return b""
    return _pack_filter(tuple(policy["families"]), policy["shares_host"], policy["connects"])


@cache
def _pack_filter(families: tuple[int, ...], shares_host: bool, connects: bool) -> bytes:
    return seccomp_filter.pack_filter(
        SeccompPolicy(families=list(families), shares_host=shares_host, connects=connects)
    )


def _make_rlimits(limits: Limits) -> dict[str, int]:
    result = {"CORE": 0, "FSIZE": limits.file_mib * _MIB, "NOFILE": 16384}
    if not gpu_nodes():
        # Not with CUDA, which reserves far more addresses than it uses. The limit stops a process that grows faster
        # than the supervisor measures; the factor leaves room for mapped data sets and shared libraries.
        result["AS"] = (2 * limits.memory_mib + 8192) * _MIB
    return result
