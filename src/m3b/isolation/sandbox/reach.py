"""Threats that each backend stops or does not stop: the list behind `m3b doctor` and the table in docs/security.md."""

from __future__ import annotations

from dataclasses import dataclass

BACKENDS = ("bubblewrap", "landlock", "off")
BACKEND_TITLES = {"bubblewrap": "bubblewrap", "landlock": "Landlock (ABI 6+)", "off": "off"}


@dataclass(frozen=True)
class Threat:
    """One kind of access that a script could try.

    Args:
        description: description in words.
        open_backends: the backends that do not stop it.
        exceptions: backend -> the case that it does not stop, although it stops all others.
    """

    description: str
    open_backends: tuple[str, ...] = ()
    exceptions: tuple[tuple[str, str], ...] = ()

    def cell(self, backend: str) -> str:
        """Return the cell of the table for a backend."""
        if backend in self.open_backends:
            return "no" if backend == "off" else "**no**"
        exception = dict(self.exceptions).get(backend)
        return f"yes, {exception}" if exception else "yes"


OFF_ONLY = ("off",)
WEAK_BACKENDS = ("landlock", "off")
THREATS = (
    Threat("reading files of yours, keys, environment", OFF_ONLY),
    Threat("writing outside `work/`", OFF_ONLY),
    Threat("network", OFF_ONLY),
    Threat("other processes: memory, signals, limits, priorities", OFF_ONLY),
    Threat("leases, flags and versions of files that it may only read", OFF_ONLY),
    Threat("seeing which files and processes exist", WEAK_BACKENDS),
    Threat("as root: how the machine's memory is used, in numbers", WEAK_BACKENDS),
    Threat(
        "unix sockets with a path, for agents' scripts", WEAK_BACKENDS, (("bubblewrap", "outside mounted folders"),)
    ),
    Threat("shared memory of the machine, for agents' scripts", WEAK_BACKENDS),
    Threat("daemons that outlive the command, fork and memory bombs, full disks"),
    Threat("flaws of the kernel or the GPU driver", BACKENDS),
    Threat("timing, and how busy the machine is", BACKENDS),
)


def list_open_threats(backend: str) -> list[str]:
    """Return the descriptions of what a backend does not stop; empty for an unknown backend."""
    return [row.description.replace("`", "") for row in THREATS if backend in row.open_backends]


def format_threat_table() -> str:
    """Return the table of docs/security.md as Markdown."""
    lines = [f"| | {' | '.join(BACKEND_TITLES[name] for name in BACKENDS)} |", "|---" * (len(BACKENDS) + 1) + "|"]
    lines += [f"| {row.description} | {' | '.join(row.cell(name) for name in BACKENDS)} |" for row in THREATS]
    return "\n".join(lines)
