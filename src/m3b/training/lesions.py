"""Lesions of a mask: connected components, their boxes, matching with true lesions, removal of small ones.

Pixels that touch at a face, an edge or a corner belong to the same lesion. Predicted and true lesions are matched one to one with an
intersection over union of at least 0.1, in the largest possible matching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import ndimage, sparse

MIN_IOU = 0.1


def label_lesions(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """Return an int32 array of the mask's shape with lesions numbered from 1, and their count."""
    labels, count = ndimage.label(mask, structure=np.ones((3,) * mask.ndim))
    return np.asarray(labels, np.int32), int(count)


def remove_small_lesions(mask: np.ndarray, min_voxels: int) -> np.ndarray:
    """Return the boolean mask without lesions of fewer than `min_voxels` voxels."""
    if min_voxels <= 1 or not mask.any():
        return mask
    labels, _ = label_lesions(mask)
    is_kept = np.bincount(labels.ravel()) >= min_voxels
    is_kept[0] = False
    result: np.ndarray = is_kept[labels]
    return result


def lesion_counts(predicted: np.ndarray, true: np.ndarray, min_iou: float = MIN_IOU) -> np.ndarray:
    """Return (matched pairs, predicted lesions, true lesions) of two boolean masks of one class."""
    (predicted_labels, predicted_count), (true_labels, true_count) = label_lesions(predicted), label_lesions(true)
    matched = count_lesion_matches(predicted_labels, true_labels, min_iou)
    return np.array([matched, predicted_count, true_count], np.int64)


def count_lesion_matches(predicted_labels: np.ndarray, true_labels: np.ndarray, min_iou: float = MIN_IOU) -> int:
    """Return the size of the largest one-to-one matching between two arrays of numbered lesions."""
    overlap = (predicted_labels > 0) & (true_labels > 0)
    stacked = np.stack([predicted_labels[overlap], true_labels[overlap]])
    pairs, intersections = np.unique(stacked, axis=1, return_counts=True)
    predicted_sizes, true_sizes = np.bincount(predicted_labels.ravel()), np.bincount(true_labels.ravel())
    iou = intersections / (predicted_sizes[pairs[0]] + true_sizes[pairs[1]] - intersections)
    rows, columns = pairs[:, iou >= min_iou - 1e-12]
    ones = np.ones(len(rows), np.int8)
    graph = sparse.csr_matrix((ones, (rows, columns)), shape=(len(predicted_sizes), len(true_sizes)))
    partner = sparse.csgraph.maximum_bipartite_matching(graph, perm_type="column")
    return int((partner >= 0).sum())


def lesion_f1(counts: np.ndarray) -> float:
    """Return 2 x matched / (predicted + true); NaN if there are no lesions. `counts` is a sum of rows of `lesion_counts`."""
    matched, predicted, true = (float(v) for v in counts)
    return 2 * matched / (predicted + true) if predicted + true else float("nan")


def dice(predicted: np.ndarray, true: np.ndarray) -> float:
    """Return the Dice of two boolean masks; NaN if both are empty."""
    total = int(predicted.sum()) + int(true.sum())
    return 2.0 * float((predicted & true).sum()) / total if total else float("nan")


def lesion_boxes(mask: np.ndarray, probability: np.ndarray | None = None) -> list[tuple[tuple[float, ...], float]]:
    """Return ((lower corner, upper corner), score) for each lesion, in array coordinates: pixels 2..4 are 2 to 5.

    The score is the mean of the upper half of the lesion's probabilities, or 1 without probabilities.
    """
    labels, _ = label_lesions(mask)
    boxes = []
    for number, region in enumerate(ndimage.find_objects(labels), start=1):
        corners = (*(float(extent.start) for extent in region), *(float(extent.stop) for extent in region))
        score = 1.0
        if probability is not None:
            values = np.sort(probability[region][labels[region] == number])
            score = float(values[len(values) // 2 :].mean())
        boxes.append((corners, score))
    return boxes


def mean_defined(values: Sequence[float] | np.ndarray | Mapping[str, float]) -> float:
    """Return the mean of the finite values; NaN if there is none."""
    array = np.array(list(values.values()) if isinstance(values, Mapping) else list(values), float)
    array = array[np.isfinite(array)]
    return float(array.mean()) if len(array) else float("nan")
