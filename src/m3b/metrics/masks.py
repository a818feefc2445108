"""Metrics of masks: Dice, normalised surface distance and 95 % Hausdorff distance, of an image and over many.

Masks are measured one image at a time (`measure_masks`) and only the values are kept, so a set of masks never has to
fit into memory. SciPy is imported when a mask is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from m3b.metrics.bootstrap import Estimator, point_estimates, weighted_means
from m3b.metrics.cases import Floats
from m3b.metrics.metric_tables import lower_is_better

MASK_METRICS: dict[str, tuple[str, ...]] = {
    "dice": ("DSC", "Dice score", "Dice coefficient", "mean Dice", "Dice similarity coefficient", "Sørensen-Dice"),
    "nsd": ("normalised surface distance", "normalized surface distance", "surface Dice", "normalised surface Dice"),
    "hd95": ("95 % Hausdorff distance", "HD 95", "Hausdorff 95", "Hausdorff distance 95", "robust Hausdorff distance"),
}
"""Names of the metrics of masks with their aliases, as in a `MetricTable`."""
MASK_METRIC_TITLES = {"dice": "Dice", "nsd": "Surface Dice (NSD)", "hd95": "HD95"}

Mask = NDArray[np.bool_]
_Point = tuple[float, float, float]


def _crossings(code: int, fixed: int, face_side: int) -> list[tuple[_Point, _Point]]:
    """Return the segments of the surface on one face of the unit cube.

    Seen from outside, each has the inside on its left.

    A face with two inside corners on a diagonal can be drawn in two ways. The one that keeps them apart is chosen, from
    both sides of the face, so the surface has no holes.
    """
    first, second = ((fixed + 1) % 3, (fixed + 2) % 3) if face_side else ((fixed + 2) % 3, (fixed + 1) % 3)
    corners = []
    for a, b in ((0, 0), (1, 0), (1, 1), (0, 1)):  # counter-clockwise seen from outside
        corner = [0, 0, 0]
        corner[fixed], corner[first], corner[second] = face_side, a, b
        corners.append((corner, bool(code >> (4 * corner[0] + 2 * corner[1] + corner[2]) & 1)))
    midpoints, enters = [], []
    for (start, start_inside), (end, end_inside) in zip(corners, corners[1:] + corners[:1], strict=True):
        if start_inside != end_inside:
            midpoints.append((start[0] / 2 + end[0] / 2, start[1] / 2 + end[1] / 2, start[2] / 2 + end[2] / 2))
            enters.append(end_inside)
    count = len(midpoints)
    return [(midpoints[k], midpoints[(k + 1) % count]) for k in range(count) if enters[k]]


def _loops(code: int) -> list[list[_Point]]:
    """Return the closed polygons in which the surface cuts the cube."""
    follow: dict[_Point, _Point] = {}
    for fixed, face_side in product(range(3), (0, 1)):
        for start, end in _crossings(code, fixed, face_side):
            follow[start] = end
    loops = []
    while follow:
        start, point = follow.popitem()
        loop = [start]
        while point != start:
            loop.append(point)
            point = follow.pop(point)
        loops.append(loop)
    return loops


@lru_cache(maxsize=64)
def _surface_area_table(spacing: tuple[float, ...]) -> Floats:
    """Return corner code -> area in mm2 (3D) or length in mm (2D). A polygon is a fan of triangles from its centre."""
    is_2d = len(spacing) == 2
    scale = np.array((1.0, *spacing) if is_2d else spacing)
    table = np.zeros(16 if is_2d else 256)
    for code in range(len(table)):
        if is_2d:
            pairs = _crossings(code | code << 4, 0, 1)
            table[code] = sum(float(np.linalg.norm((np.array(a) - np.array(b)) * scale)) for a, b in pairs)
            continue
        for loop in _loops(code):
            points = np.array(loop) * scale
            spokes = points - points.mean(axis=0)
            table[code] += float(np.linalg.norm(np.cross(spokes, np.roll(spokes, -1, axis=0)), axis=1).sum() / 2)
    return table


def surface_elements(mask: Mask, spacing: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Return the positions and sizes of the surface elements.

    Args:
        mask: 2D or 3D; outside the image is background.
        spacing: of the voxels in mm, one for each axis.

    Returns:
        (elements, axes) positions in mm from the first voxel's centre; (elements,) areas in mm2 (2D: lengths in mm).
    """
    from scipy import ndimage

    dimensions = mask.ndim
    box = ndimage.find_objects(mask.astype(np.uint8))
    if not box or box[0] is None:
        return np.empty((0, dimensions)), np.empty(0)
    padded = np.pad(mask[box[0]], 1).astype(np.uint8)
    code = np.zeros(tuple(size - 1 for size in padded.shape), dtype=np.uint8)
    for bit, corner in enumerate(product((0, 1), repeat=dimensions)):
        window = tuple(slice(step, step + size) for step, size in zip(corner, code.shape, strict=True))
        code |= padded[window] << bit
    full = (1 << 2**dimensions) - 1
    surface_cells = np.nonzero((code != 0) & (code != full))
    origin = np.array([part.start for part in box[0]]) - 0.5
    return (np.stack(surface_cells, axis=1) + origin) * np.array(spacing), _surface_area_table(spacing)[
        code[surface_cells]
    ]


