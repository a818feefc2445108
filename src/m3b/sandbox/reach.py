"""What each backend stops, and what it cannot: the one list behind `m3b doctor` and the table in docs/security.md."""

from __future__ import annotations

from dataclasses import dataclass

BACKENDS = ("bubblewrap", "landlock", "off")
HEADS = {"bubblewrap": "bubblewrap", "landlock": "Landlock (ABI 6+)", "off": "off"}


@dataclass(frozen=True)
class Reach:
    """One thing that a script could try.

    Args:
        what: in words.
        open_in: the backends that do not stop it.
        except_for: backend -> what it leaves open of a thing that it stops otherwise.
    """

    what: str
    open_in: tuple[str, ...] = ()
    except_for: tuple[tuple[str, str], ...] = ()

    def cell(self, backend: str) -> str:
        """The table's cell."""
        if backend in self.open_in:
            return "no" if backend == "off" else "**no**"
        exception = dict(self.except_for).get(backend)
        return f"yes, {exception}" if exception else "yes"


OFF = ("off",)
WEAK = ("landlock", "off")
ROWS = (
    Reach("reading files of yours, keys, environment", OFF),
    Reach("writing outside `work/`", OFF),
    Reach("network", OFF),
    Reach("other processes: memory, signals, limits, priorities", OFF),
    Reach("leases, flags and versions of files that it may only read", OFF),
    Reach("seeing which files and processes exist", WEAK),
    Reach("as root: how the machine's memory is used, in numbers", WEAK),
    Reach("unix sockets with a path, for agents' scripts", WEAK, (("bubblewrap", "outside mounted folders"),)),
    Reach("shared memory of the machine, for agents' scripts", WEAK),
    Reach("daemons that outlive the command, fork and memory bombs, full disks"),
    Reach("flaws of the kernel or the GPU driver", BACKENDS),
    Reach("timing, and how busy the machine is", BACKENDS),
)


def not_stopped(backend: str) -> list[str]:
    """What a backend does not stop, in words; of an unknown backend, nothing is said."""
    return [row.what.replace("`", "") for row in ROWS if backend in row.open_in]


def table() -> str:
    """The table of docs/security.md, as Markdown."""
    lines = [f"| | {' | '.join(HEADS[name] for name in BACKENDS)} |", "|---" * (len(BACKENDS) + 1) + "|"]
    lines += [f"| {row.what} | {' | '.join(row.cell(name) for name in BACKENDS)} |" for row in ROWS]
    return "\n".join(lines)
