"""Distances from 0 to 1 between two predictions of one model: for an image, and for an altered copy of it.

The look-up control (`m3b.tasks.score_details`) reports the mean of these distances.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from m3b.tasks.aligned_masks import unpack_figures


def probability_distance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the largest difference in the probability of a class."""
    return max((abs(value - second[name]) for name, value in first.items()), default=0.0)


def mask_distance(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the mean difference in Dice with the same true mask, over labels.

    A label with only one of the two Dice values defined counts as 1.
    """
    pairs = [(figures.dice, unpack_figures(second)[name].dice) for name, figures in unpack_figures(first).items()]
    differences = [float(math.isnan(a) != math.isnan(b)) if math.isnan(a + b) else abs(a - b) for a, b in pairs]
    return fmean(differences) if differences else 0.0


def box_distance(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Return one minus the score-weighted overlap of two sets of boxes; 0 if both sets are empty.

    Boxes of one label are paired greedily by IoU. A pair contributes its IoU times the lower of its two scores, counted
    for both boxes; the sum is divided by the total score of all boxes.
    """
    total_score = sum(max(score, 0.0) for _, _, score in (*first, *second))
    if not total_score:
        return 0.0
    pairs = sorted(
        ((_box_iou(a[0], b[0]), n, m) for n, a in enumerate(first) for m, b in enumerate(second) if a[1] == b[1]),
        reverse=True,
    )
    matched: tuple[set[int], set[int]] = (set(), set())
    shared = 0.0
    for overlap, n, m in pairs:
        if n not in matched[0] and m not in matched[1]:
            matched[0].add(n)
            matched[1].add(m)
            shared += 2 * overlap * min(max(first[n][2], 0.0), max(second[m][2], 0.0))
    return float(1.0 - min(shared / total_score, 1.0))


def _box_iou(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the IoU of two boxes (lower corner, then upper corner); 0 for boxes of different dimensions."""
    if len(first) != len(second):
        return 0.0
    half = len(first) // 2

    def box_volume(box: Sequence[float]) -> float:
        edge_lengths = [max(high - low, 0.0) for low, high in zip(box[:half], box[half:], strict=True)]
        return float(math.prod(edge_lengths))

    intersection = box_volume([*map(max, first[:half], second[:half]), *map(min, first[half:], second[half:])])
    union = box_volume(first) + box_volume(second) - intersection
    return intersection / union if union > 0 else 0.0


def detection_distance(row: Mapping[str, Any], other_row: Mapping[str, Any]) -> float:
    """Return the distance of two detection rows.

    This is `box_distance`, or `mask_distance` for rows with masks; or the difference of the image scores, if it is
    larger or nothing else is known.
    """
    score_difference: float = abs(row.get("anomaly_score", 0.0) - other_row.get("anomaly_score", 0.0))
    if "predicted" in row:
        return max(score_difference, box_distance(row["predicted"], other_row["predicted"]))
    if "figures" not in row:
        return score_difference  # the image is only known to be abnormal or not
    return max(score_difference, mask_distance(row["figures"], other_row["figures"]))


def text_distance(first: str, second: str) -> float:
    """Return one minus the F1 of the words that two texts share, with repeated words counted."""
    first_words, second_words = (Counter(re.findall(r"\w+", text.lower())) for text in (first, second))
    total = first_words.total() + second_words.total()
    return 1.0 - 2 * (first_words & second_words).total() / total if total else 0.0


def number_distance(pairs: Sequence[tuple[float, float]], true: Sequence[float]) -> float:
    """Return the mean difference of number pairs, in units of the mean absolute deviation of `true` from its median.

    Each difference counts as 1 at most.
    """
    center = median(true) if true else 0.0
    scale = fmean(abs(value - center) for value in true) if true else 0.0
    return fmean(min(abs(a - b) / scale, 1.0) for a, b in pairs) if pairs and scale > 0 else 0.0
