"""The two messages that m3b sends in marshal format: to the supervisor, and from there to the launcher inside."""

from __future__ import annotations

from typing import TypedDict


class LandlockRules(TypedDict):
    """Files and folders that Landlock allows, by kind of access."""

    read: list[str]
    write: list[str]
    devices: list[str]


class SeccompPolicy(TypedDict):
    """What the system call filter allows.

    `families`: the socket families. `shares_host`: the command can name other processes and files of the machine, as
    under Landlock; therefore it may change limits, priorities, watches and attributes of its own only, and changes of
    owner and mode only pretend to succeed. `connects`: whether sockets may be bound and connected; a socket pair is
    always allowed.
    """

    families: list[int]
    shares_host: bool
    connects: bool


class Confinement(TypedDict):
    """Restrictions that the launcher applies to itself before it executes the command."""

    command: list[str]
    cwd: str
    env: dict[str, str]
    rlimits: dict[str, int]  # RLIMIT name without its prefix -> soft and hard limit
    threads: int  # in addition to the user's running threads, because RLIMIT_NPROC counts all threads of a user
    unprivileged: bool
    landlock: LandlockRules | None
    filter: bytes  # system call filter in the format of the kernel; empty for none


class SupervisorJob(TypedDict):
    """The command that the supervisor starts and watches, with its limits. Sizes in bytes, times in seconds."""

    outer: list[str]  # the command line that starts the launcher; empty without bubblewrap
    launcher: list[str]
    guards: int  # descriptor of the code of the guards
    confinement: Confinement
    private: str  # the private folder, removed at the end
    watched: list[str]  # folders whose growth is limited
    memory: int
    processes: int
    disk: int
    files: int  # number of files and folders that may be added to the watched folders
    wall_s: float
    output: int
    keep: list[int]  # descriptors that only the command inherits
