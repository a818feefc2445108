"""Random changes of images together with their boxes: flips, rotation, zoom, shift; then of the intensities alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any

import torch
from torch.nn import functional

from m3b.training.augment import Augment, row_like

INTENSITY = ("contrast", "brightness", "gamma", "noise", "channel_dropout")


class AugmentBoxes:
    """`rule` is plan.json's "augment". Batches are {"pixel_values" (B, C, *size), "boxes" (B, M, 2 d + 2)}."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.rule = dict(rule)
        self.intensity = Augment({key: rule.get(key, 0) for key in INTENSITY})

    def __call__(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        images, boxes = batch["pixel_values"], batch["boxes"]
        turn, move = self._matrices(images)
        if turn is not None and move is not None:
            images = sample(images, turn, move)
            boxes = carry(boxes, turn, move, images.shape[2:])
        return {**batch, "pixel_values": self.intensity(images), "boxes": boxes}

    def _matrices(self, images: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """(B, d, d) and (B, d): new = matrix @ (old - middle) + middle + move, in pixels, axes in array order."""
        d, n = images.ndim - 2, len(images)
        flips = [name in self.rule.get("flip", ()) for name in "hwd"[:d]]
        rotate, zoom, shift = (float(self.rule.get(key) or 0) for key in ("rotate", "zoom", "shift"))
        if not any((*flips, rotate, zoom, shift)):
            return None, None
        draw = torch.rand(n, 4 + 2 * d, device=images.device) * 2 - 1
        angle = draw[:, 0] * rotate * pi / 180
        scale = 1 + draw[:, 1:2] * zoom * torch.where(draw[:, 2:3] > 0.5, 0.0, 1.0)
        matrix = torch.eye(d, device=images.device).repeat(n, 1, 1)
        matrix[:, 0, 0] = matrix[:, 1, 1] = torch.cos(angle)
        matrix[:, 0, 1], matrix[:, 1, 0] = -torch.sin(angle), torch.sin(angle)
        sign = torch.where(draw[:, 4 : 4 + d] > 0, 1.0, -1.0)
        sign = torch.where(row_like(sign, flips) > 0, sign, torch.ones_like(sign))
        size = row_like(draw, images.shape[2:])
        return matrix * scale[..., None] * sign[:, None, :], draw[:, 4 + d :] * shift * size


def sample(images: torch.Tensor, matrix: torch.Tensor, move: torch.Tensor) -> torch.Tensor:
    """The images after the change, borders continued."""
    size = row_like(matrix, images.shape[2:])
    back = torch.linalg.inv_ex(matrix).inverse  # `inv` waits for the device to tell whether it worked
    # in torch's units, -1 to 1 an axis, axes from the last to the first
    theta = back * (size[None, None, :] / size[None, :, None])
    offset = -(back @ move[..., None])[..., 0] * 2 / size
    theta = torch.cat([theta.flip(1, 2), offset.flip(1)[..., None]], dim=2)
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def carry(boxes: torch.Tensor, matrix: torch.Tensor, move: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """The boxes after the change: around the turned ellipse inside each box, since lesions are rounder than boxes.

    Boxes that leave the image vanish, those whose centre does are marked as cut, and all are clipped to it.
    """
    d = len(size)
    middle = row_like(matrix, size) / 2
    centre, half = (boxes[..., :d] + boxes[..., d : 2 * d]) / 2, (boxes[..., d : 2 * d] - boxes[..., :d]) / 2
    centre = (centre - middle) @ matrix.transpose(1, 2) + middle + move[:, None]
    half = torch.sqrt((half**2) @ (matrix**2).transpose(1, 2))
    edge = 2 * middle
    result = boxes.clone()
    result[..., :d] = torch.minimum((centre - half).clamp_min(0), edge)
    result[..., d : 2 * d] = torch.minimum((centre + half).clamp_min(0), edge)
    gone = ((result[..., d : 2 * d] - result[..., :d]) < 0.5).any(-1)
    cut = ((centre < 0) | (centre >= edge)).any(-1)
    result[..., 2 * d] = torch.where(gone, torch.full_like(result[..., 2 * d], -1.0), result[..., 2 * d])
    result[..., 2 * d + 1] = torch.where(cut, torch.zeros_like(result[..., 2 * d + 1]), result[..., 2 * d + 1])
    return result
