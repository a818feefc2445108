"""Lesions as connected components of masks, matched by a stated rule and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.cases import Floats, divide
from m3b.metrics.instances import clear_mostly_ignored
from m3b.metrics.masks import TOLERANCE_MM, LabelMetrics, Mask, measure_mask

IOU = "iou"
OVERLAP = "overlap"
MIN_IOU = 0.1


@dataclass(frozen=True)
class LesionCounts:
    """Lesions of one class in one image.

    Args:
        detected: reference lesions that were detected.
        missed: reference lesions that were not.
        right: predicted lesions that match a reference lesion.
        wrong: predicted lesions that match none.
        rule: how they were matched, "iou" or "overlap".
    """

    detected: int
    missed: int
    right: int
    wrong: int
    rule: str = IOU

    def to_list(self) -> list[int]:
        """Return the four counts."""
        return [self.detected, self.missed, self.right, self.wrong]

    def for_everything_marked(self) -> LesionCounts:
        """Return the counts of a prediction that marks the whole image as one lesion.

        Under the overlap rule it detects everything; by IoU it is assumed to detect nothing.
        """
        lesions = self.detected + self.missed
        is_hit = lesions > 0 and self.rule == OVERLAP
        return LesionCounts(lesions if is_hit else 0, 0 if is_hit else lesions, int(is_hit), int(not is_hit), self.rule)


def label_components(mask: Mask) -> tuple[NDArray[np.int32], int]:
    """Number the lesions of a mask from 1; voxels that touch at a face, an edge or a corner belong together."""
    from scipy import ndimage

    labelled, count = ndimage.label(mask, structure=np.ones((3,) * mask.ndim))
    return np.asarray(labelled, dtype=np.int32), int(count)


def match_lesions(prediction: Mask, reference: Mask, rule: str = IOU, min_iou: float = MIN_IOU) -> LesionCounts:
    """Count detected, missed, right and wrong lesions.

    Rule "iou": lesions are paired one to one, each pair with an intersection over union of at least `min_iou`, as many
    pairs as possible. Rule "overlap": a lesion counts as soon as one voxel lies in any lesion of the other mask (as in
    the ISBI 2015 MS lesion challenge; Carass et al., NeuroImage 148, 2017). The second rule is won by marking
    everything, so it is not the default and its baseline says so.

    Args:
        prediction: boolean, of one class.
        reference: boolean, the same shape.
        rule: "iou" or "overlap".
        min_iou: smallest IoU of a pair, above 0 and up to 1.

    Raises:
        ValueError: the shapes differ, the rule is unknown, or the IoU is out of range.
    """
    if prediction.shape != reference.shape:
        raise ValueError(f"the prediction's shape {prediction.shape} differs from the reference's {reference.shape}")
    if rule not in (IOU, OVERLAP):
        raise ValueError(f"unknown rule {rule!r} for matching lesions; it is {IOU!r} or {OVERLAP!r}")
    if not 0 < min_iou <= 1:
        raise ValueError(f"the smallest IoU {min_iou} is not above 0 and up to 1")
    (predicted_labels, n_predicted), (true_labels, n_true) = label_components(prediction), label_components(reference)
    is_overlap = (predicted_labels > 0) & (true_labels > 0)
    pairs, shared = np.unique(
        np.stack([predicted_labels[is_overlap], true_labels[is_overlap]]), axis=1, return_counts=True
    )
    if rule == OVERLAP:
        n_matched, n_detected = len(np.unique(pairs[0])), len(np.unique(pairs[1]))
    else:
        n_matched = n_detected = _count_matches(
            pairs, shared, np.bincount(predicted_labels.ravel()), np.bincount(true_labels.ravel()), min_iou
        )
    return LesionCounts(n_detected, n_true - n_detected, n_matched, n_predicted - n_matched, rule)


def _count_matches(
    pairs: NDArray[np.int32],
    shared: NDArray[np.int64],
    predicted_sizes: NDArray[np.int64],
    true_sizes: NDArray[np.int64],
    min_iou: float,
) -> int:
    """Return the size of the largest one-to-one matching among the overlapping pairs with enough IoU."""
    from scipy import sparse

    iou = shared / (predicted_sizes[pairs[0]] + true_sizes[pairs[1]] - shared)
    rows, columns = pairs[:, iou >= min_iou - 1e-12]
    graph = sparse.csr_matrix(
        (np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(len(predicted_sizes), len(true_sizes))
    )
    partner = sparse.csgraph.maximum_bipartite_matching(graph, perm_type="column")
    return int((partner >= 0).sum())


def measure_channels(
    prediction: Mask,
    reference: Mask,
    classes: Sequence[str],
    spacing: Sequence[float] | None,
    *,
    rule: str = IOU,
    min_iou: float = MIN_IOU,
    tolerance: float = TOLERANCE_MM,
    ignored: Mask | None = None,
) -> tuple[dict[str, LabelMetrics], dict[str, LesionCounts]]:
    """Measure masks with a channel for each class, which may overlap: class -> metrics, class -> lesions.

    Args:
        prediction: (classes, *image) boolean.
        reference: the same shape.
        classes: names of the channels.
        spacing: mm, one for each axis of the image; None: in pixels, as `measure_mask`.
        rule: how lesions are matched, with `min_iou` (see `match_lesions`).
        tolerance: of the NSD, mm.
        ignored: pixels of the image that count in no metric and no lesion (`clear_mostly_ignored`).

    Raises:
        ValueError: the shapes differ from each other or from the number of classes.
    """
    if prediction.shape != reference.shape or len(reference) != len(classes):
        raise ValueError(
            f"masks of shapes {prediction.shape} (prediction) and {reference.shape} (reference) for "
            f"{len(classes)} classes: both need one channel for each class, first axis"
        )
    figures, lesions = {}, {}
    for name, predicted_mask, reference_mask in zip(
        classes, prediction.astype(bool), reference.astype(bool), strict=True
    ):
        figures[name] = measure_mask(predicted_mask, reference_mask, spacing, tolerance, ignored)
        lesions[name] = match_lesions(*clear_mostly_ignored(predicted_mask, reference_mask, ignored), rule, min_iou)
    return figures, lesions


def lesion_rates(totals: Floats) -> dict[str, Floats]:
    """Return lesion-wise F1, precision and recall from sums of counts (..., 4).

    recall = detected / (detected + missed), undefined without reference lesions; precision = right / (right + wrong), 0
    if nothing is predicted although there are lesions; F1 = 2 P R / (P + R), 0 if either is 0 or there is only one kind
    of lesion, undefined if there is neither.
    """
    detected, missed, true_predictions, false_predictions = (totals[..., k] for k in range(4))
    n_reference, n_predicted = detected + missed, true_predictions + false_predictions
    recall = divide(detected, n_reference)
    precision = np.where((n_predicted == 0) & (n_reference > 0), 0.0, divide(true_predictions, n_predicted))
    product, total = np.nan_to_num(precision) * np.nan_to_num(recall), np.nan_to_num(precision) + np.nan_to_num(recall)
    f1 = np.where(n_reference + n_predicted > 0, np.nan_to_num(divide(2 * product, total)), np.nan)
    return {"lesion_f1": f1, "lesion_precision": precision, "lesion_recall": recall}
