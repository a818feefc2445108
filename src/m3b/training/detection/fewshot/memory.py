"""How far the patches of an image are from those that are known to be normal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from m3b.training.detection.fewshot.model import Level


def distances(features: torch.Tensor, bank: torch.Tensor, chunk: int = 4096) -> torch.Tensor:
    """(B, patches) 1 - largest cosine to a row of the bank (rows, width)."""
    rows, flat = _directions(bank), _directions(features).flatten(0, 1)
    parts = [1 - (one @ rows.T).amax(dim=1) for one in flat.split(chunk)]
    return torch.cat(parts).view(features.shape[:2])


def _directions(x: torch.Tensor) -> torch.Tensor:
    """Unit vectors; features of nothing at all, as rectified ones can be, share a direction of their own."""
    nothing = (x.norm(dim=-1, keepdim=True) < 1e-6).to(x.dtype)
    return torch.cat([functional.normalize(x, dim=-1), nothing], dim=-1)


def memory_map(found: Sequence[Level], banks: Sequence[torch.Tensor], size: int, pixels: bool) -> torch.Tensor:
    """(B, S, S) mean over the depths of the distance to what is normal."""
    maps = []
    for one, bank in zip(found, banks, strict=True):
        away = distances(one.seg if pixels else one.det, bank).unflatten(1, one.grid)[:, None]
        maps.append(functional.interpolate(away, size=(size, size), mode="bilinear", align_corners=True)[:, 0])
    return torch.stack(maps).mean(dim=0)
