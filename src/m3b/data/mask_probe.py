"""Counts of the values in a mask."""

from __future__ import annotations

from typing import Any

CHUNK = 1 << 22
"""Voxels that are counted at a time, so that counting takes little memory."""
MAX_VALUES = 4096


def value_counts(array: Any) -> dict[int, int]:
    """Voxels a value, counted in pieces; at most `MAX_VALUES` values are kept."""
    import numpy as np

    flat = array.reshape(-1)
    found: dict[int, int] = {}
    for start in range(0, flat.size, CHUNK):
        piece = flat[start : start + CHUNK]
        if int(piece.max(initial=0)) < 65536:
            table = np.bincount(piece)
            values = np.nonzero(table)[0]
            amounts = table[values]
        else:
            values, amounts = np.unique(piece, return_counts=True)
        for value, amount in zip(values.tolist(), amounts.tolist(), strict=True):
            if value in found or len(found) < MAX_VALUES:
                found[value] = found.get(value, 0) + amount
    return found
