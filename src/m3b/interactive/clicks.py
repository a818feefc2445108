"""Prompts as a person with perfect knowledge would set them: the truth's box, clicks into the largest error.

A click goes to the pixel that lies deepest inside the largest region of error, by Euclidean distance transform of the
padded error maps, as in the CVPR 2025 interactive challenge (JunMa11/CVPR-MedSegFMCompetition) and in RITM.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from m3b.interactive.prompts import BoxPrompt, Point
from m3b.interactive.segmenter import Mask


def make_true_box(truth: Mask, box_noise: float = 0.0, rng: np.random.Generator | None = None) -> BoxPrompt:
    """The tight box of a mask, each side moved by up to `box_noise` of the box's extent along its axis.

    Raises:
        ValueError: the mask is empty.
    """
    rows, columns = np.flatnonzero(truth.any(axis=1)), np.flatnonzero(truth.any(axis=0))
    if not len(rows):
        raise ValueError("the target is empty: nothing can be boxed")
    corners = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=float)
    if box_noise and rng is not None:
        extent = np.array([corners[2] - corners[0], corners[3] - corners[1]] * 2)
        corners += rng.uniform(-box_noise, box_noise, 4) * extent
    size = np.array([truth.shape[1], truth.shape[0]] * 2, dtype=float)
    x0, y0, x1, y1 = np.clip(corners, 0, size)
    return BoxPrompt(x0, y0, max(x1, x0 + 1), max(y1, y0 + 1))


def find_next_click(mask: Mask | None, truth: Mask, previous_clicks: Sequence[Point] = ()) -> Point | None:
    """The click that corrects most: positive into what is missed, negative into what is too much; None if all is right.

    Args:
        mask: the mask so far; None for none.
        previous_clicks: clicks that were set already, where no second one goes.
    """
    mask = np.zeros_like(truth) if mask is None else mask
    best: tuple[float, Point] | None = None
    for error, positive in ((truth & ~mask, True), (mask & ~truth, False)):
        depth = _compute_error_depth(error)
        for point in previous_clicks:
            row, column = int(point.y), int(point.x)
            if 0 <= row < depth.shape[0] and 0 <= column < depth.shape[1]:
                depth[row, column] = 0.0
        position = int(depth.argmax())
        if depth.flat[position] > (best[0] if best else 0.0):
            row, column = divmod(position, depth.shape[1])
            best = float(depth.flat[position]), Point(column + 0.5, row + 0.5, positive)
    return best[1] if best else None


def _compute_error_depth(error: Mask) -> np.ndarray:
    """Distance of each pixel of the largest region of error to its border; 0 elsewhere. The image's edge is a border."""
    regions, count = ndimage.label(error, structure=np.ones((3, 3)))
    if not count:
        return np.zeros(error.shape)
    sizes = np.bincount(regions.ravel())
    sizes[0] = 0
    largest = np.pad(regions == sizes.argmax(), 1)
    depth: np.ndarray = ndimage.distance_transform_edt(largest)[1:-1, 1:-1]
    return depth