def border_voxels(mask: Mask, spacing: tuple[float, ...]) -> Floats:
    """Return (voxels, axes) positions in mm of mask voxels with a face on the background or the image border."""
    from scipy import ndimage

    inner = ndimage.binary_erosion(mask, border_value=0)
    return np.asarray(np.argwhere(mask & ~inner) * np.array(spacing), dtype=np.float64)


def nearest_distances(points: Floats, targets: Floats) -> Floats:
    """Return (points,) the distance of each point to the nearest target, mm."""
    from scipy.spatial import cKDTree

    distances, _ = cKDTree(targets, balanced_tree=False, compact_nodes=False).query(points)  # faster to build
    return np.asarray(distances, dtype=np.float64)


def nsd(prediction: Mask, reference: Mask, spacing: tuple[float, ...], tolerance: float) -> float:
    """Return the normalised surface distance: share of both surfaces, by area, within `tolerance` mm of the other one.

    (area of the prediction's surface near the reference's + the reverse) / (area of both), Nikolov et al. 2018.
    Neither mask may be empty.
    """
    predicted_points, predicted_areas = surface_elements(prediction, spacing)
    reference_points, reference_areas = surface_elements(reference, spacing)
    limit = tolerance + 1e-9
    near_area = (
        predicted_areas[nearest_distances(predicted_points, reference_points) <= limit].sum()
        + reference_areas[nearest_distances(reference_points, predicted_points) <= limit].sum()
    )
    return float(near_area / (predicted_areas.sum() + reference_areas.sum()))


def hd95(prediction: Mask, reference: Mask, spacing: tuple[float, ...]) -> float:
    """Return the 95 % Hausdorff distance in mm: the larger of the two directed 95th percentiles between border voxels.

    Huttenlocher et al., IEEE PAMI 15 (1993), with the percentile in place of the maximum, interpolated between
    neighbouring values. Neither mask may be empty.
    """
    predicted_points, reference_points = border_voxels(prediction, spacing), border_voxels(reference, spacing)
    return float(
        max(
            np.percentile(nearest_distances(predicted_points, reference_points), 95),
            np.percentile(nearest_distances(reference_points, predicted_points), 95),
        )
    )


TOLERANCE_MM = 1.0
MAX_HD95_MM = 373.13
"""HD95 of a structure that is missed or invented, and the most that any HD95 counts in a mean: that of the BraTS challenges, the
diagonal of their volumes of 240 x 240 x 155 mm (Bakas et al., arXiv 1811.02629). One number for all images: the diagonal of each image
would make a figure depend on the field of view."""

Labels = Mapping[str, int | Sequence[int]]
"""Label -> its number in the mask, or several numbers that together are one region."""


