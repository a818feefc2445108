"""Random changes of a batch of images together with their masks, on the batch's own device."""

from __future__ import annotations

from math import pi

import torch
from torch.nn import functional

from .augment import Augment


class AugmentMasks(Augment):
    """`rule` is plan.json's "augment"; every part may be 0 or absent.

    Space, in `often` of the cases (0.5 if absent): rotate: degrees, in the image plane; tilt: degrees about the other
    two axes of a volume; zoom: share; shift: share; flip: axes that may be mirrored ("h" rows, "w" columns, "d" slices).
    Intensity: contrast, brightness, gamma, noise as in `Augment`; blur: largest standard deviation in voxels, in a
    fifth of the batches.
    """

    def pair(self, image: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, C, H, W[, D]) float, and (B, H, W[, D]) ids or (B, K, H, W[, D]) 0/1, to the same shapes and types."""
        channels = mask.ndim == image.ndim
        layers = (mask if channels else mask[:, None]).to(image.dtype)
        image, layers = self._mirror(image, layers)
        if any(self.rule.get(key) for key in ("rotate", "tilt", "zoom", "shift")):
            image, layers = self._move(image, layers)
        image = self._intensity(self._blur(image))
        return image, (layers if channels else layers[:, 0]).to(mask.dtype)

    def _mirror(self, image: torch.Tensor, layers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for axis, name in enumerate("hwd"[: image.ndim - 2], start=2):
            if name in self.rule.get("flip", ()):
                chosen = (torch.rand(image.shape[0], device=image.device) < 0.5).view(-1, *(1,) * (image.ndim - 1))
                image = torch.where(chosen, image.flip(axis), image)
                layers = torch.where(chosen, layers.flip(axis), layers)
        return image, layers

    def _move(self, image: torch.Tensor, layers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Image by interpolation, mask by the nearest voxel; what comes from outside is border and background."""
        chosen = torch.rand(image.shape[0], device=image.device) < float(self.rule.get("often", 0.5))
        rows = chosen.nonzero()[:, 0]
        if not len(rows):
            return image, layers
        part = image[rows]
        grid = functional.affine_grid(self._maps(part), list(part.shape), align_corners=False)
        image, layers = image.clone(), layers.clone()
        image[rows] = functional.grid_sample(part, grid, padding_mode="border", align_corners=False)
        layers[rows] = functional.grid_sample(layers[rows], grid, "nearest", "zeros", align_corners=False)
        return image, layers

    def _maps(self, part: torch.Tensor) -> torch.Tensor:
        """(B, dims, dims + 1): rotation in voxels (so that nothing is sheared on oblong patches), zoom, shift."""
        n, dims = part.shape[0], part.ndim - 2
        turns = [("rotate", (0, 1) if dims == 2 else (1, 2))]
        turns += [] if dims == 2 else [("tilt", (0, 1)), ("tilt", (0, 2))]
        turn = torch.eye(dims, device=part.device).repeat(n, 1, 1)
        for name, (first, second) in turns:  # torch's grid names the axes from the last to the first
            limit = float(self.rule.get(name) or 0) * pi / 180
            angle = self._draw(part, -limit, limit)
            one = torch.eye(dims, device=part.device).repeat(n, 1, 1)
            one[:, first, first], one[:, second, second] = torch.cos(angle), torch.cos(angle)
            one[:, first, second], one[:, second, first] = -torch.sin(angle), torch.sin(angle)
            turn = turn @ one
        zoom = float(self.rule.get("zoom") or 0)
        size = torch.tensor(part.shape[2:][::-1], dtype=torch.float32, device=part.device)
        turn = turn * (size[None, None, :] / size[None, :, None]) / self._draw(part, 1 - zoom, 1 + zoom).view(-1, 1, 1)
        shift = float(self.rule.get("shift") or 0)
        moves = torch.empty(n, dims, 1, device=part.device).uniform_(-2 * shift, 2 * shift)
        return torch.cat([turn, moves], dim=2)

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
            flat = functional.pad(moved.reshape(-1, 1, moved.shape[-1]), (2, 2), mode="replicate")
            image = functional.conv1d(flat, kernel.view(1, 1, -1)).view(moved.shape).transpose(axis, -1)
        return image
