"""Random augmentation of images together with their boxes: flips, rotation, zoom, shift; then intensities."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any

import torch
from torch.nn import functional

from m3b.training.augment import Augment, vector_like

INTENSITY_KEYS = ("contrast", "brightness", "gamma", "noise", "channel_dropout")


class AugmentBoxes:
    """Augmentation by `rule`, the "augment" of plan.json, of batches {"pixel_values" (B, C, *size), "boxes" (B, M, 2 d + 2)}."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.rule = dict(rule)
        self.intensity = Augment({key: rule.get(key, 0) for key in INTENSITY_KEYS})

    def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        images, boxes = batch["pixel_values"], batch["boxes"]
        matrix, shift = self._matrices(images)
        if matrix is not None and shift is not None:
            images = resample_images(images, matrix, shift)
            boxes = transform_boxes(boxes, matrix, shift, images.shape[2:])
        return {**batch, "pixel_values": self.intensity(images), "boxes": boxes}

    def _matrices(self, images: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return (B, d, d) and (B, d): new = matrix @ (old - centre) + centre + shift, in pixels, axes in array order."""
        d, n = images.ndim - 2, len(images)
        flips = [name in self.rule.get("flip", ()) for name in "hwd"[:d]]
        rotate, zoom, shift = (float(self.rule.get(key) or 0) for key in ("rotate", "zoom", "shift"))
        if not any((*flips, rotate, zoom, shift)):
            return None, None
        random = torch.rand(n, 4 + 2 * d, device=images.device) * 2 - 1
        angle = random[:, 0] * rotate * pi / 180
        scale = 1 + random[:, 1:2] * zoom * torch.where(random[:, 2:3] > 0.5, 0.0, 1.0)
        matrix = torch.eye(d, device=images.device).repeat(n, 1, 1)
        matrix[:, 0, 0] = matrix[:, 1, 1] = torch.cos(angle)
        matrix[:, 0, 1], matrix[:, 1, 0] = -torch.sin(angle), torch.sin(angle)
        sign = torch.where(random[:, 4 : 4 + d] > 0, 1.0, -1.0)
        sign = torch.where(vector_like(sign, flips) > 0, sign, torch.ones_like(sign))
        size = vector_like(random, images.shape[2:])
        return matrix * scale[..., None] * sign[:, None, :], random[:, 4 + d :] * shift * size


def resample_images(images: torch.Tensor, matrix: torch.Tensor, move: torch.Tensor) -> torch.Tensor:
    """Return the transformed images, with borders continued."""
    size = vector_like(matrix, images.shape[2:])
    inverse = torch.linalg.inv_ex(matrix).inverse  # `inv` synchronises with the device to check for errors
    # in torch's units, -1 to 1 an axis, axes from the last to the first
    theta = inverse * (size[None, None, :] / size[None, :, None])
    offset = -(inverse @ move[..., None])[..., 0] * 2 / size
    theta = torch.cat([theta.flip(1, 2), offset.flip(1)[..., None]], dim=2)
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def transform_boxes(boxes: torch.Tensor, matrix: torch.Tensor, move: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """Return the transformed boxes: around the rotated ellipse inside each box, since lesions are rounder than boxes.

    Boxes that leave the image are removed, those whose centre leaves it are marked as cut, and all are clipped to the image.
    """
    d = len(size)
    middle = vector_like(matrix, size) / 2
    centre, half_sides = (boxes[..., :d] + boxes[..., d : 2 * d]) / 2, (boxes[..., d : 2 * d] - boxes[..., :d]) / 2
    centre = (centre - middle) @ matrix.transpose(1, 2) + middle + move[:, None]
    half_sides = torch.sqrt((half_sides**2) @ (matrix**2).transpose(1, 2))
    upper_limit = 2 * middle
    result = boxes.clone()
    result[..., :d] = torch.minimum((centre - half_sides).clamp_min(0), upper_limit)
    result[..., d : 2 * d] = torch.minimum((centre + half_sides).clamp_min(0), upper_limit)
    is_outside = ((result[..., d : 2 * d] - result[..., :d]) < 0.5).any(-1)
    is_cut = ((centre < 0) | (centre >= upper_limit)).any(-1)
    result[..., 2 * d] = torch.where(is_outside, torch.full_like(result[..., 2 * d], -1.0), result[..., 2 * d])
    result[..., 2 * d + 1] = torch.where(is_cut, torch.zeros_like(result[..., 2 * d + 1]), result[..., 2 * d + 1])
    return result
