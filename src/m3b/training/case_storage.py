"""How preprocessed cases are kept: as memory maps, compressed, or not at all; which files they come from; and how much room there is.

Entries of a cache are named by the content of their files and the settings of their preprocessing. A cache belongs to one project:
its entries are written by the project's own scripts, so that another project must not trust them, and they hold cases that another
project may have in its test part.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from m3b.dataset.formats import DataError, get_format

Storage = Literal["map", "compressed", "direct"]
CHOICES = ("auto", "map", "compressed", "direct")
"""Values of `cache` in plan.json."""
USABLE_SHARE = 0.8
"""Share of the free disk, and of the growth that the sandbox allows, that a cache may take."""
GROWTH_VARIABLE = "M3B_DISK_GROWTH_MIB"
"""Environment variable with the MiB by which the writable folders of a sandbox may grow during a command."""
MEMORY_VARIABLE = "M3B_MEMORY_MIB"
"""Environment variable with the MiB of memory of a command in a sandbox."""
FINGERPRINTS_FILE, DAMAGED_FINGERPRINTS_FILE = "fingerprints.sqlite", "fingerprints.damaged.sqlite"
MAX_HASHED_BYTES = 2**30
"""Size up to which a whole file is hashed; larger ones (slides) are known by size, time and three samples."""
_SAMPLE_BYTES = 2**20
_BLOCK_SIDE = {2: 64, 3: 32}
_COMPRESSION_LEVEL = 5
_GIB = 2**30
_used_keys: set[str] = set()
"""Entries that this process reads; they are not evicted."""


# --- content of files --------------------------------------------------------------------------------------------


def fingerprint_files(files: Iterable[Path], folder: Path | None = None) -> dict[Path, str]:
    """Return file -> hash of its content and of the files that belong to it; of a folder, of all files in it. "" if it is missing.

    Args:
        folder: where hashes are kept by name, size, time and number of a file, so that each file is read once.
    """
    unique = list(dict.fromkeys(files))
    states = {file: _state_of(file) for file in unique}
    known = _read_known(folder, states) if folder else {}
    missing = [file for file in unique if states[file] and file not in known]
    if missing:
        with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
            computed = dict(zip(missing, pool.map(_hash_content, missing), strict=True))
        if folder:
            _write_known(folder, [(str(file), states[file], value) for file, value in computed.items()])
        known |= computed
    return {file: known.get(file, "") for file in unique}


def flatten_paths(paths: Any) -> list[str]:
    """Return the paths of a record: of channels, slices and classes too."""
    if paths is None or isinstance(paths, str):
        return [paths] if paths else []
    items = paths.values() if isinstance(paths, Mapping) else paths
    return [path for item in items for path in flatten_paths(item)]


def file_of(path: str, base: str = ".") -> Path:
    """Return the file or folder of an image path, whose item may follow `#`."""
    whole = Path(base) / path
    return whole if "#" not in path or whole.exists() else Path(base) / path.split("#")[0]


def _list_content(file: Path) -> list[Path]:
    """Return the files whose content a path stands for."""
    if file.is_dir():
        return sorted(part for part in file.rglob("*") if part.is_file())
    if not file.is_file():
        return []
    try:
        sidecars = get_format(file).sidecars(file)
    except DataError:  # reported when the case is read
        sidecars = ()
    return [file, *(part for part in sidecars if part.is_file())]


def _state_of(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    parts = _list_content(file)
    for part in parts:
        state = part.stat()
        digest.update(f"{part.name}:{state.st_size}:{state.st_mtime_ns}:{state.st_ino};".encode())
    return digest.hexdigest() if parts else ""


def _hash_content(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in _list_content(file):
        size = part.stat().st_size
        with part.open("rb") as stream:
            if size <= MAX_HASHED_BYTES:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
                continue
            digest.update(f"{size}:{part.stat().st_mtime_ns}".encode())
            for start in (0, size // 2, size - _SAMPLE_BYTES):
                stream.seek(start)
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _open_known(folder: Path) -> sqlite3.Connection:
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / FINGERPRINTS_FILE, timeout=60)
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS files (file TEXT PRIMARY KEY, state TEXT, hash TEXT)")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _read_known(folder: Path, states: Mapping[Path, str]) -> dict[Path, str]:
    """Return file -> stored hash of files that have not changed; nothing if the store cannot be read."""
    try:
        with closing(_open_known(folder)) as connection:
            rows = {
                file: connection.execute("SELECT state, hash FROM files WHERE file = ?", (str(file),)).fetchone()
                for file in states
            }
    except sqlite3.DatabaseError as error:
        _set_aside(folder, error)
        return {}
    return {file: row[1] for file, row in rows.items() if row and row[0] == states[file] and isinstance(row[1], str)}


def _write_known(folder: Path, rows: Sequence[tuple[str, str, str]]) -> None:
    try:
        with closing(_open_known(folder)) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)
    except sqlite3.DatabaseError as error:
        _set_aside(folder, error)


def _set_aside(folder: Path, error: sqlite3.DatabaseError) -> None:
    """Go on without stored hashes; rename a store that is no database or has other tables, so that a new one is begun.

    Its journal goes too: SQLite would write what is in it into the new store.
    """
    file = folder / FINGERPRINTS_FILE
    is_damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
    )
    remedy = f"; it was renamed to {DAMAGED_FINGERPRINTS_FILE}" if is_damaged else ""
    print(f"warning: {file} cannot be used ({error}){remedy}; all files are read again", flush=True)
    if is_damaged:
        with suppress(OSError):  # another process did the same
            for suffix in ("-journal", "-wal", "-shm"):
                file.with_name(file.name + suffix).unlink(missing_ok=True)
            file.replace(folder / DAMAGED_FINGERPRINTS_FILE)


# --- room --------------------------------------------------------------------------------------------------------


class CacheRoom:
    """Bytes that a cache may still write; several threads may reserve them.

    Args:
        folder: of the cache; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock, self._written = folder, threading.Lock(), 0
        growth = os.environ.get(GROWTH_VARIABLE, "")
        self._growth = int(USABLE_SHARE * int(growth) * 2**20) if growth.isdecimal() else None

    def free(self) -> int:
        """Return the bytes that may be written now."""
        disk = int(USABLE_SHARE * shutil.disk_usage(self.folder).free)
        return max(0, disk if self._growth is None else min(disk, self._growth - self._written))

    def reserve(self, size: int) -> bool:
        """Return whether `size` bytes may be written, and count them if so."""
        with self._lock:
            has_room = size <= self.free()
            self._written += size if has_room else 0
            return has_room


