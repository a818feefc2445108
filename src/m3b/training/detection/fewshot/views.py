"""Pictures in the format of a backbone, and their augmentation in training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.dataset.formats import DataError, Image, normalised_range
from m3b.training.ignored_voxels import IGNORE


def prepare_picture(image: Image, settings: Mapping[str, Any], name: str = "image") -> torch.Tensor:
    """Return (3, S, S) of the settings `size`, `mean` and `std`.

    Black to white is 0..1; values without such a scale lie between their 0.5 and 99.5 percentiles.

    Raises:
        DataError: a volume.
    """
    if image.dims != 2:
        raise DataError(
            f"{name}: a few-shot detector needs pictures, but this is a volume of shape {image.array.shape[1:]}"
        )
    values = image.array.astype(np.float32)
    low, high = normalised_range(image) or (float(v) for v in np.percentile(values, (0.5, 99.5)))
    values = np.clip((values - low) / max(high - low, 1e-6), 0.0, 1.0)
    channels = values[:3] if len(values) >= 3 else np.repeat(values[:1], 3, axis=0)
    side = int(settings["size"])
    resized = functional.interpolate(
        torch.from_numpy(np.ascontiguousarray(channels))[None], size=(side, side), mode="bilinear", antialias=True
    )[0]
    if settings.get("norm", True):
        resized = (resized - _per_channel(settings["mean"])) / _per_channel(settings["std"])
    return resized


def _per_channel(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).view(3, 1, 1)


def augment_pictures(
    images: torch.Tensor, labels: torch.Tensor, probability: float = 0.8
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate each picture by up to 12 degrees, zoom and shift it by up to a tenth, change its contrast; masks alike."""
    count = len(images)
    angle = (torch.rand(count) * 2 - 1) * math.radians(12)
    zoom, shift = 1 + (torch.rand(count) * 2 - 1) * 0.1, (torch.rand(count, 2) * 2 - 1) * 0.15
    is_changed = (torch.rand(count) < probability).float()
    angle, zoom, shift = angle * is_changed, 1 + (zoom - 1) * is_changed, shift * is_changed[:, None]
    warped, warped_labels = warp_images(images, angle, zoom, shift), labels
    if labels.ndim == 4:
        warped_labels = warp_masks(labels, angle, zoom, shift, zero=True)
    contrast = 1 + (torch.rand(count, 1, 1, 1) * 2 - 1) * 0.2
    return warped * contrast + (torch.rand(count, 1, 1, 1) * 2 - 1) * 0.1, warped_labels


def warp_images(
    images: torch.Tensor, angle: torch.Tensor, zoom: torch.Tensor, shift: torch.Tensor, zero: bool = False
) -> torch.Tensor:
    """Rotate, zoom and shift (B, C, S, S), with shifts in halves of the side; borders are mirrored, or 0."""
    cos, sin = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    rows = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = functional.affine_grid(rows, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="zeros" if zero else "reflection", align_corners=False)


def warp_masks(
    labels: torch.Tensor, angle: torch.Tensor, zoom: torch.Tensor, shift: torch.Tensor, zero: bool = False
) -> torch.Tensor:
    """Warp float masks of 0, 1 and IGNORE as `warp_images`."""
    marked, ignored = (warp_images((labels == n).float(), angle, zoom, shift, zero) > 0.5 for n in (1, IGNORE))
    return marked.float().masked_fill(ignored, IGNORE)


def augment_eleven_times(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the published augmentation, with mirrored borders.

    Eleven versions: the picture, rotated by 22.5 and 11.25 degrees both ways, shifted by a tenth to four corners, flipped on both
    axes.
    """
    angles = [0.0, 22.5, -22.5, 11.25, -11.25, *([0.0] * 6)]
    shifts = [(0.0, 0.0)] * 5 + [(a, b) for a in (0.1, -0.1) for b in (0.1, -0.1)] + [(0.0, 0.0)] * 2
    pictures: list[torch.Tensor] = []
    truths: list[torch.Tensor] = []
    for version, (angle, shift) in enumerate(zip(angles, shifts, strict=True)):
        flip = {9: [3], 10: [2]}.get(version)
        for tensors, warp, target in ((images, warp_images, pictures), (labels, warp_masks, truths)):
            if tensors.ndim != 4:
                target.append(tensors)
                continue
            count = len(tensors)
            warped = warp(
                tensors, torch.full((count,), math.radians(angle)), torch.ones(count), torch.tensor([shift] * count)
            )
            target.append(warped.flip(flip) if flip else warped)
    return torch.cat(pictures), torch.cat(truths)
