"""Propagate the mask of one slice through a volume: each slice is prompted with the mask of its neighbour."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from m3b.interactive.segmenter import BoxPrompt, ByteImage, Mask, Point, Segmenter
from m3b.interactive.simulated_user import make_true_box

BOX_MARGIN_SHARE = 0.06
"""Share of its extent by which a mask's box is widened for the next slice: structures move and grow a little."""
MIN_AREA_RATIO, MAX_AREA_RATIO = 0.25, 4.0
"""Limits of the area ratio between slices; beyond them the target has ended, or the mask has leaked out of it."""
MIN_SCORE = 0.5
"""Below this expected IoU the target is assumed to have ended."""


def propagate(segmenter: Segmenter, volume: ByteImage, index: int, mask: Mask) -> Mask:
    """Follow a target from the prompted slice in both directions, until it ends.

    Args:
        volume: (H, W, D, 3) uint8.
        index: the slice that `mask` belongs to.
        mask: (H, W) bool; if it is empty, nothing is propagated.

    Returns:
        (H, W, D) bool.
    """
    volume_mask = np.zeros(volume.shape[:3], dtype=bool)
    volume_mask[:, :, index] = mask
    for step in (1, -1):
        current_mask, slice_index = mask, index + step
        while current_mask.any() and 0 <= slice_index < volume.shape[2]:
            current_mask = _segment_next_slice(segmenter, np.ascontiguousarray(volume[:, :, slice_index]), current_mask)
            volume_mask[:, :, slice_index] = current_mask
            slice_index += step
    return volume_mask


def _segment_next_slice(segmenter: Segmenter, plane: ByteImage, previous_mask: Mask) -> Mask:
    """Return the mask of a slice, given that of its neighbour; empty if the target has ended."""
    segmenter.set_image(plane)
    proposal = segmenter.predict([_widen_box(previous_mask)], [_find_deepest_point(previous_mask)])
    ratio = proposal.mask.sum() / previous_mask.sum()
    if (
        proposal.score < MIN_SCORE
        or not MIN_AREA_RATIO <= ratio <= MAX_AREA_RATIO
        or not (proposal.mask & previous_mask).any()
    ):
        return np.zeros_like(previous_mask)
    return proposal.mask


def _widen_box(mask: Mask) -> BoxPrompt:
    box = make_true_box(mask)
    x_margin, y_margin = max(1.0, BOX_MARGIN_SHARE * (box.x1 - box.x0)), max(1.0, BOX_MARGIN_SHARE * (box.y1 - box.y0))
    rows, columns = mask.shape
    return BoxPrompt(
        max(0, box.x0 - x_margin),
        max(0, box.y0 - y_margin),
        min(columns, box.x1 + x_margin),
        min(rows, box.y1 + y_margin),
    )


def _find_deepest_point(mask: Mask) -> Point:
    """Return the pixel furthest inside the mask."""
    depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
    row, column = divmod(int(depth.argmax()), mask.shape[1])
    return Point(column + 0.5, row + 0.5)
