"""How much the writable folders have grown, counted in small steps so that the supervisor stays responsive."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

_STEP = 2000  # entries looked at before the supervisor sees to the rest


def count(folders: Sequence[str]) -> Iterator[int | None]:
    """Yield None while counting and at last the bytes that the folders hold. Links are not followed."""
    seen: set[tuple[int, int]] = set()
    total = entries = 0
    waiting = list(folders)
    while waiting:
        try:
            listing = os.scandir(waiting.pop())
        except OSError:
            continue  # removed meanwhile, or made unreadable by its owner
        with listing:
            for entry in listing:
                entries += 1
                if entries % _STEP == 0:
                    yield None
                try:
                    about = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                except OSError:
                    continue
                if about.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                    if (about.st_dev, about.st_ino) in seen:
                        continue
                    seen.add((about.st_dev, about.st_ino))
                total += about.st_blocks * 512
    yield total


class Growth:
    """The growth of the folders since the start against `limit`, which never exceeds what the disk had free."""

    def __init__(self, folders: Sequence[str], limit: int) -> None:
        self._folders = [f for f in folders if os.path.isdir(f)]
        self._baseline = self._all_at_once()
        self._free = self._free_bytes()
        self.limit = min(limit, int(self._free * 0.9)) if self._folders else limit
        self.grown = 0
        self._counting: Iterator[int | None] | None = None
        self._began = self._next = time.monotonic()

    def _all_at_once(self) -> int:
        total = 0
        for step in count(self._folders):
            total = step or 0
        return total

    def _free_bytes(self) -> int:
        free = [os.statvfs(f) for f in self._folders]
        return min((v.f_bavail * v.f_frsize for v in free), default=0)

    def step(self, unnamed: int) -> bool:
        """Count on for a moment; True when the folders plus `unnamed` bytes of open nameless files are too much."""
        now = time.monotonic()
        if self._counting is None:
            if now < self._next and not self._shrinking():
                return False
            self._counting, self._began = count(self._folders), now
            self._free = self._free_bytes()
        while time.monotonic() - now < 0.02:
            result = next(self._counting)
            if result is not None:
                self._counting = None
                spent = time.monotonic() - self._began
                self._next = time.monotonic() + max(1.0, 20 * spent)
                self.grown = result - self._baseline
                return self.grown + unnamed > self.limit
        return False

    def _shrinking(self) -> bool:
        """Whether the disk lost so much since the last count that waiting for the next one is a risk."""
        return self._free - self._free_bytes() > max(1 << 20, (self.limit - self.grown) // 2)