def usable_memory() -> int:
    """Return the bytes of memory that may be used: half of what is free, and of the sandbox's limit."""
    pages, page_size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    available = pages * page_size
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        available = int(lines.get("MemAvailable", f"{available >> 10} kB").split()[0]) << 10
    limit = os.environ.get(MEMORY_VARIABLE, "")
    return min(available, int(limit) << 20 if limit.isdecimal() else available) // 2


def mark_used(folder: Path, keys: Iterable[str]) -> None:
    """Keep entries of this process from eviction, and note their use."""
    _used_keys.update(keys)
    names, now = set(keys), time.time_ns()
    for entry in folder.iterdir():
        if entry.name.split(".")[0] in names:
            os.utime(entry, ns=(now, entry.stat().st_mtime_ns))


def evict_unused(folder: Path, size: int, room: CacheRoom, needed: Collection[str]) -> int:
    """Remove entries of other settings or files, the longest unused first, until `size` bytes have room; return the bytes removed.

    Args:
        needed: keys of entries that are about to be used.
    """
    entries: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        key = path.name.split(".")[0]
        if len(key) in (16, 20) and all(sign in "0123456789abcdef" for sign in key):
            entries.setdefault(key, []).append(path)
    unused = [key for key in entries if key not in _used_keys and key not in needed]
    removed = 0
    for key in sorted(unused, key=lambda name: max(path.stat().st_atime_ns for path in entries[name])):
        if room.free() >= size:
            break
        for path in entries[key]:
            removed += sum(part.stat().st_size for part in _list_content_of_entry(path))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return removed


def _list_content_of_entry(path: Path) -> list[Path]:
    return [part for part in path.rglob("*") if part.is_file()] if path.is_dir() else [path]


# --- choice of the storage ---------------------------------------------------------------------------------------


def check_choice(plan: Mapping[str, Any]) -> str:
    """Return `cache` of the plan. Raises SystemExit if it is unknown."""
    choice = plan.get("cache") or "auto"
    if choice not in CHOICES:
        raise SystemExit(f"cache {choice!r} in plan.json is unknown; known are {', '.join(CHOICES)}")
    return str(choice)


