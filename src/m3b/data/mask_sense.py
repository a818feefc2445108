"""What a mask looks like as a drawing: one shape or scattered points, two noisy levels, the visible part of the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIDE = 32
"""Of the coarse copy by which masks of different cases are compared."""
LOOKED_AT = 192
"""Rows and columns that are compared with the image, at most."""
DARK = 0.06
"""Of the image's range: what lies below is the black around it."""


@dataclass(frozen=True)
class Sense:
    """Facts of one mask.

    Args:
        coarse: the marked part on a grid of at most 32 a side.
        marked: voxels that are marked.
        alone: of the marked voxels of the fullest slice, those with no marked neighbour.
        lossy: whether the file holds two levels with compression noise around them.
        covers: overlap (IoU) of the marked part and of what the image shows; 0 where the image has no dark border.
    """

    coarse: NDArray[np.bool_]
    marked: int
    alone: float
    lossy: bool
    covers: float


def sense_of(array: Any, marked: Any, image: Any) -> Sense:
    """Args:
    array: the mask's values, `(H, W)` or `(H, W, D)`.
    marked: which of them are a class that was asked for, of the same shape.
    image: `(C, H, W)` or `(C, H, W, D)`.
    """
    from m3b.data.pixels import values_of

    same = tuple(image.shape[1:]) == tuple(array.shape)
    return Sense(
        coarse=_coarse(marked),
        marked=int(marked.sum()),
        alone=_alone(marked),
        lossy=values_of(array[None]).kind == "lossy_mask",
        covers=_covers(marked, image) if same else 0.0,
    )


def joined(senses: Sequence[Sense]) -> Sense | None:
    """The masks of one case, a class each, as one."""
    if not senses:
        return None
    coarse = senses[0].coarse
    for one in senses[1:]:
        coarse = coarse | one.coarse if coarse.shape == one.coarse.shape else coarse
    return Sense(
        coarse,
        sum(one.marked for one in senses),
        max(one.alone for one in senses),
        any(one.lossy for one in senses),
        max(one.covers for one in senses),
    )


def _coarse(marked: Any) -> Any:
    import numpy as np

    picks = [np.linspace(0, side - 1, min(side, SIDE)).astype(int) for side in marked.shape]
    return np.asarray(marked[np.ix_(*picks)], dtype=bool)


def _alone(marked: Any) -> float:
    import numpy as np

    plane = marked
    if marked.ndim == 3:
        plane = marked[:, :, int(np.argmax(marked.sum(axis=(0, 1))))]
    total = int(plane.sum())
    if not total:
        return 0.0
    wide = np.pad(plane, 1)
    near = wide[:-2, 1:-1] | wide[2:, 1:-1] | wide[1:-1, :-2] | wide[1:-1, 2:]
    return float((plane & ~near).sum() / total)


def _covers(marked: Any, image: Any) -> float:
    """0 where the image is not framed by a black border."""
    import numpy as np

    steps = tuple(slice(None, None, max(1, side // LOOKED_AT)) for side in marked.shape)
    seen = np.asarray(image[(slice(None), *steps)]).max(axis=0)
    low, high = np.percentile(seen, (0.5, 99))
    if not high > low:
        return 0.0
    shown = seen > low + DARK * (high - low)
    mine = marked[steps]
    if not 0.02 < 1 - shown.mean() < 0.98:
        return 0.0
    either = int((shown | mine).sum())
    return float((shown & mine).sum() / either) if either else 0.0
