"""The confined readers of one run, kept alive from one job to the next: one for each set of folders that a job may see
and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from m3b.reader import Reader
from m3b.sandbox import Mounts, Sandbox


class KeptReaders:
    """Makes readers and keeps them.

    Args:
        sandbox: what confines them.
        cancelled: asked twice a second while waiting; true ends the wait with `Cancelled`.
    """

    def __init__(self, sandbox: Sandbox, cancelled: Callable[[], bool]) -> None:
        self._sandbox, self._cancelled = sandbox, cancelled
        self._kept: dict[Mounts, Reader] = {}

    def of(self, read: Iterable[Path], write: Sequence[Path] = ()) -> Reader:
        """The reader that sees these folders and may write to those: the one of an earlier job, or a new one.

        A folder must stay the same folder: what takes its place is not seen.
        """
        mounts = Mounts(read=tuple(dict.fromkeys(read)), write=tuple(write))
        if mounts not in self._kept:
            self._kept[mounts] = Reader(self._sandbox, mounts, cancelled=self._cancelled)
        return self._kept[mounts]

    def close(self) -> None:
        """End their processes; a later job starts others."""
        for reader in self._kept.values():
            reader.close()
        self._kept.clear()
