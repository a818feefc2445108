"""Random changes of a batch of images together with their masks, on the batch's own device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, pi

import numpy as np
import torch
from torch.nn import functional

from .augment import Augment

KNOTS = 4
"""Points along each side of a patch whose displacements an elastic deformation draws; what lies between is interpolated."""
FARTHEST = 2.0
"""Displacements end at so many standard deviations, so that `reach` holds them."""


class AugmentMasks(Augment):
    """`rule` is plan.json's "augment"; every part may be 0 or absent.

    Space, in `often` of the cases (0.5 if absent): rotate: degrees, in the image plane; tilt: degrees about the other
    two axes of a volume; zoom: share; shift: share; elastic: largest standard deviation of a smooth deformation, as a share
    of each side; flip: axes that may be mirrored ("h" rows, "w" columns, "d" slices).
    Intensity: contrast, brightness, gamma, noise as in `Augment`; blur: largest standard deviation in voxels, in a
    fifth of the batches.
    """

    def reach(self, patch: Sequence[int]) -> list[int]:
        """The size to cut so that a patch, turned and zoomed about its middle, shows what is there and no border.

        Each side grows by an even number of voxels, so that the middle of both is the same place.
        """
        size = np.array(patch, float)
        if not self._moves():
            return [int(n) for n in patch]
        corners = np.array(list(product((-0.5, 0.5), repeat=len(size)))) * size
        most = np.zeros(len(size))
        angles = [(-1.0, 0.0, 1.0)] * len(self._turns(len(size)))
        for shares in product(*angles):
            turn = np.eye(len(size))
            for (name, (first, second)), share in zip(self._turns(len(size)), shares, strict=True):
                angle = share * float(self.rule.get(name) or 0) * pi / 180
                one = np.eye(len(size))
                one[first, first] = one[second, second] = np.cos(angle)
                one[first, second], one[second, first] = -np.sin(angle), np.sin(angle)
                turn = turn @ one
            most = np.maximum(most, np.abs(corners[:, ::-1] @ turn.T)[:, ::-1].max(axis=0))
        half = most / max(0.2, 1 - float(self.rule.get("zoom") or 0)) + size * self._beyond()
        return [int(n) + 2 * max(0, ceil(edge - n / 2 + 0.5)) for n, edge in zip(patch, half, strict=True)]

    def pair(
        self, image: torch.Tensor, mask: torch.Tensor, patch: Sequence[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, C, H, W[, D]) float, and (B, H, W[, D]) ids or (B, K, H, W[, D]) 0/1, to the same types.

        Both come back as their middle of size `patch`, out of a cut of size `reach(patch)`. Without `patch` they keep their
        shape, and what comes from outside of them is border and background.
        """
        channels = mask.ndim == image.ndim
        layers = (mask if channels else mask[:, None]).to(image.dtype)
        image, layers = self._mirror(image, layers)
        size = [int(n) for n in (patch or image.shape[2:])]
        if self._moves():
            image, layers = self._move(image, layers, size)
        elif list(image.shape[2:]) != size:
            image, layers = middle(image, size), middle(layers, size)
        image = self._intensity(self._blur(image))
        return image, (layers if channels else layers[:, 0]).to(mask.dtype)

    def _moves(self) -> bool:
        return any(self.rule.get(key) for key in ("rotate", "tilt", "zoom", "shift", "elastic"))

    def _beyond(self) -> float:
        """How far a patch may move as a whole and by deformation, as a share of its side."""
        return float(self.rule.get("shift") or 0) + FARTHEST * float(self.rule.get("elastic") or 0)

    def _mirror(self, image: torch.Tensor, layers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for axis, name in enumerate("hwd"[: image.ndim - 2], start=2):
            if name in self.rule.get("flip", ()):
                chosen = (torch.rand(image.shape[0], device=image.device) < 0.5).view(-1, *(1,) * (image.ndim - 1))
                image = torch.where(chosen, image.flip(axis), image)
                layers = torch.where(chosen, layers.flip(axis), layers)
        return image, layers

    def _move(self, image: torch.Tensor, layers: torch.Tensor, size: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Image by interpolation, mask by the nearest voxel; the others are the middle of what was cut."""
        chosen = torch.rand(image.shape[0]) < float(
            self.rule.get("often", 0.5)
        )  # drawn where nobody has to wait for it
        rows = chosen.nonzero()[:, 0]
        if not len(rows):
            return middle(image, size), middle(layers, size)
        rows = rows.to(image.device, non_blocking=True)
        part, masks = image[rows], layers[rows]
        grid = functional.affine_grid(self._maps(part, size), [*part.shape[:2], *size], align_corners=False)
        if elastic := float(self.rule.get("elastic") or 0):
            grid = grid + self._displacements(part, size, elastic)
        image, layers = middle(image, size).clone(), middle(layers, size).clone()
        image[rows] = functional.grid_sample(part, grid, padding_mode="border", align_corners=False)
        layers[rows] = functional.grid_sample(masks, grid, "nearest", "zeros", align_corners=False)
        return image, layers

    @staticmethod
    def _displacements(part: torch.Tensor, size: Sequence[int], most: float) -> torch.Tensor:
        """(B, *size, dims): displacements for torch's grid on the cut `part`, each case with a strength of its own."""
        n, dims = part.shape[0], len(size)
        strength = most * torch.rand(n, *(1,) * (dims + 1), device=part.device)
        drawn = torch.randn(n, dims, *(KNOTS,) * dims, device=part.device).clamp(-FARTHEST, FARTHEST)
        how = "bilinear" if dims == 2 else "trilinear"
        field = functional.interpolate(strength * drawn, size=list(size), mode=how, align_corners=True)
        voxels = [2 * have / cut for have, cut in zip(size, part.shape[2:], strict=True)]
        return field.movedim(1, -1) * torch.tensor(voxels[::-1], device=part.device)

    @staticmethod
    def _turns(dims: int) -> list[tuple[str, tuple[int, int]]]:
        """Settings and planes of rotations; torch's grid names the axes from the last to the first."""
        return [("rotate", (0, 1))] if dims == 2 else [("rotate", (1, 2)), ("tilt", (0, 1)), ("tilt", (0, 2))]

    def _maps(self, part: torch.Tensor, patch: Sequence[int] | None = None) -> torch.Tensor:
        """(B, dims, dims + 1), from the patch to the cut: rotation in voxels (so that nothing is sheared on oblong
        patches), zoom, shift."""
        n, dims = part.shape[0], part.ndim - 2
        turn = torch.eye(dims, device=part.device).repeat(n, 1, 1)
        for name, (first, second) in self._turns(dims):
            limit = float(self.rule.get(name) or 0) * pi / 180
            angle = self._draw(part, -limit, limit)
            one = torch.eye(dims, device=part.device).repeat(n, 1, 1)
            one[:, first, first], one[:, second, second] = torch.cos(angle), torch.cos(angle)
            one[:, first, second], one[:, second, first] = -torch.sin(angle), torch.sin(angle)
            turn = turn @ one
        zoom = float(self.rule.get("zoom") or 0)
        cut = torch.tensor(part.shape[2:][::-1], dtype=torch.float32, device=part.device)
        size = torch.tensor(list(patch or part.shape[2:])[::-1], dtype=torch.float32, device=part.device)
        turn = turn * (size[None, None, :] / cut[None, :, None]) / self._draw(part, 1 - zoom, 1 + zoom).view(-1, 1, 1)
        shift = float(self.rule.get("shift") or 0)
        moves = torch.empty(n, dims, 1, device=part.device).uniform_(-2 * shift, 2 * shift)
        return torch.cat([turn, moves * (size / cut)[None, :, None]], dim=2)

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


def middle(array: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """The middle of the last axes, of the given size."""
    for axis, want in zip(range(array.ndim - len(size), array.ndim), size, strict=True):
        array = array.narrow(axis, (array.shape[axis] - int(want)) // 2, int(want))
    return array
