"""Drawn images with a bright target, and a segmenter that needs no weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from m3b.interactive.segmenter import BoxPrompt, ByteImage, Mask, MaskProposal, Point


def disk(shape: tuple[int, int], centre: tuple[float, float], radius: float) -> Mask:
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    return (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2


def make_disk_image(
    shape: tuple[int, int] = (60, 90), centre: tuple[float, float] = (30, 50), radius: float = 14
) -> tuple[ByteImage, Mask]:
    """A noisy grey picture with a brighter disk, and the disk."""
    truth = disk(shape, centre, radius)
    noise = np.random.default_rng(0).normal(0, 12, shape)
    grey = np.clip(90 + 90 * truth + noise, 0, 255).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1), truth


def write_masked_case(work: Path, truth: np.ndarray, ignored: np.ndarray) -> None:
    """Write an index with one test case, whose mask and ignored pixels these are: PNG for (H, W), .npy for (H, W, D)."""
    (work / "Datapath").mkdir(parents=True)
    grey = (60 + 120 * truth).astype(np.uint8)
    for name, array in {"image": grey, "mask": truth, "ignore": ignored}.items():
        if truth.ndim == 2:
            Image.fromarray(array).save(work / f"{name}.png")
        else:
            np.save(work / f"{name}.npy", array)
    suffix = "png" if truth.ndim == 2 else "npy"
    record = {f"{name}_path": f"{name}.{suffix}" for name in ("image", "mask", "ignore")}
    (work / "Datapath/train.json").write_text(json.dumps([{**record, "patient": "q"}]))
    (work / "Datapath/test.json").write_text(json.dumps([{**record, "patient": "p"}]))
    (work / "Datapath/label_dict.json").write_text(json.dumps({"disk": 1}))


class FixedMask:
    """A segmenter that always proposes the same mask."""

    name = "fixed"

    def __init__(self, mask: Mask) -> None:
        self.mask = mask

    def set_image(self, image: ByteImage) -> None:
        """Ignore the image."""

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        return MaskProposal(self.mask, 0.9)


class Threshold:
    """Segments what is bright inside the box, or in a window around positive clicks; negative clicks clear theirs."""

    name = "threshold"
    WINDOW = 24

    def __init__(self) -> None:
        self.image: ByteImage | None = None
        self.asked: list[tuple[tuple[BoxPrompt, ...], tuple[Point, ...], bool]] = []

    def set_image(self, image: ByteImage) -> None:
        self.image = image

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        assert self.image is not None
        self.asked.append((tuple(boxes), tuple(points), previous is not None))
        bright = self.image[..., 0] > 135
        mask = np.zeros(bright.shape, dtype=bool) if previous is None else previous.mask.copy()
        for box in boxes if previous is None else ():
            x0, y0, x1, y1 = (round(side) for side in box.corners)
            mask[y0:y1, x0:x1] |= bright[y0:y1, x0:x1]
        for point in points:
            row, column, half = int(point.y), int(point.x), self.WINDOW // 2
            window = np.s_[max(row - half, 0) : row + half, max(column - half, 0) : column + half]
            mask[window] = bright[window] if point.positive else False
        return MaskProposal(mask, min(0.99, 0.3 + float(mask.mean()) * 5))
