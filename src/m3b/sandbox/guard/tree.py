"""The tree of processes below one process, read from /proc: who is in it, what it uses, and how to end it."""

from __future__ import annotations

import os
import stat
import time

from .quiet import suppress
from .signals import signal

TYPE_CHECKING = False  # what the module typing says; importing it takes longer than all else here
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UNLINKED_SUFFIX = " (deleted)"
_FORK_BOMB_PROCESSES = 16  # new processes between two looks that mean: stop them all first
_IN_MEMORY = ("/memfd:", "/dev/shm/")  # nosec B108  # a folder inside the sandbox, or a name that is only compared


class ProcessStat:
    """One line of /proc/PID/stat: parent, process group, state letter, threads, resident bytes."""

    __slots__ = ("group", "parent", "resident", "state", "threads")

    def __init__(self, line: str) -> None:
        fields = line[line.rindex(")") + 2 :].split()  # the name before may hold blanks and brackets
        self.state = fields[0]
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.threads = int(fields[17])
        self.resident = int(fields[21]) * _PAGE_BYTES


def _iterate_processes() -> Iterator[tuple[int, ProcessStat]]:
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                process = ProcessStat(file.read())
        except (OSError, ValueError, IndexError):  # it ended meanwhile
            continue
        yield int(name), process


def count_user_threads(uid: int) -> int:
    """Count the threads that belong to the user `uid`, as far as /proc shows them."""
    count = 0
    for pid, process in _iterate_processes():
        with suppress(OSError):
            count += process.threads if os.stat(f"/proc/{pid}").st_uid == uid else 0
    return count


def count_machine_threads() -> int:
    """Count the threads of the whole machine: one short read, so that a fork bomb shows at once."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].split("/")[1])


def count_oom_kills() -> int:
    """Count the processes that the kernel has killed since it started because memory ran out."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def list_descendants(root: int) -> dict[int, ProcessStat]:
    """Return the living descendants of `root`, zombies and `root` itself left out."""
    processes = dict(_iterate_processes())
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    result: dict[int, ProcessStat] = {}
    pending = [root]
    while pending:
        for pid in children.get(pending.pop(), ()):
            pending.append(pid)
            if processes[pid].state not in "ZX":
                result[pid] = processes[pid]
    return result


def kill_descendants(root: int, patience_s: float = 20.0) -> bool:
    """End every descendant of `root` (this process, a subreaper) and reap them; False where some are left.

    Whole process groups go first, in one call that no fork escapes. What is left in groups of its own is stopped
    before it is killed, so that a fork bomb of daemons cannot outrun the killing.
    """
    deadline = time.monotonic() + patience_s
    own_group = os.getpgrp()
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        reap_children()
        if _is_childless():  # whoever loses its parent below a subreaper becomes its child
            return True
        descendants = list_descendants(root)
        for group in {s.group for s in descendants.values()} - {own_group, 0}:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        new_pids = descendants.keys() - stopped
        if len(new_pids) > _FORK_BOMB_PROCESSES:
            _send_signal(new_pids, signal.SIGSTOP)
            stopped |= new_pids
            continue
        _send_signal(descendants, signal.SIGKILL)
        time.sleep(0.002)
    return False


def _is_childless() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _send_signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def reap_children() -> dict[int, int]:
    """Collect the children that have ended: pid -> wait status."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def estimate_memory(tree: dict[int, ProcessStat], unmapped: int, threshold: int) -> int:
    """Estimate the bytes of memory that the tree holds, or 0 where it clearly is not more than `threshold`.

    Resident sizes count a page that forked workers share once for each of them, so where their sum is too large the
    proportional sizes decide. `unmapped` bytes lie behind open descriptors of nameless files in memory; they count
    even where nobody maps them, and once where somebody does.
    """
    if sum(s.resident for s in tree.values()) + unmapped <= threshold:
        return 0
    total = shared = 0
    for pid, process in tree.items():
        proportional = _proportional_sizes(pid)
        total += process.resident if proportional is None else proportional[0]
        shared += 0 if proportional is None else proportional[1]
    return max(total, total - shared + unmapped)


def _proportional_sizes(pid: int) -> tuple[int, int] | None:
    """Return (Pss, Pss_Shmem) in bytes, or None where the kernel does not tell."""
    fields: dict[str, int] = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, value_text = line.partition(":")
                if name in ("Pss", "Pss_Shmem"):
                    fields[name] = int(value_text.split()[0]) * 1024
    except (OSError, ValueError):
        return None
    return (fields["Pss"], fields.get("Pss_Shmem", 0)) if "Pss" in fields else None


def find_unlinked_files(tree: dict[int, ProcessStat]) -> dict[tuple[int, int], tuple[int, bool]]:
    """Find files that are open but have no name: (device, inode) -> (bytes held, whether in memory).

    No walk of a folder sees them.
    """
    files: dict[tuple[int, int], tuple[int, bool]] = {}
    for pid in tree:
        folder = f"/proc/{pid}/fd"
        with suppress(OSError):
            for name in os.listdir(folder):
                with suppress(OSError):
                    target = os.readlink(f"{folder}/{name}")
                    if not target.endswith(_UNLINKED_SUFFIX):
                        continue
                    status = os.stat(f"{folder}/{name}")
                    if stat.S_ISREG(status.st_mode):
                        n_bytes = status.st_blocks * 512
                        files[status.st_dev, status.st_ino] = (n_bytes, target.startswith(_IN_MEMORY))
    return files
