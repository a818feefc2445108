"""From the mask of one slice to that of a volume: each next slice is prompted with what stood in the one before."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from m3b.interactive.clicks import true_box
from m3b.interactive.prompts import BoxPrompt, Point
from m3b.interactive.segmenter import Bytes, Mask, MaskProposal, Segmenter

GROW = 0.06
"""Share of its extent by which a mask's box is widened for the next slice: structures move and grow a little."""
SHRUNK, GROWN = 0.25, 4.0
"""Beyond these ratios of area from slice to slice the target has ended, or the mask has run out of it."""
MIN_SCORE = 0.5
"""Below this expected IoU the target is taken to have ended."""


def propagate(segmenter: Segmenter, volume: Bytes, index: int, mask: Mask) -> Mask:
    """Follow a target from the slice that was prompted in both directions, until it ends.

    Args:
        volume: (H, W, D, 3) uint8.
        index: the slice that `mask` belongs to.
        mask: (H, W) bool, not empty for anything to be found.

    Returns:
        (H, W, D) bool.
    """
    volume_mask = np.zeros(volume.shape[:3], dtype=bool)
    volume_mask[:, :, index] = mask
    for step in (1, -1):
        current_mask, slice_index = mask, index + step
        while current_mask.any() and 0 <= slice_index < volume.shape[2]:
            current_mask = _next(segmenter, np.ascontiguousarray(volume[:, :, slice_index]), current_mask)
            volume_mask[:, :, slice_index] = current_mask
            slice_index += step
    return volume_mask


def _next(segmenter: Segmenter, plane: Bytes, before: Mask) -> Mask:
    """The mask of a slice, given that of its neighbour; empty where the target has ended."""
    segmenter.set_image(plane)
    proposal = segmenter.predict([_widen_box(before)], [_middle(before)])
    ratio = proposal.mask.sum() / before.sum()
    if proposal.score < MIN_SCORE or not SHRUNK <= ratio <= GROWN or not _overlap(proposal, before):
        return np.zeros_like(before)
    return proposal.mask


def _overlap(found: MaskProposal, before: Mask) -> bool:
    return bool((found.mask & before).any())


def _widen_box(mask: Mask) -> BoxPrompt:
    box = true_box(mask)
    x_margin, y_margin = max(1.0, GROW * (box.x1 - box.x0)), max(1.0, GROW * (box.y1 - box.y0))
    rows, columns = mask.shape
    return BoxPrompt(
        max(0, box.x0 - x_margin),
        max(0, box.y0 - y_margin),
        min(columns, box.x1 + x_margin),
        min(rows, box.y1 + y_margin),
    )


def _middle(mask: Mask) -> Point:
    """The pixel deepest inside."""
    depth = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
    row, column = divmod(int(depth.argmax()), mask.shape[1])
    return Point(column + 0.5, row + 0.5)
