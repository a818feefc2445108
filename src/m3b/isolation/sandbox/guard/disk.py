"""Growth of the writable folders, counted in small steps so that the supervisor stays responsive."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # as in typing, whose import would take longer than all others here
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ENTRIES_PER_STEP = 2000  # entries per step; between steps the supervisor does its other work


class DiskUsage:
    """Disk usage of folders: bytes on disk, and the number of files and folders of any kind."""

    __slots__ = ("entries", "size")

    def __init__(self, size: int = 0, entries: int = 0) -> None:
        self.size, self.entries = size, entries


def count_usage(folders: Sequence[str]) -> Iterator[DiskUsage | None]:
    """Yield None while counting and at last the disk usage of the folders. Links are not followed."""
    seen_inodes: set[tuple[int, int]] = set()
    total = entries = 0
    pending = list(folders)
    while pending:
        try:
            listing = os.scandir(pending.pop())
        except OSError:
            continue  # removed in the meantime, or made unreadable by its owner
        with listing:
            for entry in listing:
                entries += 1
                if entries % _ENTRIES_PER_STEP == 0:
                    yield None
                try:
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                except OSError:
                    continue
                if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                    if (status.st_dev, status.st_ino) in seen_inodes:
                        continue
                    seen_inodes.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    yield DiskUsage(total, entries)


class Growth:
    """Growth of the folders since the start, compared with limits of at most 90 % of the free space at the start."""

    def __init__(self, folders: Sequence[str], size: int, entries: int) -> None:
        self._folders = [f for f in folders if os.path.isdir(f)]
        self._baseline = self._count_now()
        self._free = self._free_space()
        if self._folders:
            size = min(size, int(self._free.size * 0.9))
        if self._free.entries:  # some file systems do not count
            entries = min(entries, int(self._free.entries * 0.9))
        self.limit = DiskUsage(size, entries)
        self.grown = DiskUsage()
        self._counting: Iterator[DiskUsage | None] | None = None
        self._count_started_at = self._next_count_at = time.monotonic()

    def _count_now(self) -> DiskUsage:
        total = DiskUsage()
        for step in count_usage(self._folders):
            total = step or total
        return total

    def _free_space(self) -> DiskUsage:
        """Return the free space of the disks; 0 entries if a file system does not report them."""
        free = [os.statvfs(f) for f in self._folders]
        return DiskUsage(
            min((v.f_bavail * v.f_frsize for v in free), default=0), min((v.f_favail for v in free), default=0)
        )

    def step(self, unnamed: int) -> str:
        """Continue counting for about 20 ms.

        Returns `disk` if the folders plus `unnamed` bytes of open unlinked files exceed the limit, `files` if they
        contain too many files, otherwise an empty text.
        """
        now = time.monotonic()
        if self._counting is None:
            if now < self._next_count_at and not self._is_shrinking():
                return ""
            self._counting, self._count_started_at = count_usage(self._folders), now
            self._free = self._free_space()
        while time.monotonic() - now < 0.02:
            result = next(self._counting)
            if result is not None:
                self._counting = None
                spent = time.monotonic() - self._count_started_at
                self._next_count_at = time.monotonic() + max(1.0, 20 * spent)
                self.grown = DiskUsage(result.size - self._baseline.size, result.entries - self._baseline.entries)
                if self.grown.size + unnamed > self.limit.size:
                    return "disk"
                return "files" if self.grown.entries > self.limit.entries else ""
        return ""

    def _is_shrinking(self) -> bool:
        """Return whether the disk lost so much free space since the last count that the next one must not wait."""
        now = self._free_space()
        lost = DiskUsage(self._free.size - now.size, self._free.entries - now.entries)
        return lost.size > max(1 << 20, (self.limit.size - self.grown.size) // 2) or (
            lost.entries > max(1000, (self.limit.entries - self.grown.entries) // 2)
        )
