"""Pictures and masks of small folders."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def picture(file: Path, value: int = 100, size: tuple[int, int] = (12, 16), **options: object) -> Path:
    """A noisy picture of a level, different for every name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(file.as_posix().encode())).integers(0, 60, size)
    Image.fromarray(np.clip(value + noise, 0, 255).astype(np.uint8)).save(file, **options)
    return file


def mask(file: Path, box: tuple[int, int, int, int] = (2, 3, 8, 9), value: int = 255, size: tuple[int, int] = (12, 16),
         **options: object) -> Path:  # fmt: skip
    """A mask with one rectangle (rows and columns, ends excluded)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    array = np.zeros(size, np.uint8)
    array[box[0] : box[2], box[1] : box[3]] = value
    Image.fromarray(array).save(file, **options)
    return file
