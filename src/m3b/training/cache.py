"""All cases decoded and preprocessed once, in one memory-mapped array; an interrupted build continues."""

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
from m3b.training.preprocess import PREPROCESSING_KEYS, prepare_image

_MAX_FLOAT32_BYTES = 2 * 1024**3  # a larger cache is stored in half precision
_CASES_PER_FLUSH = 256
MAX_UNREADABLE_SHARE = 0.05
"""Share of the cases that may be unreadable; they are excluded."""


class CacheError(RuntimeError):
    """Too many cases cannot be read."""


def cache_key(paths: Sequence[ImagePath], plan: Mapping[str, Any], base: str = ".") -> str:
    """Return the key of a cache: preprocessing settings of the plan, paths, sizes and times of the files."""
    digest = hashlib.sha256(json.dumps({key: plan.get(key) for key in PREPROCESSING_KEYS}, sort_keys=True).encode())
    for path in paths:
        digest.update(json.dumps(path).encode())
        for name in path.values() if isinstance(path, Mapping) else [path if isinstance(path, str) else path[0]]:
            file = Path(base) / name.split("#")[0]
            if file.exists():
                state = file.stat()
                digest.update(f"{state.st_size}:{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def build_cache(
    paths: Sequence[ImagePath],
    plan: Mapping[str, Any],
    folder: str | Path = "Logout/cache",
    base: str = ".",
    max_unreadable: float = MAX_UNREADABLE_SHARE,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, C, *size) memory map of all cases, and (N,) bool: which could be read; the others are zeros.

    A finished cache is reused, an interrupted one continued. Unreadable cases are printed; the caller excludes them.

    Raises:
        CacheError: more than `max_unreadable` of the cases cannot be read.
    """
    cache_folder = Path(folder) / cache_key(paths, plan, base)
    data_file, flags_file = cache_folder / "data.npy", cache_folder / "state.npy"
    if not data_file.exists():
        cache_folder.mkdir(parents=True, exist_ok=True)
        _build(paths, plan, cache_folder, base, max_unreadable)
    return np.load(data_file, mmap_mode="r"), np.load(flags_file) == 1


def _build(
    paths: Sequence[ImagePath], plan: Mapping[str, Any], cache_folder: Path, base: str, max_unreadable: float
) -> None:
    shape = (len(paths), int(plan["channels"]), *(int(side) for side in plan["size"]))
    part_file, flags_file = cache_folder / "data.part.npy", cache_folder / "state.npy"
    dtype = np.float32 if np.prod(shape) * 4 <= _MAX_FLOAT32_BYTES else np.float16
    if part_file.exists() and flags_file.exists():
        data, state = np.lib.format.open_memmap(part_file, mode="r+"), np.load(flags_file)
    else:
        data, state = (
            np.lib.format.open_memmap(part_file, mode="w+", dtype=dtype, shape=shape),
            np.zeros(len(paths), np.uint8),
        )
    reasons: dict[int, str] = {}

    def fill(index: int) -> None:
        try:
            data[index] = prepare_image(paths[index], plan, base)
            state[index] = 1
        except DataError as error:
            state[index], reasons[index] = 2, str(error)

    pending = [int(index) for index in np.flatnonzero(state != 1)]
    with ThreadPoolExecutor(max(1, int(plan.get("workers") or os.cpu_count() or 1))) as pool:
        for start in range(0, len(pending), _CASES_PER_FLUSH):
            list(pool.map(fill, pending[start : start + _CASES_PER_FLUSH]))
            data.flush()
            _save(flags_file, state)
    failed = [reasons[index] for index in sorted(reasons)]
    if len(failed) > max_unreadable * len(paths):
        raise CacheError(f"{len(failed)} of {len(paths)} cases cannot be read; correct the index. First: {failed[0]}")
    for reason in failed:
        print(f"excluded: {reason}", flush=True)
    os.replace(part_file, cache_folder / "data.npy")


def _save(file: Path, array: np.ndarray) -> None:
    temporary = file.with_suffix(".tmp.npy")
    np.save(temporary, array)
    os.replace(temporary, file)
