"""All cases decoded and preprocessed once, in shards of one array; an interrupted build continues."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, ImagePath
from m3b.training.case_storage import (
    CacheRoom,
    CompressedArray,
    Storage,
    can_compress,
    choose_storage,
    compress,
    describe_storage,
    evict_unused,
    file_of,
    fingerprint_files,
    flatten_paths,
    mark_used,
)
from m3b.training.preprocess import PREPROCESSING_KEYS, prepare_image

_MAX_FLOAT32_BYTES = 2 * 1024**3  # a larger cache is stored in half precision
_SHARD_BYTES = 64 * 2**20
_SHARD_CASES = 4096
_UNREADABLE_FILE = "unreadable.json"
_SUFFIXES: Mapping[Storage, str] = {"map": ".npy", "compressed": ".b2nd", "direct": ".none"}
MAX_UNREADABLE_SHARE = 0.05
"""Share of the cases that may be unreadable; they are excluded."""


class CacheError(RuntimeError):
    """Too many cases cannot be read."""


def cache_key(paths: Sequence[ImagePath], plan: Mapping[str, Any], base: str = ".", folder: Path | None = None) -> str:
    """Return the key of a cache: preprocessing settings of the plan, paths, and the content of the files.

    Args:
        folder: where the hashes of files are kept.
    """
    digest = hashlib.sha256(json.dumps({key: plan.get(key) for key in PREPROCESSING_KEYS}, sort_keys=True).encode())
    files = [[file_of(name, base) for name in flatten_paths(path)] for path in paths]
    fingerprints = fingerprint_files([file for case_files in files for file in case_files], folder)
    for path, case_files in zip(paths, files, strict=True):
        digest.update(json.dumps([path, [fingerprints[file] for file in case_files]]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


class CachedImages:
    """The images of all cases, (N, C, *size), read by their numbers; those without room in the cache are preprocessed at each access.

    Attributes:
        shape: (N, C, *size).
    """

    def __init__(
        self,
        folder: Path,
        paths: Sequence[ImagePath],
        plan: Mapping[str, Any],
        base: str,
        dtype: Any,
        unreadable: set[int],
    ) -> None:
        self._folder, self._paths, self._plan, self._base, self._unreadable = folder, paths, plan, base, unreadable
        self.shape = (len(paths), int(plan["channels"]), *(int(side) for side in plan["size"]))
        self.dtype, self.ndim = np.dtype(dtype), len(self.shape)
        self._shard_cases = count_shard_cases(self.shape, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return (C, *size) of a number, or (n, C, *size) of a slice, numbers or a mask."""
        numbers = np.arange(len(self))[index]
        if numbers.ndim == 0:
            return self._read(int(numbers))
        images = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for place, number in enumerate(numbers):
            images[place] = self._read(int(number))
        return images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)

    def _read(self, number: int) -> np.ndarray:
        shard, row = divmod(number, self._shard_cases)
        stored = _open_shard(_name_shard(self._folder, shard))
        if stored is not None:
            return np.asarray(stored[row])
        if number in self._unreadable:
            return np.zeros(self.shape[1:], self.dtype)
        return prepare_image(self._paths[number], self._plan, self._base).astype(self.dtype)


