"""Random changes of a batch of images together with their masks, on the batch's own device."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.training.augment import Augment

KNOTS = 4
"""Points along each side of a patch whose displacements an elastic deformation draws; what lies between is interpolated."""
FARTHEST = 2.0
"""Displacements end at so many standard deviations, so that cuts stay small."""


class AugmentMasks(Augment):
    """`rule` is plan.json's "augment"; every part may be 0 or absent.

    Space, in `often` of the cases (0.5 if absent): rotate: degrees, in the image plane; tilt: degrees about the other
    two axes of a volume; zoom: share; shift: share; elastic: largest standard deviation of a smooth deformation, as a share
    of each side; flip: axes that may be mirrored ("h" rows, "w" columns, "d" slices).
    Intensity: contrast, brightness, gamma, noise as in `Augment`; blur: largest standard deviation in voxels, in a
    fifth of the batches.
    """

    def draw(self, patch: Sequence[int], rng: np.random.Generator) -> np.ndarray | None:
        """Return a random map from voxels of the patch to voxels of the image, both from the patch's middle; None: the patch stays.

        (dims, dims + 1) matrix and shift, then (dims, KNOTS ** dims) displacements if there is an elastic deformation.
        """
        if not self._moves() or rng.random() >= float(self.rule.get("often", 0.5)):
            return None
        dims, size = len(patch), np.array(patch, float)
        turn = np.eye(dims)
        for name, (first, second) in [("rotate", (0, 1)), ("tilt", (2, 1)), ("tilt", (2, 0))][: 1 if dims == 2 else 3]:
            angle = rng.uniform(-1, 1) * float(self.rule.get(name) or 0) * pi / 180
            rotation = np.eye(dims)
            rotation[first, first] = rotation[second, second] = np.cos(angle)
            rotation[first, second], rotation[second, first] = -np.sin(angle), np.sin(angle)
            turn = turn @ rotation
        zoom, shift, elastic = (float(self.rule.get(key) or 0) for key in ("zoom", "shift", "elastic"))
        parts = [turn / rng.uniform(1 - zoom, 1 + zoom), rng.uniform(-shift, shift, (dims, 1)) * size[:, None]]
        if elastic:
            drawn = rng.standard_normal((dims, KNOTS**dims)).clip(-FARTHEST, FARTHEST)
            parts.append(elastic * rng.random() * drawn * size[:, None])
        return np.concatenate(parts, axis=1)

    def pair(
        self,
        images: Sequence[torch.Tensor],
        masks: Sequence[torch.Tensor],
        moves: Sequence[torch.Tensor | None],
        patch: Sequence[int],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B, C, *patch) images and (B, *patch) ids or (B, K, *patch) 0/1 of cuts, each with the move of `cut_box`."""
        channels = masks[0].ndim == images[0].ndim
        pairs = list(zip(images, masks if channels else [mask[None] for mask in masks], strict=True))
        places = [torch.arange(int(n), device=images[0].device) - (int(n) - 1) / 2 for n in patch]
        points = (
            torch.stack(torch.meshgrid(*places, indexing="ij"), dim=-1) if any(m is not None for m in moves) else None
        )
        pairs = [
            pair if move is None or points is None else _resample(*pair, points, move)
            for pair, move in zip(pairs, moves, strict=True)
        ]
        image, layers = (torch.stack(part) for part in zip(*pairs, strict=True))
        image, layers = self._mirror(image, layers)
        image = self._intensity(self._blur(image))
        return image, layers if channels else layers[:, 0]

    def _moves(self) -> bool:
        return any(self.rule.get(key) for key in ("rotate", "tilt", "zoom", "shift", "elastic"))

    def _mirror(self, image: torch.Tensor, layers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for axis, name in enumerate("hwd"[: image.ndim - 2], start=2):
            if name in self.rule.get("flip", ()):
                chosen = (torch.rand(image.shape[0], device=image.device) < 0.5).view(-1, *(1,) * (image.ndim - 1))
                image = torch.where(chosen, image.flip(axis), image)
                layers = torch.where(chosen, layers.flip(axis), layers)
        return image, layers

    def _blur(self, image: torch.Tensor) -> torch.Tensor:
        largest = float(self.rule.get("blur") or 0)
        if not largest or torch.rand(()).item() >= 0.2:
            return image
        sigma = float(torch.empty(()).uniform_(0.3, max(largest, 0.31)))
        steps = torch.arange(-2, 3, device=image.device, dtype=image.dtype)
        kernel = torch.exp(-steps.square() / (2 * sigma**2))
        kernel = kernel / kernel.sum()
        for axis in range(2, image.ndim):
            moved = image.transpose(axis, -1)
            padded = functional.pad(moved.reshape(-1, 1, moved.shape[-1]), (2, 2), mode="replicate")
            padded, length = padded.view(*moved.shape[:-1], -1), moved.shape[-1]
            # not conv1d, for which cuDNN looks for its quickest way anew where a batch is blurred for the first time: 1.6 s
            parts = [kernel[place] * padded.narrow(-1, place, length) for place in range(5)]
            image = sum(parts[1:], parts[0]).transpose(axis, -1)
        return image


def cut_box(
    start: Sequence[int], patch: Sequence[int], move: np.ndarray | None
) -> tuple[list[int], list[int], torch.Tensor | None]:
    """Return start and size of the block of the image that a patch at `start` shows by its move, and the move in voxels of it."""
    if move is None:
        return [int(n) for n in start], [int(n) for n in patch], None
    dims, half = len(patch), (np.array(patch) - 1) / 2
    spread, centre = np.abs(move[:, :dims]) @ half, np.array(start) + half + move[:, dims]
    field = move[:, dims + 1 :] if move.shape[1] > dims + 1 else np.zeros((dims, 1))
    first = np.floor(centre - spread + field.min(axis=1)).astype(int)
    last = np.ceil(centre + spread + field.max(axis=1)).astype(int)
    move = np.concatenate([move[:, :dims], (centre - first)[:, None], move[:, dims + 1 :]], axis=1)
    return first.tolist(), (last - first + 1).tolist(), torch.from_numpy(move.astype(np.float32))


def collate_cuts(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return lists of the items' values: the cuts of a batch have sizes of their own."""
    return {key: [item[key] for item in items] for key in items[0]}


def _resample(
    image: torch.Tensor, layers: torch.Tensor, points: torch.Tensor, move: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return image (linear) and mask layers (nearest) at `points` (*patch, dims), voxels from the patch's middle."""
    dims, size = points.shape[-1], list(points.shape[:-1])
    source = points @ move[:, :dims].T + move[:, dims]
    if move.shape[1] > dims + 1:
        knots, mode = move[:, dims + 1 :].reshape(1, dims, *(KNOTS,) * dims), "bilinear" if dims == 2 else "trilinear"
        source = source + functional.interpolate(knots, size=size, mode=mode, align_corners=True)[0].movedim(0, -1)
    axes = reversed(list(enumerate(image.shape[1:])))  # torch's grid names the axes from the last to the first
    grid = torch.stack([(2 * source[..., axis] + 1) / have - 1 for axis, have in axes], dim=-1)[None]
    moved = functional.grid_sample(image[None], grid, padding_mode="border", align_corners=False)[0]
    masks = functional.grid_sample(layers[None].to(image.dtype), grid, "nearest", "zeros", align_corners=False)[0]
    return moved, masks.to(layers.dtype)