def choose_storage(plan: Mapping[str, Any], size: int, compressed_size: int, room: CacheRoom) -> Storage:
    """Return the storage of `size` bytes of cases: memory maps if they have room, else compressed, else direct reading.

    Memory maps are read many times faster than compressed arrays (`benchmarks/cache_formats.py`).
    """
    choice = check_choice(plan)
    if choice != "auto":
        return cast(Storage, choice)
    free = room.free()
    if size <= free:
        return "map"
    return "compressed" if can_compress() and compressed_size <= free else "direct"


def can_compress() -> bool:
    """Return whether blosc2 is installed."""
    return find_spec("blosc2") is not None


def describe_storage(storage: Storage, cases: int, size: int, compressed_size: int, room: CacheRoom) -> str:
    """Return how cases are kept, for the log and the plan."""
    need, free = f"{cases} cases take {format_gib(size)}", format_gib(room.free())
    if storage == "map":
        return f"cache: {need} as memory maps; {free} may be used"
    if storage == "compressed":
        return f"cache: {need}, compressed about {format_gib(compressed_size)}; {free} may be used: compressed"
    compressed = f", compressed about {format_gib(compressed_size)}" if can_compress() else ""
    return (
        f"cache: {need}{compressed}; {free} may be used: no cache, each step reads and preprocesses its cases again; free disk "
        "space makes the steps faster"
    )


def describe_planned_storage(
    plan: Mapping[str, Any], cases: int, case_bytes: int, folder: Path = Path("Logout")
) -> str:
    """Return how the cases of a plan will be kept, before one is preprocessed.

    Args:
        case_bytes: of a preprocessed case.
        folder: where the cache will be, or a folder above it.
    """
    existing = next(path for path in (folder, *folder.resolve().parents) if path.is_dir())
    room, size = CacheRoom(existing), cases * case_bytes
    choice = check_choice(plan)
    if choice == "auto" and size > room.free():
        suffix = "compressed if that suffices, else read and preprocessed again in each step"
        return f"cache: about {format_gib(size)} for {cases} cases, {format_gib(room.free())} may be used: {suffix}"
    how = {"auto": "memory maps", "map": "memory maps", "compressed": "compressed", "direct": "no cache"}[choice]
    return f"cache: about {format_gib(size)} for {cases} cases, {format_gib(room.free())} may be used: {how}"


def format_gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB // 10 else f"{size / 2**20:.1f} MiB"


# --- compressed arrays -------------------------------------------------------------------------------------------


def compress(array: np.ndarray) -> bytes:
    """Return an array as a blosc2 frame in blocks, of which parts can be read.

    Args:
        array: with spatial axes last: blocks are cubes of 32 voxels, or squares of 64 pixels, of one channel.
    """
    import blosc2

    spatial = 3 if array.ndim >= 3 and min(array.shape[-3:]) > 4 else 2
    side = _BLOCK_SIDE[spatial]
    lead = array.ndim - spatial
    blocks = [1] * lead + [min(length, side) for length in array.shape[lead:]]
    chunks = [1] * lead + [min(length, 4 * side) for length in array.shape[lead:]]
    settings = {
        "codec": blosc2.Codec.ZSTD,
        "filters": [blosc2.Filter.SHUFFLE],
        "clevel": _COMPRESSION_LEVEL,
        "nthreads": 1,
    }
    stored = blosc2.asarray(np.ascontiguousarray(array), chunks=chunks, blocks=blocks, cparams=settings)
    frame: bytes = stored.to_cframe()
    return frame


class CompressedArray:
    """A compressed array in a file: slices of it are decompressed, nothing else."""

    def __init__(self, file: str | Path) -> None:
        import blosc2

        self._array: Any = blosc2.open(str(file), mode="r", dparams={"nthreads": 1}, mmap_mode="r")
        self.shape: tuple[int, ...] = tuple(int(length) for length in self._array.shape)
        self.dtype, self.ndim = np.dtype(self._array.dtype), len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(np.asarray(self))

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return a copy of a part. Masks and lists of places decompress the whole array."""
        parts = index if isinstance(index, tuple) else (index,)
        if all(part is Ellipsis or isinstance(part, int | np.integer | slice) for part in parts):
            if any(isinstance(part, slice) and part.step not in (None, 1) for part in parts):
                return np.asarray(np.asarray(self)[index])
            return np.asarray(self._array[index])
        return np.asarray(np.asarray(self)[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = np.asarray(self._array[...])
        return whole if dtype is None else whole.astype(dtype)
