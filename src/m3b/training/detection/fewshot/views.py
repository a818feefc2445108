"""Pictures as a backbone is used to them, and the changes that training makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.dataset.formats import DataError, Image, normalised_range


def prepare(image: Image, backbone: Mapping[str, Any], name: str = "image") -> torch.Tensor:
    """(3, S, S): black to white to 0..1, values without such a scale between their 0.5 and 99.5 percent; resized, then mean and
    deviation taken.

    Raises:
        DataError: a volume.
    """
    if image.dims != 2:
        raise DataError(
            f"{name}: a few-shot detector takes pictures, and this is a volume of shape {image.array.shape[1:]}"
        )
    values = image.array.astype(np.float32)
    low, high = normalised_range(image) or (float(v) for v in np.percentile(values, (0.5, 99.5)))
    values = np.clip((values - low) / max(high - low, 1e-6), 0.0, 1.0)
    shown = values[:3] if len(values) >= 3 else np.repeat(values[:1], 3, axis=0)
    side = int(backbone["size"])
    small = functional.interpolate(
        torch.from_numpy(np.ascontiguousarray(shown))[None], size=(side, side), mode="bilinear", antialias=True
    )[0]
    if backbone.get("norm", True):
        small = (small - _column(backbone["mean"])) / _column(backbone["std"])
    return small


def _column(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).view(3, 1, 1)


def changed(images: torch.Tensor, labels: torch.Tensor, often: float = 0.8) -> tuple[torch.Tensor, torch.Tensor]:
    """Each picture turned by up to 12 degrees, zoomed and shifted by up to a tenth, its contrast changed; masks alike."""
    n = len(images)
    angle = (torch.rand(n) * 2 - 1) * math.radians(12)
    zoom, shift = 1 + (torch.rand(n) * 2 - 1) * 0.1, (torch.rand(n, 2) * 2 - 1) * 0.15
    apply = (torch.rand(n) < often).float()
    angle, zoom, shift = angle * apply, 1 + (zoom - 1) * apply, shift * apply[:, None]
    moved, truth = warped(images, angle, zoom, shift), labels
    if labels.ndim == 4:
        truth = (warped(labels, angle, zoom, shift, zero=True) > 0.5).float()
    contrast = 1 + (torch.rand(n, 1, 1, 1) * 2 - 1) * 0.2
    return moved * contrast + (torch.rand(n, 1, 1, 1) * 2 - 1) * 0.1, truth


def warped(
    images: torch.Tensor, angle: torch.Tensor, zoom: torch.Tensor, shift: torch.Tensor, zero: bool = False
) -> torch.Tensor:
    """Each of (B, C, S, S) turned, zoomed and shifted (in halves of the side); borders are mirrored, or 0."""
    cos, sin = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    rows = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = functional.affine_grid(rows, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="zeros" if zero else "reflection", align_corners=False)


def eleven(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The published augmentation: the picture, turned by 22.5 and 11.25 degrees both ways, shifted by a tenth to four
    corners, flipped along both axes: eleven of each with the picture mirrored at its border."""
    turns = [0.0, 22.5, -22.5, 11.25, -11.25, *([0.0] * 6)]
    shifts = [(0.0, 0.0)] * 5 + [(a, b) for a in (0.1, -0.1) for b in (0.1, -0.1)] + [(0.0, 0.0)] * 2
    shown, truths = [], []
    for place, (turn, shift) in enumerate(zip(turns, shifts, strict=True)):
        flip = {9: [3], 10: [2]}.get(place)
        for table, target in ((images, shown), (labels, truths)):
            if table.ndim != 4:
                target.append(table)
                continue
            n = len(table)
            moved = warped(table, torch.full((n,), math.radians(turn)), torch.ones(n), torch.tensor([shift] * n))
            target.append(moved.flip(flip) if flip else moved)
    stacked = torch.cat(truths)
    return torch.cat(shown), (stacked > 0.5).float() if labels.ndim == 4 else stacked
