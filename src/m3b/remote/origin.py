"""Where a mirrored folder comes from, as records, journals and reports state it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from m3b.errors import UsageError

MAX_TIME_S = 253_402_300_800
"""The end of the year 9999, in seconds since 1970."""


@dataclass(frozen=True)
class Origin:
    """Where a mirrored folder comes from.

    Args:
        url: address without credentials.
        snapshot: id of the state; the folder is `snapshots/ID/...` in the store.
        n_files: number of files.
        n_bytes: size of all files.
        digest: SHA-256 of the list of files with fingerprints and content hashes (`files.jsonl`).
        mirrored_at: when this state was fetched first, in seconds since 1970.
    """

    url: str
    snapshot: str
    n_files: int
    n_bytes: int
    digest: str
    mirrored_at: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Origin:
        """Return the origin that a record or `origin.json` holds.

        Raises:
            UsageError: it is incomplete, or a number cannot be.
        """
        try:
            origin = cls(
                str(value["url"]), str(value["snapshot"]), int(value["n_files"]), int(value["n_bytes"]),
                str(value["digest"]), float(value["mirrored_at"]),
            )  # fmt: skip
            if min(origin.n_files, origin.n_bytes) < 0 or not 0 <= origin.mirrored_at < MAX_TIME_S:
                raise ValueError("a number of it is out of range")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"The record of a mirrored folder is damaged: {error!r} in {str(value)[:500]}.") from error
        return origin

    def describe(self) -> str:
        return f"{self.url} ({self.n_files:,} files, {format_bytes(self.n_bytes)}, snapshot {self.snapshot})"


def format_bytes(size: float) -> str:
    """Return a size in the largest fitting binary unit."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    position = 0
    while size >= 1024 and position < len(units) - 1:
        size, position = size / 1024, position + 1
    return f"{size:.0f} {units[position]}" if position == 0 else f"{size:.1f} {units[position]}"


@dataclass(frozen=True)
class MirroredFolder:
    """A remote folder or file that was mirrored; `Pipeline` and `Workspace` take it as data.

    Args:
        path: the local folder, or the file if the address names one.
        origin: where it comes from.
        notes: what the user should know, such as files whose names were changed.
        n_fetched: files that were fetched now; all others were in the store.
    """

    path: Path
    origin: Origin
    notes: tuple[str, ...] = ()
    n_fetched: int = 0
