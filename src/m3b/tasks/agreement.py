"""How far two answers of one model to one image are from each other, 0 to 1: to the image and to an altered copy of it.

The control against look-up tables (`m3b.tasks.control`) takes the mean of such distances.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from .marks import unpack


def of_probabilities(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The largest difference of a class's probability."""
    return max((abs(value - other[name]) for name, value in one.items()), default=0.0)


def of_figures(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The mean difference of a label's Dice with the same true mask; 1 where it is defined for one of the two alone."""
    pairs = [(figures.dice, unpack(other)[name].dice) for name, figures in unpack(one).items()]
    differences = [float(math.isnan(a) != math.isnan(b)) if math.isnan(a + b) else abs(a - b) for a, b in pairs]
    return fmean(differences) if differences else 0.0


def of_boxes(one: Sequence[Any], other: Sequence[Any]) -> float:
    """1 less the overlap that is shared: of boxes of one label, paired by their overlap, the IoU counts as often as both are
    sure, against all that either is sure of. 0 where neither has any box."""
    total_score = sum(max(score, 0.0) for _, _, score in (*one, *other))
    if not total_score:
        return 0.0
    pairs = sorted(
        ((_iou(a[0], b[0]), n, m) for n, a in enumerate(one) for m, b in enumerate(other) if a[1] == b[1]), reverse=True
    )
    matched: tuple[set[int], set[int]] = (set(), set())
    shared = 0.0
    for overlap, n, m in pairs:
        if n not in matched[0] and m not in matched[1]:
            matched[0].add(n)
            matched[1].add(m)
            shared += 2 * overlap * min(max(one[n][2], 0.0), max(other[m][2], 0.0))
    return float(1.0 - min(shared / total_score, 1.0))


def _iou(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two boxes, lower corner then upper; 0 for boxes of different dimensions."""
    if len(one) != len(other):
        return 0.0
    half = len(one) // 2

    def size(box: Sequence[float]) -> float:
        edge_lengths = [max(high - low, 0.0) for low, high in zip(box[:half], box[half:], strict=True)]
        return float(math.prod(edge_lengths))

    intersection = size([*map(max, one[:half], other[:half]), *map(min, one[half:], other[half:])])
    union = size(one) + size(other) - intersection
    return intersection / union if union > 0 else 0.0


def of_detections(row: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Of rows of a detection: `of_boxes`, or `of_figures` of its masks; or the difference of the image's score, if that is more
    or all that there is."""
    score_difference: float = abs(row.get("anomaly_score", 0.0) - other.get("anomaly_score", 0.0))
    if "predicted" in row:
        return max(score_difference, of_boxes(row["predicted"], other["predicted"]))
    if "figures" not in row:
        return score_difference  # of an image it is known only whether it is abnormal
    return max(score_difference, of_figures(row["figures"], other["figures"]))


def of_texts(one: str, other: str) -> float:
    """1 less the F1 of the words that both texts have, each as often as it stands in both."""
    first_words, second_words = (Counter(re.findall(r"\w+", text.lower())) for text in (one, other))
    total = first_words.total() + second_words.total()
    return 1.0 - 2 * (first_words & second_words).total() / total if total else 0.0


def of_numbers(pairs: Sequence[tuple[float, float]], true: Sequence[float]) -> float:
    """The mean difference of two numbers, in mean distances of the true ones from their median; at most 1 each."""
    center = median(true) if true else 0.0
    scale = fmean(abs(value - center) for value in true) if true else 0.0
    return fmean(min(abs(a - b) / scale, 1.0) for a, b in pairs) if pairs and scale > 0 else 0.0
