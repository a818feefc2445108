"""Interface of the sandbox for the rest of m3b: limits, mounts, probes, and the protocol of the backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from m3b.isolation.sandbox.process import Process


@dataclass(frozen=True)
class Limits:
    """Resource limits of one command.

    `memory_mib` applies to the whole process tree; `processes` counts processes (8 threads each, on average);
    `file_mib` is the largest file; `disk_mib` is the growth of all writable folders together; `files` is the number of
    files and folders that may be added to the writable folders. `output_kib` is the size of the output file: its first
    half is the beginning of the output, its second half the end. `isolated` forbids all communication by sockets and by
    memory shared with the machine, for commands that must not use any other source.
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
    """Files and folders that the command sees in addition to the interpreter and the system folders.

    `hide` lists files and folders below those of `read` or `write` that the command must not see.
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
    """A sandbox backend. `level` says in one sentence what is confined and what is not."""

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

        Standard output and error are written to the file `output` while the command runs. The command inherits the
        descriptors in `keep` under the same numbers, and no other. A command that is not found ends with code 127 as in
        a shell. Raises SandboxError if a path does not exist or the confinement cannot be set up.
        """
        ...
