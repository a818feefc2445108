"""Neighbours of a series: pictures that are numbered one after the other and look nearly the same.

Slices of a stack or frames of a clip that somebody exported one by one are of one person, whether the names say so or not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from m3b.data.image_probe import NEAR, area_means

MAX_STEP = 3
"""Numbers by which neighbours differ at most: some frames may have been left out."""
SIDE = 24
_NUMBERED = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


def thumbnail_of(array: Any) -> Any:
    """Zero-mean, unit-norm area means of a picture `(C, H, W)`, `SIDE` x `SIDE` numbers; None where it is flat."""
    import numpy as np

    plane = np.nan_to_num(np.asarray(array[0], dtype=np.float64), posinf=0.0, neginf=0.0)
    small = area_means(area_means(plane, SIDE).T, SIDE).T
    small = (small - small.mean()).ravel()
    norm = float(np.linalg.norm(small))
    return (small / norm).astype(np.float32) if norm > 1e-9 else None


def series_of(references: Sequence[str], thumbnails: Sequence[Any]) -> list[str]:
    """Of each picture a text that it shares with the others of its series; empty where it has no such neighbour."""
    stems: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for place, path in enumerate(references):
        found = _NUMBERED.match(path)
        if found and thumbnails[place] is not None:
            stems[found[1], found[3]].append((int(found[2]), place))
    named = [""] * len(references)
    for some in stems.values():
        some.sort()
        for (low, one), (high, other) in pairwise(some):
            if high - low <= MAX_STEP and float(thumbnails[one] @ thumbnails[other]) > NEAR:
                named[other] = named[one] = named[one] or f"series of {references[one]}"
    return named
