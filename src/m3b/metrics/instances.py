"""Metrics of masks that consist of many instances, such as nuclei: panoptic quality, and AP of instances at IoU 0.5.

SciPy is imported when instances are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.bootstrap import Estimator, weighted_means
from m3b.metrics.cases import Floats, divide
from m3b.metrics.masks import Mask, clear_ignored, joint_bounding_box

INSTANCE_METRICS: dict[str, tuple[str, ...]] = {
    "pq": ("panoptic quality",),
    "instance_ap50": ("instance AP50", "AP50 of instances", "instance AP at IoU 0.5", "DSB2018 AP50"),
}
"""Names of the metrics of instances with their aliases, as in a `MetricTable`."""
INSTANCE_METRIC_TITLES = {"pq": "Panoptic quality (PQ)", "instance_ap50": "AP50 of instances"}
MIN_INSTANCES = 5
"""Median number of true instances of a label in an image from which its masks consist of many instances."""
_MIN_IOU = 0.5
MAX_IGNORED_SHARE = 0.5
"""Share of ignored pixels above which a predicted object without a partner is not counted (Kirillov et al., CVPR 2019)."""


@dataclass(frozen=True, slots=True)
class InstanceCounts:
    """Instances of one label in one image.

    Args:
        iou_sum: sum of the IoU of the matched pairs.
        matched: pairs of a predicted and a true instance with an IoU above 0.5.
        invented: predicted instances without a partner.
        missed: true instances without a partner.
    """

    iou_sum: float
    matched: int
    invented: int
    missed: int

    def to_list(self) -> list[float]:
        """Return the values in the order of the fields."""
        return [self.iou_sum, self.matched, self.invented, self.missed]

    def without_prediction(self) -> InstanceCounts:
        """Return the counts of an empty prediction for the same truth."""
        return InstanceCounts(0.0, 0, 0, self.matched + self.missed)


def label_instances(mask: NDArray[Any]) -> NDArray[Any]:
    """Return instance numbers of a boolean mask: its connected components, neighbours by faces, edges and corners."""
    from scipy import ndimage

    numbers: NDArray[Any] = ndimage.label(mask, np.ones((3,) * mask.ndim))[0]
    return numbers


def match_instances(predicted: NDArray[Any], reference: NDArray[Any]) -> InstanceCounts:
    """Match the instances of two arrays of instance numbers (0: background) by an IoU above 0.5.

    No instance has two such partners (Kirillov et al., CVPR 2019).

    Raises:
        ValueError: the shapes differ.
    """
    if predicted.shape != reference.shape:
        raise ValueError(f"instances of the shapes {predicted.shape} and {reference.shape} cannot be matched")
    predicted_values, predicted_sizes = np.unique(predicted[predicted > 0], return_counts=True)
    reference_values, reference_sizes = np.unique(reference[reference > 0], return_counts=True)
    both = (predicted > 0) & (reference > 0)
    pairs, shared = np.unique(np.stack([predicted[both], reference[both]]), axis=1, return_counts=True)
    sizes = (
        predicted_sizes[np.searchsorted(predicted_values, pairs[0])]
        + reference_sizes[np.searchsorted(reference_values, pairs[1])]
    )
    iou = shared / (sizes - shared)
    matched_iou = iou[iou > _MIN_IOU]
    count = len(matched_iou)
    return InstanceCounts(float(matched_iou.sum()), count, len(predicted_values) - count, len(reference_values) - count)


def count_instances(prediction: NDArray[Any], reference: NDArray[Any], ignored: Mask | None = None) -> InstanceCounts:
    """Match the connected components of two boolean masks of one shape outside of the `ignored` pixels."""
    prediction, reference = clear_mostly_ignored(prediction, reference, ignored)
    if not prediction.any() and not reference.any():
        return InstanceCounts(0.0, 0, 0, 0)
    box = joint_bounding_box(prediction, reference)
    return match_instances(label_instances(prediction[box]), label_instances(reference[box]))


def clear_mostly_ignored(prediction: Mask, reference: Mask, ignored: Mask | None) -> tuple[Mask, Mask]:
    """Return both masks without the ignored pixels.

    The prediction also loses connected components that touch no reference and have more than `MAX_IGNORED_SHARE` of their pixels in
    them: nobody knows what they are.
    """
    cleared, reference = clear_ignored(ignored, prediction, reference)
    if ignored is None or not (prediction & ignored).any():
        return cleared, reference
    numbers = label_instances(prediction)
    size, ignored_size, hits = (np.bincount(numbers[part], minlength=numbers.max() + 1)
                                for part in (prediction, prediction & ignored, prediction & reference))  # fmt: skip
    is_unknown = (ignored_size > MAX_IGNORED_SHARE * size) & (hits == 0)
    return cleared & ~is_unknown[numbers], reference


def has_many_instances(rows: Sequence[Mapping[str, InstanceCounts]], labels: Sequence[str]) -> bool:
    """Return whether the true masks of any label consist of many instances in the median image that has the label."""
    for label in labels:
        counts = [row[label].matched + row[label].missed for row in rows]
        if any(counts) and np.median([count for count in counts if count]) >= MIN_INSTANCES:
            return True
    return False


def make_instance_estimator(rows: Sequence[Mapping[str, InstanceCounts]], labels: Sequence[str]) -> Estimator:
    """Return an estimator of (draws, labels) PQ over all instances, and of the mean AP50 of the images.

    PQ = sum of IoU / (matched + invented / 2 + missed / 2), Kirillov et al., CVPR 2019; AP50 of an image = matched /
    (matched + invented + missed), Caicedo et al., Nature Methods 16 (2019). An image without instances is left out.
    """
    table = np.array([[row[label].to_list() for label in labels] for row in rows], dtype=np.float64)
    iou_sum, matched, invented, missed = np.moveaxis(table, -1, 0)

    def estimate(weights: Floats) -> dict[str, Floats]:
        average_precision = divide(matched, matched + invented + missed)
        pq = divide(weights @ iou_sum, weights @ (matched + (invented + missed) / 2))
        return {"pq": pq, "instance_ap50": weighted_means(average_precision, weights)}

    return estimate
