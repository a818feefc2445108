"""Layouts whose masks are run lengths in a table, as challenges on Kaggle deliver them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from layout_kit import Layout, Names, Want, number, table
from PIL import Image


def encode_runs(mask: np.ndarray, *, rows: bool = False, first: int = 1, relative: bool = False) -> str:
    """The runs of a mask, found pixel by pixel."""
    flat = [bool(value) for value in (mask if rows else mask.T).reshape(-1)]
    runs: list[tuple[int, int]] = []
    for at, marked in enumerate(flat):
        if marked and at and flat[at - 1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        elif marked:
            runs.append((at, 1))
    numbers, before = [], 0
    for start, length in runs:
        numbers += [start - before if relative else start + first, length]
        before = start + length
    return " ".join(map(str, numbers))


def disc(shape: tuple[int, int], seed: int) -> np.ndarray:
    """An ellipse somewhere, twice as wide as high."""
    draw = np.random.default_rng(seed)
    y, x = draw.integers(6, shape[0] - 6), draw.integers(8, shape[1] - 8)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    return ((rows - y) / 3.2) ** 2 + ((columns - x) / 6.3) ** 2 <= 1


def save_noisy_picture(file: Path, mask: np.ndarray, seed: int) -> None:
    """A noisy picture that is brighter where the mask is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(90, 12, mask.shape)
    Image.fromarray(np.clip(noise + 60 * mask, 0, 255).astype(np.uint8)).save(file)


def relative_runs(root: Path, names: Names, rng: random.Random) -> Want:
    """Square images, a row an image, -1 where nothing is; each start counts from the run before."""
    rows = []
    for at in range(24):
        stem, mask = f"1.2.276.{1000 + 7 * at}.{at}", disc((40, 40), at)
        save_noisy_picture(root / names.top / names.images / f"{stem}{names.suffix}", mask, at)
        rows.append((stem, "-1" if at % 4 == 3 else encode_runs(mask, relative=True)))
    table(root / names.top / "train-rle.csv", Names(separator=names.separator), ("ImageId", "EncodedPixels"), rows)
    return Want("Segment pneumothorax on chest X-rays", "segmentation", 24, frozenset(("pneumothorax",)))


def instance_runs(root: Path, names: Names, rng: random.Random) -> Want:
    """A row a nucleus, down the columns."""
    rows = []
    for at in range(24):
        stem = f"slide{names.gap}{number(names, at)}"
        masks = [disc((32, 48), 100 * at + instance) for instance in range(1 + at % 3)]
        save_noisy_picture(root / names.top / names.images / f"{stem}{names.suffix}", np.any(masks, axis=0), at)
        rows += [(stem, encode_runs(mask)) for mask in masks]
    table(root / names.top / "labels.csv", Names(separator=names.separator), ("ImageId", "EncodedPixels"), rows)
    return Want("Segment nuclei in microscopy images", "segmentation", 24, frozenset(("nuclei",)))


def organ_runs(root: Path, names: Names, rng: random.Random) -> Want:
    """A row an image and class, along the rows; empty where the class is not there."""
    rows = []
    for at in range(24):
        stem = f"case{names.gap}{number(names, at)}"
        masks = {name: disc((32, 48), 100 * at + organ) for organ, name in enumerate(("stomach", "small_bowel"))}
        save_noisy_picture(
            root / names.top / names.images / f"{stem}{names.suffix}", np.any(list(masks.values()), axis=0), at
        )
        rows += [(stem, name, encode_runs(mask, rows=True) if at % 5 else "") for name, mask in masks.items()]
    table(root / names.top / "train.csv", Names(separator=names.separator), ("id", "class", "segmentation"), rows)
    return Want("Segment stomach and small bowel on MRI slices", "segmentation", 24,
                frozenset(("stomach", "small_bowel")))  # fmt: skip


RUNS = (
    Layout("relative_runs", relative_runs, ("images", "suffix", "separator", "top")),
    Layout("instance_runs", instance_runs, ("images", "width", "suffix", "gap", "separator", "top")),
    Layout("organ_runs", organ_runs, ("images", "width", "suffix", "gap", "separator", "top")),
)
