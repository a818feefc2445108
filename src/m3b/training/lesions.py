"""Lesions of a mask one by one: numbered, measured, matched to the true ones, and cleaned of specks.

A lesion is a connected component; pixels that touch at a face, an edge or a corner belong together. Found and true
lesions are matched one to one with an intersection over union of at least 0.1, as many pairs as there can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import ndimage, sparse

MIN_IOU = 0.1


def components(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """int32 array of the mask's shape with lesions numbered from 1, and how many there are."""
    numbered, count = ndimage.label(mask, structure=np.ones((3,) * mask.ndim))
    return np.asarray(numbered, np.int32), int(count)


def drop_small(mask: np.ndarray, least: int) -> np.ndarray:
    """The boolean mask without lesions of fewer than `least` voxels."""
    if least <= 1 or not mask.any():
        return mask
    numbered, _ = components(mask)
    keep = np.bincount(numbered.ravel()) >= least
    keep[0] = False
    result: np.ndarray = keep[numbered]
    return result


def lesion_counts(found: np.ndarray, true: np.ndarray, least: float = MIN_IOU) -> np.ndarray:
    """(matched pairs, found lesions, true lesions) of two boolean masks of one class."""
    (ours, n_ours), (theirs, n_theirs) = components(found), components(true)
    return np.array([match_numbered(ours, theirs, least), n_ours, n_theirs], np.int64)


def match_numbered(ours: np.ndarray, theirs: np.ndarray, least: float = MIN_IOU) -> int:
    """Size of the largest one-to-one matching between two arrays of numbered lesions."""
    both = (ours > 0) & (theirs > 0)
    pairs, shared = np.unique(np.stack([ours[both], theirs[both]]), axis=1, return_counts=True)
    sizes, their_sizes = np.bincount(ours.ravel()), np.bincount(theirs.ravel())
    iou = shared / (sizes[pairs[0]] + their_sizes[pairs[1]] - shared)
    rows, columns = pairs[:, iou >= least - 1e-12]
    ones = np.ones(len(rows), np.int8)
    graph = sparse.csr_matrix((ones, (rows, columns)), shape=(len(sizes), len(their_sizes)))
    partner = sparse.csgraph.maximum_bipartite_matching(graph, perm_type="column")
    return int((partner >= 0).sum())


def lesion_f1(counts: np.ndarray) -> float:
    """2 x matched / (found + true); NaN where there is neither. `counts` sums rows of `lesion_counts`."""
    matched, found, true = (float(v) for v in counts)
    return 2 * matched / (found + true) if found + true else float("nan")


def dice(found: np.ndarray, true: np.ndarray) -> float:
    """Dice of two boolean masks; NaN where both are empty."""
    total = int(found.sum()) + int(true.sum())
    return 2.0 * float((found & true).sum()) / total if total else float("nan")


def lesion_boxes(mask: np.ndarray, probability: np.ndarray | None = None) -> list[tuple[tuple[float, ...], float]]:
    """One ((lower corner, upper corner), score) a lesion, in array coordinates: pixels 2..4 are 2 to 5.

    The score is the mean of the upper half of the lesion's probabilities, 1 without probabilities.
    """
    numbered, _ = components(mask)
    boxes = []
    for number, place in enumerate(ndimage.find_objects(numbered), start=1):
        corners = (*(float(part.start) for part in place), *(float(part.stop) for part in place))
        score = 1.0
        if probability is not None:
            values = np.sort(probability[place][numbered[place] == number])
            score = float(values[len(values) // 2 :].mean())
        boxes.append((corners, score))
    return boxes


def mean_figure(values: Sequence[float] | Mapping[str, float]) -> float:
    """Mean of the defined values; NaN if there is none."""
    table = np.array(list(values.values()) if isinstance(values, Mapping) else list(values), float)
    table = table[np.isfinite(table)]
    return float(table.mean()) if len(table) else float("nan")