def count_shard_cases(shape: Sequence[int], dtype: Any) -> int:
    """Return the cases of a shard of an array (N, C, *size)."""
    case_bytes = int(np.prod(shape[1:])) * int(np.dtype(dtype).itemsize)
    return max(1, min(_SHARD_CASES, _SHARD_BYTES // case_bytes))


def build_cache(
    paths: Sequence[ImagePath],
    plan: Mapping[str, Any],
    folder: str | Path = "Logout/cache",
    base: str = ".",
    max_unreadable: float = MAX_UNREADABLE_SHARE,
) -> tuple[CachedImages, np.ndarray]:
    """Return (N, C, *size) of all cases, and (N,) bool: which could be read; the others are zeros.

    A finished cache is reused, an interrupted one continued. Unreadable cases are printed; the caller excludes them. `plan["cache"]`
    says how the cases are kept (`case_storage`): "auto" takes memory maps, compressed arrays or direct reading by the free space.

    Raises:
        CacheError: more than `max_unreadable` of the cases cannot be read.
    """
    key = cache_key(paths, plan, base, Path(folder))
    cache_folder = Path(folder) / key
    cache_folder.mkdir(parents=True, exist_ok=True)
    shape = (len(paths), int(plan["channels"]), *(int(side) for side in plan["size"]))
    dtype = np.float32 if np.prod(shape) * 4 <= _MAX_FLOAT32_BYTES else np.float16
    reasons = _Builder(paths, plan, cache_folder, base, shape, dtype).build()
    mark_used(Path(folder), [key])
    if len(reasons) > max_unreadable * len(paths):
        first = reasons[min(reasons)]
        for number in {row // count_shard_cases(shape, dtype) for row in reasons}:  # they are read again next time
            for suffix in _SUFFIXES.values():
                Path(f"{_name_shard(cache_folder, number)}{suffix}").unlink(missing_ok=True)
        raise CacheError(f"{len(reasons)} of {len(paths)} cases cannot be read; correct the index. First: {first}")
    is_readable = np.ones(len(paths), bool)
    is_readable[list(reasons)] = False
    return CachedImages(cache_folder, paths, plan, base, dtype, set(reasons)), is_readable


class _Builder:
    """Fills the shards of a cache."""

    def __init__(
        self,
        paths: Sequence[ImagePath],
        plan: Mapping[str, Any],
        folder: Path,
        base: str,
        shape: tuple[int, ...],
        dtype: Any,
    ) -> None:
        self.paths, self.plan, self.folder, self.base, self.shape, self.dtype = paths, plan, folder, base, shape, dtype
        self.shard_cases = count_shard_cases(shape, dtype)
        self.room = CacheRoom(folder)
        self.reasons = _read_reasons(folder / _UNREADABLE_FILE)

    def build(self) -> dict[int, str]:
        """Fill missing shards, and those without room of an earlier build; return row -> why it cannot be read."""
        shards = range(-(-len(self.paths) // self.shard_cases))
        storages = {number: self._storage_of(number) for number in shards}
        pending = [number for number in shards if storages[number] in (None, "direct")]
        if not pending:
            return self.reasons
        storage = self._choose_storage(pending[0], self.shard_cases * len(pending))
        pending = [number for number in pending if storages[number] is None or storage != "direct"]
        with ThreadPoolExecutor(max(1, int(self.plan.get("workers") or os.cpu_count() or 1))) as pool:
            for number in pending:
                self._fill_shard(number, storage, pool)
        return self.reasons

    def _storage_of(self, number: int) -> Storage | None:
        name = _name_shard(self.folder, number)
        return next((storage for storage, suffix in _SUFFIXES.items() if Path(f"{name}{suffix}").exists()), None)

    def _choose_storage(self, number: int, cases: int) -> Storage:
        """Return the storage of the pending cases, by the size of one case and the compression of the first readable one."""
        cases = min(cases, len(self.paths))
        size = cases * int(np.prod(self.shape[1:])) * np.dtype(self.dtype).itemsize
        if size > self.room.free():
            evict_unused(self.folder.parent, size, self.room, {self.folder.name})
        is_tight = size > self.room.free() or self.plan.get("cache") == "compressed"
        compressed_size = size
        if is_tight and can_compress():
            for row in range(number * self.shard_cases, min(len(self.paths), (number + 1) * self.shard_cases)):
                image = self._prepare(row)
                if image is not None:
                    compressed_size = cases * len(compress(image[None]))
                    break
        storage = choose_storage(self.plan, size, compressed_size, self.room)
        if is_tight or storage != "map":
            print(describe_storage(storage, cases, size, compressed_size, self.room), flush=True)
        return storage

    def _prepare(self, row: int) -> np.ndarray | None:
        try:
            return prepare_image(self.paths[row], self.plan, self.base).astype(self.dtype, copy=False)
        except DataError as error:
            self.reasons[row] = str(error)
            return None

    def _fill_shard(self, number: int, storage: Storage, pool: ThreadPoolExecutor) -> None:
        rows = range(number * self.shard_cases, min(len(self.paths), (number + 1) * self.shard_cases))
        for row in rows:
            self.reasons.pop(row, None)
        shard = np.zeros((len(rows), *self.shape[1:]), self.dtype) if storage != "direct" else None

        def fill(row: int) -> None:
            image = self._prepare(row)
            if image is not None and shard is not None:
                shard[row - rows[0]] = image

        list(pool.map(fill, rows))
        for row in rows:
            if row in self.reasons:
                print(f"excluded: {self.reasons[row]}", flush=True)
        content: np.ndarray | bytes = b""
        if shard is not None:
            content = compress(shard) if storage == "compressed" else shard
            if not self.room.reserve(len(content) if isinstance(content, bytes) else content.nbytes):
                print(f"cache: no room for {len(rows)} cases; they are read again in each step", flush=True)
                storage, content = "direct", b""
        _write_reasons(self.folder / _UNREADABLE_FILE, self.reasons)
        name = _name_shard(self.folder, number)
        temporary = Path(f"{name}.tmp")
        with temporary.open("wb") as stream:
            if isinstance(content, bytes):
                stream.write(content)
            else:
                np.save(stream, content)
        os.replace(temporary, f"{name}{_SUFFIXES[storage]}")
        if storage != "direct":
            Path(f"{name}{_SUFFIXES['direct']}").unlink(missing_ok=True)


def _name_shard(folder: Path, number: int) -> str:
    return str(folder / f"images{number:06d}")


@lru_cache(maxsize=192)
def _open_stored(file: str) -> Any:
    return CompressedArray(file) if file.endswith(".b2nd") else np.load(file, mmap_mode="r")


def _open_shard(name: str) -> Any:
    """Return the array of a shard, None if it is not stored."""
    for suffix in (_SUFFIXES["map"], _SUFFIXES["compressed"]):
        try:
            return _open_stored(name + suffix)
        except FileNotFoundError:
            continue
    return None


def _read_reasons(file: Path) -> dict[int, str]:
    if not file.exists():
        return {}
    return {int(row): str(reason) for row, reason in json.loads(file.read_text(encoding="utf-8")).items()}


def _write_reasons(file: Path, reasons: Mapping[int, str]) -> None:
    if not reasons and not file.exists():
        return
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(reasons), encoding="utf-8")
    os.replace(temporary, file)
