"""The confined readers of one run, kept alive from one job to the next: one for each set of folders that a job may see
and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from m3b.reader import Reader
from m3b.sandbox import Mounts, Sandbox


class ReaderPool:
    """Makes readers and keeps them.

    Args:
        sandbox: what confines them.
        is_cancelled: asked twice a second while waiting; true ends the wait with `Cancelled`.
    """

    def __init__(self, sandbox: Sandbox, is_cancelled: Callable[[], bool]) -> None:
        self._sandbox, self._is_cancelled = sandbox, is_cancelled
        self._readers: dict[Mounts, Reader] = {}

    def get_reader(self, read: Iterable[Path], write: Sequence[Path] = ()) -> Reader:
        """The reader that sees these folders and may write to those: the one of an earlier job, or a new one.

        A folder must stay the same folder: what takes its place is not seen.
        """
        mounts = Mounts(read=tuple(dict.fromkeys(read)), write=tuple(write))
        if mounts not in self._readers:
            self._readers[mounts] = Reader(self._sandbox, mounts, is_cancelled=self._is_cancelled)
        return self._readers[mounts]

    def close(self) -> None:
        """End their processes; a later job starts others."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
