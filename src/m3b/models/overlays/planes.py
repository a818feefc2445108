"""What of an image is shown: the picture itself, or three planes of a volume, with masks and boxes in their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SOFT_TISSUE_WINDOW_HU = (-160.0, 240.0)
"""Hounsfield window of CT where the model names none."""


@dataclass(frozen=True)
class DrawnBox:
    """A box in array coordinates `(r0, c0[, s0], r1, c1[, s1])`, its class number and its score; a true box has none."""

    box: tuple[float, ...]
    class_index: int
    score: float | None = None


@dataclass(frozen=True)
class Panel:
    """One picture: (h, w, 3) uint8, masks (K, h, w) bool, boxes as (top, left, bottom, right, class number, score).

    `pixel_size` is the height and width of a pixel in mm, or (1, 1).
    """

    title: str
    picture: np.ndarray
    masks: np.ndarray
    boxes: tuple[tuple[float, float, float, float, int, float | None], ...]
    pixel_size: tuple[float, float]


def to_display_rgb(array: np.ndarray, modality: str, window: Mapping[str, Any] | None = None) -> np.ndarray:
    """(C, ...) to uint8 (..., 3): colour as it is, else the first channel, windowed."""
    if array.dtype == np.uint8 and array.shape[0] == 3:
        return np.ascontiguousarray(np.moveaxis(array, 0, -1))
    grey = np.nan_to_num(array[0].astype(np.float32))
    if window and window.get("mode") == "window":
        low, high = float(window["low"]), float(window["high"])
    elif modality == "ct":
        low, high = SOFT_TISSUE_WINDOW_HU
    else:
        low, high = (float(value) for value in np.percentile(grey[:: max(1, grey.shape[0] // 200)], (0.5, 99.5)))
    scaled = np.clip((grey - low) / max(high - low, 1e-6), 0, 1)
    return np.repeat((scaled * 255).astype(np.uint8)[..., None], 3, axis=-1)


def make_panels(
    picture: np.ndarray,
    masks: np.ndarray,
    boxes: Sequence[DrawnBox],
    spacing: Sequence[float] | None,
    has_orientation: bool,
) -> list[Panel]:
    """One panel of a 2D image; of a volume axial, coronal and sagittal planes through what was found.

    Args:
        picture: (H, W[, D], 3) uint8.
        masks: (K, H, W[, D]) bool.
        boxes: in the same axes.
        spacing: of rows, columns and slices.
        has_orientation: whether the axes are anatomical (LPS).
    """
    dims = picture.ndim - 1
    size = tuple(spacing) if spacing and len(spacing) == dims else (1.0,) * dims
    if dims == 2:
        image_boxes = tuple((m.box[0], m.box[1], m.box[2], m.box[3], m.class_index, m.score) for m in boxes)
        return [Panel("", picture, masks, image_boxes, (size[0], size[1]))]
    centre = _find_centre(masks, boxes, picture.shape[:3])
    return [_make_plane_panel(picture, masks, boxes, size, axis, centre[axis], has_orientation) for axis in (2, 0, 1)]


def _find_centre(masks: np.ndarray, boxes: Sequence[DrawnBox], shape: Sequence[int]) -> list[int]:
    """Where the planes cross: the masks' centre of mass, else the surest box, else the middle."""
    union = masks.any(axis=0)
    if union.any():
        centre = []
        for axis in range(3):
            profile = union.sum(axis=tuple(other_axis for other_axis in range(3) if other_axis != axis))
            middle = round(float((profile * np.arange(len(profile))).sum() / profile.sum()))
            centre.append(middle if profile[middle] else int(profile.argmax()))
        return centre
    if boxes:
        best = max(boxes, key=lambda item: 1.0 if item.score is None else item.score).box
        return [min(max(int((best[i] + best[i + 3]) / 2), 0), shape[i] - 1) for i in range(3)]
    return [size // 2 for size in shape]


_ANATOMICAL_NAMES = {2: "axial", 0: "coronal", 1: "sagittal"}
_AXIS_NAMES = {2: "slice", 0: "row", 1: "column"}


def _make_plane_panel(
    picture: np.ndarray,
    masks: np.ndarray,
    boxes: Sequence[DrawnBox],
    size: Sequence[float],
    axis: int,
    slice_index: int,
    has_orientation: bool,
) -> Panel:
    """A plane across `axis`. Axial: rows down, columns right; the others with the slices going up (head on top)."""
    title = f"{_ANATOMICAL_NAMES[axis]}, slice {slice_index + 1} of {picture.shape[axis]}"
    if not has_orientation:
        title = f"{_AXIS_NAMES[axis]} {slice_index + 1} of {picture.shape[axis]}"
    plane_pixels, plane_masks = np.take(picture, slice_index, axis=axis), np.take(masks, slice_index, axis=axis + 1)
    in_plane_axes = [other_axis for other_axis in range(3) if other_axis != axis]
    plane_boxes = []
    for item in boxes:
        low, high = item.box[:3], item.box[3:]
        if low[axis] <= slice_index + 1 and high[axis] >= slice_index:
            plane_boxes.append(
                (
                    low[in_plane_axes[0]],
                    low[in_plane_axes[1]],
                    high[in_plane_axes[0]],
                    high[in_plane_axes[1]],
                    item.class_index,
                    item.score,
                )
            )
    if axis == 2:
        return Panel(title, plane_pixels, plane_masks, tuple(plane_boxes), (size[0], size[1]))
    n_slices = picture.shape[2]
    rotated_boxes = [
        (n_slices - d1, r0, n_slices - d0, r1, class_index, score) for r0, d0, r1, d1, class_index, score in plane_boxes
    ]
    picture_up = np.ascontiguousarray(plane_pixels.transpose(1, 0, 2)[::-1])
    masks_up = np.ascontiguousarray(plane_masks.transpose(0, 2, 1)[:, ::-1])
    return Panel(title, picture_up, masks_up, tuple(rotated_boxes), (size[2], size[in_plane_axes[0]]))
