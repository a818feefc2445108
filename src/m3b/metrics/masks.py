"""Measure one mask: Dice, normalised surface distance and 95 % Hausdorff distance of one image at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .surfaces import Mask, hd95, nsd

TOLERANCE_MM = 1.0

Labels = Mapping[str, int | Sequence[int]]
"""Label -> its number in the mask, or several numbers that together are one region."""


@dataclass(frozen=True)
class LabelMetrics:
    """One label in one image.

    Args:
        dice: 0 to 1; NaN where prediction and reference are both empty.
        nsd: likewise.
        hd95: mm; NaN where both are empty, infinite where one is.
        reference: voxels of the reference.
        prediction: voxels of the prediction.
        extent: mm between opposite corners of the image, no distance in it is larger; stands for an infinite `hd95`.
    """

    dice: float
    nsd: float
    hd95: float
    reference: int
    prediction: int
    extent: float

    def value(self, metric: str) -> float:
        """A figure that can be averaged: an infinite distance counts as the extent of the image."""
        value = float(getattr(self, metric))
        return self.extent if math.isinf(value) else value


def measure_mask(
    prediction: Mask, reference: Mask, spacing: Sequence[float], tolerance: float = TOLERANCE_MM
) -> LabelMetrics:
    """Measure one label.

    Dice = 2 |A and B| / (|A| + |B|) (Dice, Ecology 26, 1945); NSD and HD95 as in `surfaces`. Both masks empty: all
    three undefined (NaN). One of them empty: Dice 0, NSD 0, HD95 infinite. A volume of one slice
    is measured as an image in 2D.

    Args:
        prediction: boolean, 2D or 3D.
        reference: boolean, the same shape.
        spacing: mm, one for each axis.
        tolerance: of the NSD, mm.

    Raises:
        ValueError: shapes differ, not 2D or 3D, a spacing or tolerance that is not a positive number.
    """
    _check_geometry(prediction.shape, reference.shape, spacing, tolerance)
    extent = math.sqrt(sum((size * step) ** 2 for size, step in zip(reference.shape, spacing, strict=True)))
    n_predicted, n_reference = int(np.count_nonzero(prediction)), int(np.count_nonzero(reference))
    if not n_predicted or not n_reference:
        empty_score = math.nan if n_predicted == n_reference else 0.0
        distance = math.nan if n_predicted == n_reference else math.inf
        return LabelMetrics(empty_score, empty_score, distance, n_reference, n_predicted, extent)
    dice = 2 * int(np.count_nonzero(prediction & reference)) / (n_predicted + n_reference)
    steps = tuple(float(step) for step in spacing)
    if reference.ndim == 3 and 1 in reference.shape:
        flat_axis = reference.shape.index(1)
        prediction, reference = prediction.squeeze(flat_axis), reference.squeeze(flat_axis)
        steps = steps[:flat_axis] + steps[flat_axis + 1 :]
    window = _joint_bounding_box(prediction, reference)
    prediction, reference = prediction[window], reference[window]
    return LabelMetrics(
        dice,
        nsd(prediction, reference, steps, tolerance),
        hd95(prediction, reference, steps),
        n_reference,
        n_predicted,
        extent,
    )


def _joint_bounding_box(first: Mask, second: Mask) -> tuple[slice, ...]:
    """The part of the image that holds both masks: what is measured is the same there, and sooner."""
    box = []
    for axis in range(first.ndim):
        other_axes = tuple(other_axis for other_axis in range(first.ndim) if other_axis != axis)
        occupied = np.flatnonzero(first.any(axis=other_axes) | second.any(axis=other_axes))
        box.append(slice(int(occupied[0]), int(occupied[-1]) + 1))
    return tuple(box)


def _check_geometry(
    prediction_shape: tuple[int, ...], reference_shape: tuple[int, ...], spacing: Sequence[float], tolerance: float
) -> None:
    if prediction_shape != reference_shape:
        raise ValueError(
            f"the prediction's shape {prediction_shape} differs from the reference's {reference_shape}: bring it to that grid"
        )
    if len(reference_shape) not in (2, 3) or 0 in reference_shape:
        raise ValueError(f"masks of 2 or 3 dimensions can be measured, not of shape {reference_shape}")
    if len(spacing) != len(reference_shape) or not all(math.isfinite(step) and step > 0 for step in spacing):
        raise ValueError(f"the spacing {tuple(spacing)} should be {len(reference_shape)} positive numbers of mm")
    if not math.isfinite(tolerance) or tolerance < 0:
        raise ValueError(f"the tolerance {tolerance} should be a number of mm, 0 or more")


def as_integer_mask(mask: ArrayLike, mask_name: str) -> NDArray[Any]:
    """A label mask as integers.

    Raises:
        ValueError: it holds fractions, NaN or anything that is not a number.
    """
    array = np.asarray(mask)
    if array.dtype.kind in "biu":
        return array
    if array.dtype.kind != "f" or not np.array_equal(array, np.floor(array)):
        raise ValueError(f"the {mask_name} is not a mask of whole numbers (dtype {array.dtype})")
    return array.astype(np.int64)


def measure_masks(
    prediction: ArrayLike,
    reference: ArrayLike,
    labels: Labels,
    spacing: Sequence[float],
    tolerance: float = TOLERANCE_MM,
) -> dict[str, LabelMetrics]:
    """Measure every label of one image: two label masks of one shape -> label -> figures.

    For classes that overlap, give each class's own mask to `measure_mask`.

    Raises:
        ValueError: as `measure_mask`; fractions in a mask.
    """
    predicted_labels, reference_labels = (
        as_integer_mask(prediction, "prediction"),
        as_integer_mask(reference, "reference"),
    )
    _check_geometry(predicted_labels.shape, reference_labels.shape, spacing, tolerance)
    return {
        name: measure_mask(
            np.isin(predicted_labels, label_value), np.isin(reference_labels, label_value), spacing, tolerance
        )
        for name, label_value in labels.items()
    }


def empty_prediction_metrics(figures: LabelMetrics) -> LabelMetrics:
    """The figures of an empty prediction for the same reference."""
    if not figures.reference:
        return LabelMetrics(math.nan, math.nan, math.nan, 0, 0, figures.extent)
    return LabelMetrics(0.0, 0.0, math.inf, figures.reference, 0, figures.extent)
