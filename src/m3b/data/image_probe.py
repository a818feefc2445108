"""Small grey copies of pictures, by which the survey finds near copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIDE = 24
NEAR = 0.9985
"""Correlation of two 24 x 24 thumbnails above which two images count as nearly the same. Two radiographs of
different people stay below 0.99 as a rule; re-compressed or slightly rescaled copies lie above 0.999."""
MAX_PAIRS = 20_000


@dataclass(frozen=True)
class ImageProbe:
    """What is compared of a picture."""

    digest: str
    thumbnail: NDArray[np.float32]
    flat: bool = False


def area_means(plane: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """`side` rows of exact means: a row that two of them share counts for each by its share."""
    import numpy as np

    height = len(plane)
    sums = np.concatenate([np.zeros((1, plane.shape[1])), np.cumsum(plane, axis=0)])
    edges = np.linspace(0, height, side + 1)
    below = np.minimum(edges.astype(int), height - 1)
    at_edges = sums[below] + (edges - below)[:, None] * plane[below]
    return np.asarray(np.diff(at_edges, axis=0) * (side / height))


def near_pairs(looks: Mapping[str, ImageProbe]) -> list[tuple[str, str]]:
    """Pairs of different pictures whose thumbnails correlate above `NEAR`, at most `MAX_PAIRS`; exact copies are left out."""
    import numpy as np

    keys = [key for key, look in looks.items() if not look.flat]
    if len(keys) < 2:
        return []
    matrix = np.stack([looks[key].thumbnail for key in keys])
    digests = np.unique([looks[key].digest for key in keys], return_inverse=True)[1]
    alike = np.triu((matrix @ matrix.T > NEAR) & (digests[:, None] != digests[None]), 1)
    return [(keys[row], keys[column]) for row, column in zip(*np.nonzero(alike), strict=True)][:MAX_PAIRS]
