"""Series on disk between their receipt and the delivery of their results: a queue that survives a restart.

Each series is a folder, and moving a folder is one step, so that a series is in exactly one state:

- `incoming/KEY`: instances arrive;
- `settling/KEY`: all associations that brought it were released; it is complete after some quiet seconds;
- `queued/TICKET`: complete, waits for its prediction;
- `outgoing/TICKET`: objects that wait for the destination;
- `failed/TICKET`: nothing could be predicted; nobody but the operator removes it.

A key is a hash of sender and series, a ticket the time of completion and the key: no name tells who the patient is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from m3b.errors import UsageError
from m3b.isolation.untrusted import remove_tree
from m3b.locking import acquire_lock

STATES = ("incoming", "settling", "queued", "outgoing", "failed")
MIN_FREE_BYTES = 2**30
"""Free space of the disk below which nothing more is received."""
KEEP_TORN_S = 24 * 3600.0
"""Time after which a series is removed whose association broke and that nobody sent again."""


class Spool:
    """The folder of all series of a node. Thread-safe.

    Args:
        folder: is made if it does not exist.
        max_series: series in all states but `failed` together; more are refused.

    Raises:
        UsageError: the folder cannot be written, or another process uses it.
    """

    def __init__(self, folder: Path, max_series: int) -> None:
        self._folder, self._max_series = folder.absolute(), max_series
        self._lock = threading.RLock()
        try:
            for state in (*STATES, "work"):
                (self._folder / state).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._handle = acquire_lock(self._folder / "spool.lock")
        except OSError as error:
            raise UsageError(f"{folder} cannot hold the series of the node: {error.strerror}.") from error
        if self._handle is None:
            raise UsageError(f"{folder} holds the series of another node that is at work; name another --spool.")
        remove_tree(self._folder / "work")
        (self._folder / "work").mkdir(mode=0o700)
        for ticket in set(self.list_tickets("queued")) & set(self.list_tickets("outgoing")):
            remove_tree(self._folder / "queued" / ticket)

    def close(self) -> None:
        """Let another process use the folder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def make_key(self, sender: str, series: str) -> str:
        """Return the name of the folder of a series of a sender."""
        return hashlib.sha256(f"{sender}\0{series}".encode()).hexdigest()[:16]

    def has_room(self, key: str) -> bool:
        """Return whether instances of a series can be received: it has begun, or the queue is not full."""
        with self._lock:
            is_known = any((self._folder / state / key).is_dir() for state in ("incoming", "settling"))
            n_series = sum(len(os.listdir(self._folder / state)) for state in STATES if state != "failed")
        return (is_known or n_series < self._max_series) and shutil.disk_usage(self._folder).free > MIN_FREE_BYTES

    def add(self, key: str, instance: str, file: Path) -> None:
        """Move an instance into its series, and sync it to the disk; one that was received before is replaced.

        Raises:
            OSError: it cannot be moved.
        """
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
        with self._lock:
            series, settling = self._folder / "incoming" / key, self._folder / "settling" / key
            if settling.is_dir() and not series.is_dir():
                settling.rename(series)
            series.mkdir(exist_ok=True, mode=0o700)
            os.replace(file, series / f"{hashlib.sha256(instance.encode()).hexdigest()[:32]}.dcm")

    def settle(self, key: str) -> None:
        """Note that all associations that brought a series were released."""
        with self._lock:
            series, settling = self._folder / "incoming" / key, self._folder / "settling" / key
            if series.is_dir():
                os.utime(series)
                series.rename(settling)

    def complete_settled(self, quiet_s: float) -> list[str]:
        """Queue the series that have been quiet for so long, and return their tickets."""
        tickets = []
        with self._lock:
            for series in sorted((self._folder / "settling").iterdir(), key=lambda path: path.stat().st_mtime_ns):
                if time.time() - series.stat().st_mtime >= quiet_s:
                    tickets.append(f"{time.time_ns():020d}_{series.name}")
                    series.rename(self._folder / "queued" / tickets[-1])
        return tickets

    def remove_torn(self, open_keys: set[str]) -> list[str]:
        """Remove series that no association brings and that nothing was added to for a day; return their keys."""
        removed = []
        with self._lock:
            for series in (self._folder / "incoming").iterdir():
                if series.name not in open_keys and time.time() - series.stat().st_mtime > KEEP_TORN_S:
                    remove_tree(series)
                    removed.append(series.name)
        return removed

    def list_tickets(self, state: str) -> list[str]:
        """Return the tickets in a state, the oldest first."""
        return sorted(os.listdir(self._folder / state))

    def path_of(self, state: str, ticket: str) -> Path:
        """Return the folder of a series in a state."""
        return self._folder / state / ticket

    @contextmanager
    def open_work_folder(self) -> Iterator[Path]:
        """Hold an empty folder for results during the block."""
        work = self._folder / "work" / "results"
        work.mkdir(mode=0o700)
        try:
            yield work
        finally:
            remove_tree(work)

    def finish(self, ticket: str, objects: Path) -> None:
        """Hand over the objects of a series, and remove its images."""
        objects.rename(self._folder / "outgoing" / ticket)
        remove_tree(self._folder / "queued" / ticket)

    def fail(self, ticket: str) -> None:
        """Put a series aside."""
        (self._folder / "queued" / ticket).rename(self._folder / "failed" / ticket)
