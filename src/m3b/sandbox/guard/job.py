"""The two messages that m3b hands down as JSON: to the supervisor, and on to the launcher inside."""

from __future__ import annotations

from typing import TypedDict


class LandlockRules(TypedDict):
    """What the kernel's Landlock shall let through: files and folders by what may be done to them."""

    read: list[str]
    write: list[str]
    devices: list[str]


class SeccompPolicy(TypedDict):
    """What the filter of system calls lets through.

    `beside_others`: the machine's other processes and files can be named, as in Landlock, so that limits, priorities,
    watches and attributes are the command's own only, and changes of owner and mode only seem to work. `connects`:
    whether sockets may be bound and connected; a pair of its own it may always make.
    """

    families: list[int]
    beside_others: bool
    connects: bool


class Confinement(TypedDict):
    """What the launcher does to itself before it becomes the command."""

    command: list[str]
    cwd: str
    env: dict[str, str]
    rlimits: dict[str, int]  # RLIMIT name without its prefix -> soft and hard limit
    threads: int  # added to what the user runs already: RLIMIT_NPROC counts all of a user's threads
    unprivileged: bool
    landlock: LandlockRules | None
    filter: bytes  # of system calls, as the kernel takes it; empty for none


class SupervisorJob(TypedDict):
    """What the supervisor starts and watches. Sizes in bytes, times in seconds."""

    outer: list[str]  # the command line that leads to the launcher; empty without bubblewrap
    launcher: list[str]
    guards: int  # the descriptor of their code
    confinement: Confinement
    private: str  # removed at the end
    watched: list[str]  # folders whose growth counts
    memory: int
    processes: int
    disk: int
    files: int  # how many more the watched folders may come to hold
    wall_s: float
    output: int
    keep: list[int]  # descriptors that the command inherits and nobody else
