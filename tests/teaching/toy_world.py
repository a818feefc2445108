"""Drawn images with one bright disk, and a segmenter whose mask is as good as its prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from m3b.interactive.segmenter import BoxPrompt, ByteImage, Mask, MaskProposal, Point
from m3b.interactive.targets import Target


def targets(count: int, seed: int, side: int = 64) -> list[Target]:
    """Images of (side, side) with a disk somewhere, each of another patient."""
    rng, disk_targets = np.random.default_rng(seed), []
    rows, columns = np.ogrid[:side, :side]
    for number in range(count):
        radius = rng.uniform(0.12, 0.24) * side
        x, y = rng.uniform(radius + 1, side - radius - 1, 2)
        truth = (rows + 0.5 - y) ** 2 + (columns + 0.5 - x) ** 2 <= radius**2
        grey = np.clip(60 + 130 * truth + rng.normal(0, 10, (side, side)), 0, 255).astype(np.uint8)
        disk_targets.append(
            Target(f"{seed}-{number}.png", f"p{seed}-{number}", "disk", np.repeat(grey[..., None], 3, -1), truth)
        )
    return disk_targets


class Brush:
    """An ellipse in the box; clicks paint what is bright, or wipe what is dark, in a disk around them.

    Its score is the IoU of its mask with all that is bright, so a worse mask is known to be one.
    """

    name = "brush"
    REACH = 0.14
    """Radius of a click's disk as a share of the image's longer side."""

    def __init__(self) -> None:
        self._bright: Mask | None = None

    def set_image(self, image: ByteImage) -> None:
        self._bright = image[..., 0] > 125

    def predict(
        self, boxes: Sequence[BoxPrompt], points: Sequence[Point], previous: MaskProposal | None = None
    ) -> MaskProposal:
        bright = self._bright
        assert bright is not None
        rows, columns = np.ogrid[: bright.shape[0], : bright.shape[1]]
        mask = np.zeros(bright.shape, dtype=bool)
        for box in boxes:
            x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
            wide, tall = max(box.x1 - box.x0, 1) / 2, max(box.y1 - box.y0, 1) / 2
            mask = ((columns + 0.5 - x) / wide) ** 2 + ((rows + 0.5 - y) / tall) ** 2 <= 1
        reach = self.REACH * max(bright.shape)
        for point in points:
            near = (columns + 0.5 - point.x) ** 2 + (rows + 0.5 - point.y) ** 2 <= reach**2
            mask = mask | (near & bright) if point.positive else mask & ~(near & ~bright)
        return MaskProposal(mask, float((mask & bright).sum() / max((mask | bright).sum(), 1)))
