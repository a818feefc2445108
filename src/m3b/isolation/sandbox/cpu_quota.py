"""CPU quota of the control groups of this process.

Containers and batch systems grant a share of a large machine, which the number of processors does not show. A program
with one thread per processor would then be throttled most of the time.

Files: https://docs.kernel.org/admin-guide/cgroup-v2.html ("cpu.max": quota and period in microseconds, or "max"), and
in version 1 cpu.cfs_quota_us (-1 without a limit) and cpu.cfs_period_us.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUP_FILE, CGROUP_ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def read_cpu_quota(cgroup_file: Path = CGROUP_FILE, cgroup_root: Path = CGROUP_ROOT) -> float | None:
    """Return the CPU quota of this process in processors: the smallest of its control groups; None without a limit."""
    try:
        lines = cgroup_file.read_text().splitlines()
    except OSError:
        return None
    shares = [
        share
        for line in lines
        for folder in _cgroup_folders(line, cgroup_root)
        if (share := _read_share(folder)) is not None
    ]
    return min(shares, default=None)


def _cgroup_folders(line: str, root: Path) -> Iterator[Path]:
    """Yield the folders of a line of /proc/self/cgroup with a CPU controller, from the group up to the root."""
    number, _, remainder = line.partition(":")
    controllers, _, group_name = remainder.partition(":")
    if number == "0" and not controllers:
        base = root
    elif "cpu" in controllers.split(","):
        base = root / controllers if (root / controllers).is_dir() else root / "cpu"
    else:
        return
    group_path = PurePosixPath("/", group_name).relative_to("/")
    if ".." not in group_path.parts:  # `..` means a group that this mount does not show
        yield from (base / folder for folder in (group_path, *group_path.parents) if folder != PurePosixPath("."))
    yield base


def _read_share(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        share = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None
