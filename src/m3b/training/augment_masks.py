"""Random augmentation of a batch of images together with their masks, on the device of the batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import pi
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.training.augment import Augment

ELASTIC_KNOTS = 4
"""Control points along each side of a patch at which an elastic deformation is drawn; between them it is interpolated."""
MAX_ELASTIC_SDS = 2.0
"""Displacements are clipped at this number of standard deviations, to keep blocks small."""


class AugmentMasks(Augment):
    """Augmentation by `rule`, the "augment" of plan.json; every key may be 0 or absent.

    Space, with probability `often` (0.5 if absent): rotate: degrees, in the image plane; tilt: degrees about the other two axes of a
    volume; zoom: share; shift: share; elastic: largest standard deviation of a smooth deformation, as a share of each side; flip:
    axes that may be mirrored ("h" rows, "w" columns, "d" slices).
    Intensity: contrast, brightness, gamma, noise as in `Augment`; blur: largest standard deviation in voxels, in 20 % of batches.
    """

    def draw(self, patch: Sequence[int], rng: np.random.Generator) -> np.ndarray | None:
        """Return a random map from voxels of the patch to voxels of the image, both from the patch's centre; None: no change.

        (dims, dims + 1) matrix and shift, then (dims, ELASTIC_KNOTS ** dims) displacements if there is an elastic deformation.
        """
        if not self._has_spatial_change() or rng.random() >= float(self.rule.get("often", 0.5)):
            return None
        dims, size = len(patch), np.array(patch, float)
        rotation_matrix = np.eye(dims)
        for name, (first, second) in [("rotate", (0, 1)), ("tilt", (2, 1)), ("tilt", (2, 0))][: 1 if dims == 2 else 3]:
            angle = rng.uniform(-1, 1) * float(self.rule.get(name) or 0) * pi / 180
            rotation = np.eye(dims)
            rotation[first, first] = rotation[second, second] = np.cos(angle)
            rotation[first, second], rotation[second, first] = -np.sin(angle), np.sin(angle)
            rotation_matrix = rotation_matrix @ rotation
        zoom, shift, elastic = (float(self.rule.get(key) or 0) for key in ("zoom", "shift", "elastic"))
        parts = [
            rotation_matrix / rng.uniform(1 - zoom, 1 + zoom),
            rng.uniform(-shift, shift, (dims, 1)) * size[:, None],
        ]
        if elastic:
            displacements = rng.standard_normal((dims, ELASTIC_KNOTS**dims)).clip(-MAX_ELASTIC_SDS, MAX_ELASTIC_SDS)
            parts.append(elastic * rng.random() * displacements * size[:, None])
        return np.concatenate(parts, axis=1)

    def pair(
        self,
        images: Sequence[torch.Tensor],
        masks: Sequence[torch.Tensor],
        moves: Sequence[torch.Tensor | None],
        patch: Sequence[int],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B, C, *patch) images and (B, *patch) ids or (B, K, *patch) 0/1 from blocks, each with its move of
        `block_of_patch`.
        """
        has_channels = masks[0].ndim == images[0].ndim
        pairs = list(zip(images, masks if has_channels else [mask[None] for mask in masks], strict=True))
        positions = [torch.arange(int(n), device=images[0].device) - (int(n) - 1) / 2 for n in patch]
        is_moved = any(move is not None for move in moves)
        points = torch.stack(torch.meshgrid(*positions, indexing="ij"), dim=-1) if is_moved else None
        if points is not None:
            moved = zip(pairs, moves, strict=True)
            pairs = [pair if move is None else _resample(*pair, points, move) for pair, move in moved]
        image, layers = (torch.stack(part) for part in zip(*pairs, strict=True))
        image, layers = self._mirror(image, layers)
        image = self._intensity(self._blur(image))
        return image, layers if has_channels else layers[:, 0]

    def _has_spatial_change(self) -> bool:
        return any(self.rule.get(key) for key in ("rotate", "tilt", "zoom", "shift", "elastic"))

    def _mirror(self, image: torch.Tensor, layers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for axis, name in enumerate("hwd"[: image.ndim - 2], start=2):
            if name in self.rule.get("flip", ()):
                is_flipped = (torch.rand(image.shape[0], device=image.device) < 0.5).view(-1, *(1,) * (image.ndim - 1))
                image = torch.where(is_flipped, image.flip(axis), image)
                layers = torch.where(is_flipped, layers.flip(axis), layers)
        return image, layers

    def _blur(self, image: torch.Tensor) -> torch.Tensor:
        max_sigma = float(self.rule.get("blur") or 0)
        if not max_sigma or torch.rand(()).item() >= 0.2:
            return image
        sigma = float(torch.empty(()).uniform_(0.3, max(max_sigma, 0.31)))
        offsets = torch.arange(-2, 3, device=image.device, dtype=image.dtype)
        kernel = torch.exp(-offsets.square() / (2 * sigma**2))
        kernel = kernel / kernel.sum()
        for axis in range(2, image.ndim):
            moved = image.transpose(axis, -1)
            padded = functional.pad(moved.reshape(-1, 1, moved.shape[-1]), (2, 2), mode="replicate")
            padded, length = padded.view(*moved.shape[:-1], -1), moved.shape[-1]
            # no conv1d: cuDNN would search for its fastest algorithm at the first blurred batch, which takes 1.6 s
            parts = [kernel[offset] * padded.narrow(-1, offset, length) for offset in range(5)]
            image = sum(parts[1:], parts[0]).transpose(axis, -1)
        return image


class AugmentPatches:
    """`AugmentMasks` as a transform, the first one: the data set draws a move for each patch, the batch is moved on its device."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.augment, self.patch = AugmentMasks(plan["augment"]), [int(n) for n in plan["patch"]]

    def draw(self, rng: np.random.Generator) -> np.ndarray | None:
        """Return a random move of a patch; None: no change."""
        return self.augment.draw(self.patch, rng)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        image, mask = self.augment.pair(batch["pixel_values"], batch["labels"], batch["move"], self.patch)
        return {"pixel_values": image, "labels": mask}


def find_mover(transforms: Iterable[Any]) -> AugmentPatches | None:
    """Return the transform whose moves the data set draws, if there is one."""
    return next((transform for transform in transforms if isinstance(transform, AugmentPatches)), None)


def block_of_patch(
    start: Sequence[int], patch: Sequence[int], move: np.ndarray | None
) -> tuple[list[int], list[int], torch.Tensor | None]:
    """Return start and size of the image block that a moved patch at `start` shows, and the move in voxels of the block."""
    if move is None:
        return [int(n) for n in start], [int(n) for n in patch], None
    dims, half = len(patch), (np.array(patch) - 1) / 2
    half_extent, centre = np.abs(move[:, :dims]) @ half, np.array(start) + half + move[:, dims]
    displacements = move[:, dims + 1 :] if move.shape[1] > dims + 1 else np.zeros((dims, 1))
    first = np.floor(centre - half_extent + displacements.min(axis=1)).astype(int)
    last = np.ceil(centre + half_extent + displacements.max(axis=1)).astype(int)
    move = np.concatenate([move[:, :dims], (centre - first)[:, None], move[:, dims + 1 :]], axis=1)
    return first.tolist(), (last - first + 1).tolist(), torch.from_numpy(move.astype(np.float32))


def cut_block(
    array: np.ndarray, start: Sequence[int], size: Sequence[int], fill: float | Sequence[float] | np.ndarray
) -> np.ndarray:
    """Copy the block of the last axes from `start`, which may be negative; voxels outside get `fill`, a value or one per channel."""
    lead = array.ndim - len(size)
    spans = [(max(0, s), min(length, s + n)) for s, n, length in zip(start, size, array.shape[lead:], strict=True)]
    index: tuple[Any, ...] = (..., *(slice(low, max(low, high)) for low, high in spans))
    content = array[index]
    if content.shape[lead:] == tuple(size):
        return np.array(content)
    fill_value = np.asarray(fill, array.dtype).reshape(-1, *(1,) * len(size)) if np.ndim(fill) else fill
    block = np.full((*array.shape[:lead], *size), fill_value, array.dtype)
    if content.size:
        index = (..., *(slice(low - s, high - s) for (low, high), s in zip(spans, start, strict=True)))
        block[index] = content
    return block


def collate_blocks(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return stacked items; lists of their values if they have moves, since their blocks differ in size."""
    if "move" not in items[0]:
        return {key: torch.stack([item[key] for item in items]) for key in items[0]}
    return {key: [item[key] for item in items] for key in items[0]}


def _resample(
    image: torch.Tensor, layers: torch.Tensor, points: torch.Tensor, move: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return image (linear) and mask layers (nearest) at `points` (*patch, dims), voxels from the patch's centre."""
    dims, size = points.shape[-1], list(points.shape[:-1])
    source = points @ move[:, :dims].T + move[:, dims]
    if move.shape[1] > dims + 1:
        knots = move[:, dims + 1 :].reshape(1, dims, *(ELASTIC_KNOTS,) * dims)
        mode = "bilinear" if dims == 2 else "trilinear"
        source = source + functional.interpolate(knots, size=size, mode=mode, align_corners=True)[0].movedim(0, -1)
    axes = reversed(list(enumerate(image.shape[1:])))  # grid_sample orders the axes from the last to the first
    grid = torch.stack([(2 * source[..., axis] + 1) / length - 1 for axis, length in axes], dim=-1)[None]
    moved = functional.grid_sample(image[None], grid, padding_mode="border", align_corners=False)[0]
    masks = functional.grid_sample(layers[None].to(image.dtype), grid, "nearest", "zeros", align_corners=False)[0]
    return moved, masks.to(layers.dtype)
