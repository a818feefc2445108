"""The process tree below one process, read from /proc: its members, what they use, and how to kill it."""

from __future__ import annotations

import os
import stat
import time

from .quiet import suppress
from .signals import signal

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UNLINKED_SUFFIX = " (deleted)"
_FORK_BOMB_PROCESSES = 16  # with more new processes between two scans, all are stopped before they are killed
_IN_MEMORY = ("/memfd:", "/dev/shm/")  # nosec B108  # a folder inside the sandbox, or a name that is only compared


class ProcessStat:
    """One line of /proc/PID/stat: parent, process group, state letter, threads, resident bytes."""

    __slots__ = ("group", "parent", "resident", "state", "threads")

    def __init__(self, line: str) -> None:
        fields = line[line.rindex(")") + 2 :].split()  # the name before it may contain blanks and brackets
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
        except (OSError, ValueError, IndexError):  # it ended in the meantime
            continue
        yield int(name), process


def count_user_threads(uid: int) -> int:
    """Return the number of threads of the user `uid`, as far as /proc shows them."""
    count = 0
    for pid, process in _iterate_processes():
        with suppress(OSError):
            count += process.threads if os.stat(f"/proc/{pid}").st_uid == uid else 0
    return count


def count_machine_threads() -> int:
    """Return the number of threads on the whole machine: one short read, so that a fork bomb is seen at once."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].split("/")[1])


def count_oom_kills() -> int:
    """Return how many processes the kernel has killed since boot because memory ran out."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def list_descendants(root: int) -> dict[int, ProcessStat]:
    """Return the running descendants of `root`, without zombies and `root` itself."""
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
    """Kill and reap all descendants of `root` (this process, a subreaper); return False if some are left.

    Whole process groups are killed first, in one call that no fork escapes. Many new processes are stopped before they
    are killed, so that a fork bomb of daemons cannot start new ones faster than they are killed.
    """
    deadline = time.monotonic() + patience_s
    own_group = os.getpgrp()
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        reap_children()
        if _is_childless():  # below a subreaper, orphans become its children, so none is missed
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
    """Reap the children that have ended; return pid -> wait status."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def estimate_memory(tree: dict[int, ProcessStat], unmapped: int, threshold: int) -> int:
    """Return an estimate of the memory of the tree in bytes, or 0 if it is clearly at most `threshold`.

    The sum of resident sizes counts a page that forked workers share once for each of them, so if it is too large the
    proportional sizes decide. `unmapped` is the size of unlinked files in memory with open descriptors; they count even
    if no process maps them, and only once if some do.
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
    """Return (Pss, Pss_Shmem) in bytes, or None if the kernel does not report them."""
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
    """Return the open files without a name: (device, inode) -> (bytes on disk or in memory, whether in memory).

    A walk over the folders does not see them.
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
