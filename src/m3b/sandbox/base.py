"""What a sandbox is to the rest of m3b: limits, mounts, a running process, and the protocol of the backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from m3b.sandbox.process import Process


@dataclass(frozen=True)
class Limits:
    """What one command may use.

    `memory_mib` holds for the whole tree of processes, `processes` counts processes (8 threads each, on average),
    `file_mib` is the largest file, `disk_mib` the growth of all writable folders together, `output_kib` the size of
    the output file: its first half is the beginning of the output, its second half the end. `files` is how many files
    and folders the writable folders may gain. `isolated`: it may talk to nobody, by no socket and no memory that is shared
    with the machine; for commands that have to answer out of themselves.
    """

    memory_mib: int = 16384
    processes: int = 512
    file_mib: int = 8192
    disk_mib: int = 32768
    files: int = 1_000_000
    wall_s: float = 14400
    output_kib: int = 256
    isolated: bool = False


@dataclass(frozen=True)
class Mounts:
    """Files and folders that the command sees, besides the interpreter and the system's folders.

    `hide` names files and folders below those of `read` or `write` that it must not see.
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    hide: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Probe:
    """One line of `m3b doctor`."""

    name: str
    works: bool
    detail: str


class Sandbox(Protocol):
    """A way to run commands. `level` says in one sentence what is confined and what is left open."""

    @property
    def name(self) -> str: ...

    @property
    def level(self) -> str: ...

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        mounts: Mounts,
        output: Path,
        env: Mapping[str, str] = ...,
        limits: Limits = ...,
        keep: Sequence[int] = ...,
    ) -> Process:
        """Start `command` (an argument list) in `cwd` and return once it runs.

        Standard output and error go to the file `output`, live; of the caller's other descriptors it inherits those
        in `keep`, under the same numbers. Raises SandboxError where a path does not exist or
        the confinement could not be set up; a command that is not found ends with code 127 as in a shell.
        """
        ...