@dataclass(frozen=True, slots=True)
class LabelMetrics:
    """Metrics of one label in one image.

    Args:
        dice: 0 to 1; NaN if prediction and reference are both empty.
        nsd: likewise.
        hd95: mm; NaN if both are empty, infinite if one is.
        reference: voxels of the reference.
        prediction: voxels of the prediction.
        max_distance: the most that `hd95` counts in a mean.
    """

    dice: float
    nsd: float
    hd95: float
    reference: int
    prediction: int
    max_distance: float

    def value(self, metric: str) -> float:
        """Return a value that can be averaged: an infinite distance counts as `max_distance`."""
        value = float(getattr(self, metric))
        return min(value, self.max_distance) if metric == "hd95" and not math.isnan(value) else value


def measure_mask(
    prediction: Mask,
    reference: Mask,
    spacing: Sequence[float] | None,
    tolerance: float = TOLERANCE_MM,
    ignored: Mask | None = None,
) -> LabelMetrics:
    """Measure one label.

    Dice = 2 |A and B| / (|A| + |B|) (Dice, Ecology 26, 1945); NSD and HD95 as in `nsd` and `hd95`. If both masks are
    empty, all three are undefined (NaN). If one is empty: Dice 0, NSD 0, HD95 infinite. A volume of one slice is
    measured as a 2D image.

    Args:
        prediction: boolean, 2D or 3D.
        reference: boolean, the same shape.
        spacing: mm, one for each axis; None if unknown: distances are in pixels, and count as the image's diagonal at most.
        tolerance: of the NSD, mm.
        ignored: pixels that nobody labelled: both masks are taken as background there, so that structures end at their border.

    Raises:
        ValueError: the shapes differ or are not 2D or 3D, or a spacing or the tolerance is not a positive number.
    """
    max_distance = math.hypot(*reference.shape) if spacing is None else MAX_HD95_MM
    spacing = (1.0,) * reference.ndim if spacing is None else spacing
    _check_geometry(prediction.shape, reference.shape, spacing, tolerance)
    prediction, reference = clear_ignored(ignored, prediction, reference)
    n_predicted, n_reference = int(np.count_nonzero(prediction)), int(np.count_nonzero(reference))
    if not n_predicted or not n_reference:
        empty_score = math.nan if n_predicted == n_reference else 0.0
        distance = math.nan if n_predicted == n_reference else math.inf
        return LabelMetrics(empty_score, empty_score, distance, n_reference, n_predicted, max_distance)
    dice = 2 * int(np.count_nonzero(prediction & reference)) / (n_predicted + n_reference)
    steps = tuple(float(step) for step in spacing)
    if reference.ndim == 3 and 1 in reference.shape:
        flat_axis = reference.shape.index(1)
        prediction, reference = prediction.squeeze(flat_axis), reference.squeeze(flat_axis)
        steps = steps[:flat_axis] + steps[flat_axis + 1 :]
    window = joint_bounding_box(prediction, reference)
    prediction, reference = prediction[window], reference[window]
    return LabelMetrics(
        dice,
        nsd(prediction, reference, steps, tolerance),
        hd95(prediction, reference, steps),
        n_reference,
        n_predicted,
        max_distance,
    )


def clear_ignored(ignored: Mask | None, *masks: Mask) -> tuple[Mask, ...]:
    """Return boolean masks that are False in `ignored`, which has the shape of their last axes.

    Raises:
        ValueError: it has not.
    """
    if ignored is None:
        return masks
    if any(mask.shape[mask.ndim - ignored.ndim :] != ignored.shape for mask in masks):
        raise ValueError(f"the shape {ignored.shape} of the ignored pixels differs from the masks': {masks[0].shape}")
    return tuple(mask & ~ignored for mask in masks)


