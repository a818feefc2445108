"""Small folders to read with a manifest."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.execute import Executed, execute
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.resolve import Resolved, resolve


def natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"([0-9]+)", name)]


def list_folder(root: Path) -> Inventory:
    """Every file of a folder."""
    paths = sorted((file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()), key=natural)
    sizes = [(root / path).stat().st_size for path in paths]
    return Inventory(root, pl.DataFrame({"path": paths, "bytes": sizes}, schema={"path": pl.String, "bytes": pl.Int64}))


def list_paths(*paths: str) -> Inventory:
    """Names alone, of a folder that is not there."""
    ordered = sorted(paths, key=natural)
    files = pl.DataFrame({"path": ordered}, schema={"path": pl.String}).with_columns(bytes=pl.lit(1000))
    return Inventory(Path("/nowhere"), files)


def resolve_folder(root: Path | Inventory, **manifest: object) -> Resolved:
    inventory = root if isinstance(root, Inventory) else list_folder(root)
    return resolve(Manifest.model_validate(manifest), inventory)


def execute_folder(root: Path, work: Path, **manifest: object) -> Executed:
    return execute(Manifest.model_validate(manifest), list_folder(root), name="set", work=work)


def codes(resolved: Resolved) -> set[str]:
    return {problem.code for problem in resolved.problems}


def case_reasons(resolved: Resolved) -> dict[str, int]:
    """Code -> cases that are left out."""
    counts: dict[str, int] = {}
    for exclusion in resolved.excluded_cases:
        counts[exclusion.code] = counts.get(exclusion.code, 0) + exclusion.count
    return counts


def file_reasons(resolved: Resolved) -> dict[str, int]:
    """Code -> files that are left out."""
    counts: dict[str, int] = {}
    for exclusion in resolved.exclusions:
        counts[exclusion.code] = counts.get(exclusion.code, 0) + exclusion.count
    return counts


def draw_picture(file: Path, value: int = 100, size: tuple[int, int] = (12, 16), **options: object) -> Path:
    """A noisy picture of a level, different for every name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(file.as_posix().encode())).integers(0, 60, size)
    Image.fromarray(np.clip(value + noise, 0, 255).astype(np.uint8)).save(file, **options)
    return file


def draw_mask(file: Path, box: tuple[int, int, int, int] = (2, 3, 8, 9), value: int = 255, size: tuple[int, int] = (12, 16),
              **options: object) -> Path:  # fmt: skip
    """A mask with one rectangle (rows and columns, ends excluded)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    array = np.zeros(size, np.uint8)
    array[box[0] : box[2], box[1] : box[3]] = value
    Image.fromarray(array).save(file, **options)
    return file
