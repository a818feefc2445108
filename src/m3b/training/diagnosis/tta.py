"""Test-time augmentation: average over slightly transformed views of an image; views are fixed, so that answers repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

View = dict[str, Any]
"""`{}` is the image itself; "flip": axes of "hwd"; "zoom": share; "shift": [rows, columns], shares of the side."""


def make_views(rule: Mapping[str, Any], flips: list[str], dims: int) -> list[View]:
    """Return at most `views` of plan.json's "tta", the image itself first; only `flips` that training has used."""
    zoom, shift = float(rule.get("zoom") or 0), float(rule.get("shift") or 0)
    views: list[View] = [{}, *({"flip": [axis]} for axis in flips if axis in "hwd"[:dims])]
    views += [{"zoom": zoom}] if zoom else []
    views += [{"shift": [rows * shift, columns * shift]} for rows, columns in _SHIFT_DIRECTIONS] if shift else []
    return views[: max(1, int(rule.get("views") or 1))]


_SHIFT_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1))


def apply_view(batch: torch.Tensor, view: Mapping[str, Any], has_views: bool = False) -> torch.Tensor:
    """Transform (B, C, H, W[, D]) to a view; borders are continued. `has_views`: (B, V, C, H, W[, D]), each image alike."""
    if has_views:
        return apply_view(batch.flatten(0, 1), view).reshape(batch.shape)
    for axis in view.get("flip", ()):
        batch = batch.flip("hwd".index(axis) + 2)
    zoom, shift = float(view.get("zoom") or 0), view.get("shift") or (0.0, 0.0)
    if not zoom and not any(shift):
        return batch
    dims = batch.ndim - 2
    theta = torch.zeros(1, dims, dims + 1, device=batch.device, dtype=batch.dtype)
    for axis in range(dims):
        theta[:, axis, axis] = 1 / (1 + zoom)
    theta[:, dims - 1, dims], theta[:, dims - 2, dims] = 2 * shift[0], 2 * shift[1]  # torch names the last axis first
    grid = functional.affine_grid(theta, [1, *batch.shape[1:]], align_corners=False)
    grid = grid.expand(batch.shape[0], *grid.shape[1:])  # exported graphs accept any batch size
    return functional.grid_sample(batch, grid, padding_mode="border", align_corners=False)