def joint_bounding_box(first: Mask, second: Mask) -> tuple[slice, ...]:
    """Return the box that holds both masks: metrics are the same inside it, and faster to compute."""
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
    """Return a label mask as integers.

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
    spacing: Sequence[float] | None,
    tolerance: float = TOLERANCE_MM,
    ignored: Mask | None = None,
) -> dict[str, LabelMetrics]:
    """Measure every label of one image from two label masks of one shape; return label -> metrics.

    Pixels of `ignored` count in no metric. For classes that overlap, give each class's own mask to `measure_mask`.

    Raises:
        ValueError: as `measure_mask`; fractions in a mask.
    """
    predicted_labels, reference_labels = (
        as_integer_mask(prediction, "prediction"),
        as_integer_mask(reference, "reference"),
    )
    steps = (1.0,) * reference_labels.ndim if spacing is None else spacing
    _check_geometry(predicted_labels.shape, reference_labels.shape, steps, tolerance)
    return {
        name: measure_mask(
            np.isin(predicted_labels, label_value), np.isin(reference_labels, label_value), spacing, tolerance, ignored
        )
        for name, label_value in labels.items()
    }


def empty_prediction_metrics(figures: LabelMetrics) -> LabelMetrics:
    """Return the metrics of an empty prediction for the same reference."""
    if not figures.reference:
        return LabelMetrics(math.nan, math.nan, math.nan, 0, 0, figures.max_distance)
    return LabelMetrics(0.0, 0.0, math.inf, figures.reference, 0, figures.max_distance)


def make_mask_estimator(rows: Sequence[Mapping[str, LabelMetrics]], labels: Sequence[str]) -> Estimator:
    """Return an estimator of Dice, NSD and HD95: (draws, labels) means over the cases with the label in either mask."""
    tables = {name: np.array([[row[label].value(name) for label in labels] for row in rows]) for name in MASK_METRICS}
    return lambda weights: {name: weighted_means(table, weights) for name, table in tables.items()}


def better_value(name: str, first: Floats, second: Floats | None) -> Floats:
    """Return the better of two values; a defined value wins over NaN."""
    if second is None:
        return first
    return np.fmin(first, second) if lower_is_better(name) else np.fmax(first, second)


def mask_baseline(
    rows: Sequence[Mapping[str, LabelMetrics]],
    labels: Sequence[str],
    baseline_rows: Sequence[Mapping[str, LabelMetrics]] | None = None,
) -> dict[str, Floats]:
    """Return metric -> (labels,) the better of marking nothing and an image-blind baseline such as the mean shape."""
    empty_rows = [{label: empty_prediction_metrics(figures) for label, figures in row.items()} for row in rows]
    empty_values = point_estimates(make_mask_estimator(empty_rows, labels), len(rows))
    baseline_values = (
        point_estimates(make_mask_estimator(baseline_rows, labels), len(baseline_rows)) if baseline_rows else {}
    )
    return {name: better_value(name, value, baseline_values.get(name)) for name, value in empty_values.items()}


def make_mask_baseline_estimators(
    rows: Sequence[Mapping[str, LabelMetrics]],
    labels: Sequence[str],
    baseline_rows: Sequence[Mapping[str, LabelMetrics]] | None = None,
) -> list[Estimator]:
    """Return estimators of the baselines that `mask_baseline` compares."""
    empty_rows = [{label: empty_prediction_metrics(figures) for label, figures in row.items()} for row in rows]
    return [make_mask_estimator(answer, labels) for answer in (empty_rows, baseline_rows) if answer]


def check_labels(cases: Sequence[Any], labels: Sequence[str], field: str = "figures") -> None:
    """Check that every case has every label.

    Raises:
        ValueError: for the first case and label that is missing or unknown.
    """
    for number, case in enumerate(cases):
        mismatched = sorted(set(labels) ^ set(getattr(case, field)))
        if mismatched:
            problem = "no figures for" if mismatched[0] in labels else "figures for the unknown"
            raise ValueError(
                f"case {number} ({case.image}): {problem} label {mismatched[0]!r}; the labels are {list(labels)}"
            )


def mask_details(rows: Sequence[Mapping[str, LabelMetrics]], labels: Sequence[str]) -> dict[str, Any]:
    """Return for each label in how many cases it was missed entirely or invented, and the mean HD95 of the others."""
    distances = {k: [row[k].value("hd95") for row in rows if math.isfinite(row[k].hd95)] for k in labels}
    return {
        "hd95_found": {k: float(np.mean(values)) if values else None for k, values in distances.items()},
        "missed": {k: sum(row[k].reference > 0 and not row[k].prediction for row in rows) for k in labels},
        "invented": {k: sum(row[k].prediction > 0 and not row[k].reference for row in rows) for k in labels},
    }
