"""The backend for machines that refuse namespaces: Landlock rules, system call filter and limits."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from m3b.cleanup import undo_on_error
from m3b.errors import SandboxError
from m3b.isolation.sandbox import job
from m3b.isolation.sandbox.base import Limits, Mounts
from m3b.isolation.sandbox.environment import gpu_nodes, interpreter_folders, system_files
from m3b.isolation.sandbox.guard.job import LandlockRules, SeccompPolicy
from m3b.isolation.sandbox.process import Process
from m3b.isolation.untrusted import TemporaryFolder

MIN_ABI = 3  # older versions do not stop truncate() from emptying any file
FULL_PROTECTION_ABI = 6  # older versions let signals and abstract unix sockets reach processes outside
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PROTECTION = (
    "landlock (ABI {abi}): only mounted folders, the interpreter and the system's programs can be opened, and no "
    "network; predict.py has no sockets and no shared memory. Not confined are, for agents' scripts, streams to unix "
    "sockets with a path (a Docker socket that the user may use is a way out) and the shared /dev/shm; for all scripts, "
    "the command lines of other processes, names, sizes and times of files elsewhere, the list of mounts, as root the "
    "use of the machine's memory in numbers, and the kernel itself; chmod and the like do nothing."
)
_WEAK_ABI_NOTE = " This kernel's version also lets a script signal other processes of the same user."


class Landlock:
    """Runs commands for which the kernel allows access to the mounted folders only."""

    name = "landlock"

    def __init__(self, abi: int) -> None:
        self.abi = abi
        self.level = _PROTECTION.format(abi=abi) + (_WEAK_ABI_NOTE if abi < FULL_PROTECTION_ABI else "")

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        mounts: Mounts,
        output: Path,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        keep: Sequence[int] = (),
    ) -> Process:
        """Start a command as `Sandbox.start`.

        Raises SandboxError also for a read-only or hidden path inside a writable folder.
        """
        limits = limits or Limits()
        mounts = job.resolve_mounts(mounts, cwd)
        _refuse_holes(mounts)
        folder = TemporaryFolder("sandbox")
        with undo_on_error(folder.close):
            private = str(folder.path)
            supervisor_job = job.make_supervisor_job(
                command,
                cwd=cwd,
                mounts=mounts,
                env=env or {},
                limits=limits,
                private=private,
                keep=keep,
                home=private,
                landlock=_make_rules(mounts, private, limits.isolated),
                seccomp=SeccompPolicy(
                    families=[] if limits.isolated else [int(socket.AF_UNIX)],
                    shares_host=True,
                    connects=not limits.isolated,
                ),
            )
            return Process(supervisor_job, output, folder)


def _refuse_holes(mounts: Mounts) -> None:
    """Raise SandboxError for a read-only or hidden path in a writable folder, because Landlock can only add rights."""
    for kind, paths in (("read-only", (*mounts.read, *interpreter_folders())), ("hidden", mounts.hide)):
        for path in paths:
            for folder in mounts.write:
                if path.is_relative_to(folder):
                    raise SandboxError(
                        f"{path} should be {kind} inside the writable folder {folder}, which Landlock cannot do; "
                        "move one of them, or use bubblewrap"
                    )


def _make_rules(mounts: Mounts, private: str, isolated: bool) -> LandlockRules:
    read = [*system_files(), *interpreter_folders(), Path("/proc"), Path("/sys")]
    read += [p for p in map(Path, ("/bin", "/sbin", "/lib", "/lib64", "/lib32")) if p.is_dir()]
    for path in mounts.read:
        read += list_paths_without(path, mounts.hide)
    # Python's locks and the tensors of data loader workers are in /dev/shm under names that cannot be predicted.
    write = [*mounts.write, Path(private), *([] if isolated else [Path("/dev/shm")])]  # nosec B108  # a folder inside the sandbox, or a name that is only compared
    devices = [*map(Path, _DEVICES), *gpu_nodes()]
    return LandlockRules(read=[str(p) for p in read], write=[str(p) for p in write], devices=[str(p) for p in devices])


def list_paths_without(path: Path, hidden: Sequence[Path]) -> list[Path]:
    """Return the paths that together cover `path` without the hidden ones.

    A folder that contains a hidden path can no longer be listed, and files added to it later cannot be opened.
    """
    if any(path.is_relative_to(h) for h in hidden):
        return []
    if not any(h.is_relative_to(path) for h in hidden):
        return [path]
    result: list[Path] = []
    for name in sorted(os.listdir(path)):
        child = path / name
        if not child.is_symlink():  # a rule for a link would apply to its target
            result += list_paths_without(child, hidden)
    return result
