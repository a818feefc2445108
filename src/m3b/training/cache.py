"""Every case decoded and preprocessed once, into one memory-mapped array that survives a killed build."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, ImagePath
from m3b.training.preprocess import KEYS, prepare

_BIG = 2 * 1024**3  # bytes of float32 above which half precision is stored
_FLUSH = 256  # cases between two notes of what is done


class CacheError(RuntimeError):
    """Too many cases that cannot be read."""


def cache_key(paths: Sequence[ImagePath], plan: Mapping[str, Any], base: str = ".") -> str:
    """Changes with the preprocessing part of the plan, the paths, and the files' sizes and times."""
    digest = hashlib.sha256(json.dumps({key: plan.get(key) for key in KEYS}, sort_keys=True).encode())
    for path in paths:
        digest.update(json.dumps(path).encode())
        for one in path.values() if isinstance(path, Mapping) else [path if isinstance(path, str) else path[0]]:
            file = Path(base) / one.split("#")[0]
            if file.exists():
                state = file.stat()
                digest.update(f"{state.st_size}:{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def build_cache(
    paths: Sequence[ImagePath],
    plan: Mapping[str, Any],
    folder: str | Path = "Logout/cache",
    base: str = ".",
    max_unreadable: float = 0.05,
) -> tuple[np.ndarray, np.ndarray]:
    """(N, C, *size) memory map of every case, and (N,) bool: which could be read (the others are zeros).

    A finished cache is opened as it is; an interrupted one is continued. Raises CacheError when more than
    `max_unreadable` of the cases cannot be read; fewer are printed and left out by the caller.
    """
    place = Path(folder) / cache_key(paths, plan, base)
    final, flags_file = place / "data.npy", place / "state.npy"
    if not final.exists():
        place.mkdir(parents=True, exist_ok=True)
        _build(paths, plan, place, base, max_unreadable)
    return np.load(final, mmap_mode="r"), np.load(flags_file) == 1


def _build(paths: Sequence[ImagePath], plan: Mapping[str, Any], place: Path, base: str, max_unreadable: float) -> None:
    shape = (len(paths), int(plan["channels"]), *(int(v) for v in plan["size"]))
    part, flags_file = place / "data.part.npy", place / "state.npy"
    dtype = np.float32 if np.prod(shape) * 4 <= _BIG else np.float16
    if part.exists() and flags_file.exists():
        data, state = np.lib.format.open_memmap(part, mode="r+"), np.load(flags_file)
    else:
        data, state = (
            np.lib.format.open_memmap(part, mode="w+", dtype=dtype, shape=shape),
            np.zeros(len(paths), np.uint8),
        )
    reasons: dict[int, str] = {}

    def fill(index: int) -> None:
        try:
            data[index] = prepare(paths[index], plan, base)
            state[index] = 1
        except DataError as error:
            state[index], reasons[index] = 2, str(error)

    todo = [int(index) for index in np.flatnonzero(state != 1)]
    with ThreadPoolExecutor(max(1, int(plan.get("workers") or os.cpu_count() or 1))) as pool:
        for start in range(0, len(todo), _FLUSH):
            list(pool.map(fill, todo[start : start + _FLUSH]))
            data.flush()
            _save(flags_file, state)
    failed = [reasons[index] for index in sorted(reasons)]
    if len(failed) > max_unreadable * len(paths):
        raise CacheError(f"{len(failed)} of {len(paths)} cases cannot be read; correct the index. First: {failed[0]}")
    for reason in failed:
        print(f"left out: {reason}", flush=True)
    os.replace(part, place / "data.npy")


def _save(file: Path, array: np.ndarray) -> None:
    temporary = file.with_suffix(".tmp.npy")
    np.save(temporary, array)
    os.replace(temporary, file)
