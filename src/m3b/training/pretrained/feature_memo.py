"""Features of frozen networks in memory, shared by the folds and scorings of a training, and by the networks of a deliverable."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

MEMORY_SHARE = 0.25
"""Share of the machine's memory for features; what exceeds it is computed again in each step."""


class FeatureMemo:
    """Feature maps of images that were computed before, by the content of the image; copies of a network share it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.used_bytes = max_bytes, 0
        self.maps: dict[bytes, list[torch.Tensor]] = {}

    def __deepcopy__(self, _: dict[int, Any]) -> FeatureMemo:
        return self

    def compute(self, body: Callable[[torch.Tensor], list[torch.Tensor]], x: torch.Tensor) -> list[torch.Tensor]:
        """Return the maps of (B, C, ...) images; those of new images by `body`. A GPU computes all anew."""
        if x.device.type != "cpu":
            return list(body(x))
        keys = [self._key(image) for image in x]
        unknown_rows = [row for row, key in enumerate(keys) if key not in self.maps]
        computed = body(x[unknown_rows]) if unknown_rows else []
        new_maps = {row: [maps[place] for maps in computed] for place, row in enumerate(unknown_rows)}
        for row, maps in new_maps.items():
            size = sum(part.numel() * part.element_size() for part in maps)
            if self.used_bytes + size <= self.max_bytes and keys[row] not in self.maps:
                self.maps[keys[row]] = [part.clone() for part in maps]
                self.used_bytes += size
        maps_by_row = [new_maps[row] if row in new_maps else self.maps[key] for row, key in enumerate(keys)]
        return [torch.stack(maps) for maps in zip(*maps_by_row, strict=True)]

    @staticmethod
    def _key(image: torch.Tensor) -> bytes:
        digest = hashlib.blake2b(image.detach().contiguous().numpy(), digest_size=16)
        digest.update(f"{tuple(image.shape)} {torch.is_autocast_enabled('cpu')}".encode())
        return digest.digest()


class LastInputMemo:
    """The feature maps of the last input."""

    def __init__(self) -> None:
        self.last: tuple[torch.Tensor, list[torch.Tensor]] | None = None
        self.traced: tuple[torch.Tensor, list[torch.Tensor]] | None = None

    def compute(self, body: Callable[[torch.Tensor], list[torch.Tensor]], x: torch.Tensor) -> list[torch.Tensor]:
        """Return the maps of (B, C, ...) images. While a graph is traced, an input is recognised by its identity."""
        if torch.jit.is_tracing():
            if self.traced is None or self.traced[0] is not x:
                self.traced = (x, list(body(x)))
            return self.traced[1]
        if self.last is None or self.last[0].device != x.device or not torch.equal(self.last[0], x):
            self.last = (x.clone(), list(body(x)))
        return self.last[1]


@cache
def get_memo(source: str) -> FeatureMemo:
    """Return the memo of the weights of a folder in this process."""
    return FeatureMemo(int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
