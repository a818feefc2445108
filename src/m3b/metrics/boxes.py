"""Boxes: overlap in 2D and 3D, average precision, and FROC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.cases import divide

from .cases import Floats

COCO_IOUS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
FROC_RATES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
"""False positives per image at which FROC takes the sensitivity (LUNA16; Setio et al., Med. Image Anal. 42, 2017)."""

_BLOCK = 2_000_000


@dataclass(frozen=True)
class Box:
    """A true or predicted box.

    Args:
        corners: the lower corner, then the upper: (x0, y0, x1, y1) or (x0, y0, z0, x1, y1, z1), continuous
            coordinates (a box over pixels 2 to 4 reaches from 2 to 5), in the same unit for truth and prediction.
        label: its class.
        score: confidence of the model; 1 for truth.
    """

    corners: tuple[float, ...]
    label: str
    score: float = 1.0

    def problem(self, classes: Sequence[str]) -> str:
        """Return what is wrong with the box, or an empty text."""
        dims = len(self.corners) // 2
        if len(self.corners) not in (4, 6) or not all(map(math.isfinite, self.corners)):
            return f"the box {self.corners} is not 4 or 6 finite numbers"
        if any(high < low for low, high in zip(self.corners[:dims], self.corners[dims:], strict=True)):
            return f"the box {self.corners} has an upper corner below its lower one (corners, not width and height?)"
        if self.label not in classes:
            return f"a box of the unknown class {self.label!r}; the classes are {list(classes)}"
        return "" if math.isfinite(self.score) else f"a box has the score {self.score}"


def box_iou(first: Floats, second: Floats) -> Floats:
    """Return the intersection over union of every pair, 0 if both boxes are empty.

    Args:
        first: (n, 2 d) corners, d = 2 or 3.
        second: (m, 2 d).

    Returns:
        (n, m)
    """
    d = first.shape[1] // 2
    low = np.maximum(first[:, None, :d], second[None, :, :d])
    high = np.minimum(first[:, None, d:], second[None, :, d:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    sizes = [(boxes[:, d:] - boxes[:, :d]).prod(axis=1) for boxes in (first, second)]
    return np.nan_to_num(divide(shared, sizes[0][:, None] + sizes[1][None] - shared))


CENTRE_RULE = "centre"
"""Rule that replaces an IoU threshold: a prediction is a hit if its centre lies inside a true box."""


def centre_nearness(first: Floats, second: Floats) -> Floats:
    """Return how near the centre of each prediction is to that of each true box around it; 0 outside of the box.

    LUNA16 counts a mark within the radius of the nodule (Setio et al., Med. Image Anal. 42, 2017); here the box is what
    is known about a finding. The border of a box counts as inside.

    Args:
        first: (n, 2 d) corners of the predictions.
        second: (m, 2 d) corners of the true boxes.

    Returns:
        (n, m) from 1 at the same centre down to 1/2 at a corner.
    """
    d = first.shape[1] // 2
    centre = (first[:, None, :d] + first[:, None, d:]) / 2
    is_inside = ((centre >= second[None, :, :d]) & (centre <= second[None, :, d:])).all(axis=2)
    half_sizes = np.maximum((second[:, d:] - second[:, :d]) / 2, 1e-300)
    relative_offset = np.abs(centre - (second[None, :, :d] + second[None, :, d:]) / 2) / half_sizes[None]
    nearness: Floats = np.where(is_inside, 1 / (1 + np.sqrt(np.square(relative_offset).mean(axis=2))), 0.0)
    return nearness


def _match_by_rules(predicted_corners: Floats, true_corners: Floats, rules: Sequence[float | str]) -> NDArray[np.bool_]:
    """Return (rules, predictions) whether each prediction of one image is a hit."""
    iou, nearness = box_iou(predicted_corners, true_corners), centre_nearness(predicted_corners, true_corners)
    return np.stack(
        [match_boxes(nearness, 0.25) if rule == CENTRE_RULE else match_boxes(iou, float(rule)) for rule in rules]
    )


def match_boxes(iou: Floats, min_iou: float) -> NDArray[np.bool_]:
    """Return (predictions,) whether each prediction is a hit, from (predictions, truths) IoU, most confident first.

    Each prediction takes the free true box with the largest IoU of at least `min_iou`, as in the COCO evaluation.
    """
    hits = np.zeros(len(iou), dtype=np.bool_)
    is_free = np.ones(iou.shape[1], dtype=np.bool_)
    for number, row in enumerate(iou):
        candidates = np.where(is_free & (row >= min_iou - 1e-10), row, -1.0)
        if len(candidates) and candidates.max() >= 0:
            hits[number] = True
            is_free[int(candidates.argmax())] = False
    return hits


@dataclass(frozen=True)
class Ranking:
    """All predictions of one class, the most confident first.

    Args:
        image: (predictions,) number of the image.
        last: (predictions,) whether the next one has another score: equal scores can only be cut off together.
        is_hit: (thresholds, predictions).
        truths: (images,) number of true boxes.
    """

    image: NDArray[np.int64]
    last: NDArray[np.bool_]
    is_hit: NDArray[np.bool_]
    truths: Floats


def rank_boxes(
    predicted: Sequence[Sequence[Box]], truth: Sequence[Sequence[Box]], label: str, ious: Sequence[float | str]
) -> Ranking:
    """Match the boxes of one class in every image at every IoU threshold, or by `CENTRE_RULE`."""
    images, scores, hits = [], [], []
    counts = np.zeros(len(truth))
    for number, (predicted_boxes, true_boxes) in enumerate(zip(predicted, truth, strict=True)):
        class_predictions = sorted((box for box in predicted_boxes if box.label == label), key=lambda box: -box.score)
        class_truths = [box for box in true_boxes if box.label == label]
        counts[number] = len(class_truths)
        if class_predictions:
            images += [number] * len(class_predictions)
            scores += [box.score for box in class_predictions]
            if class_truths:
                hits.append(
                    _match_by_rules(
                        np.array([b.corners for b in class_predictions]),
                        np.array([b.corners for b in class_truths]),
                        ious,
                    )
                )
            else:
                hits.append(np.zeros((len(ious), len(class_predictions)), dtype=np.bool_))
    order = np.argsort(-np.array(scores), kind="stable") if scores else np.empty(0, dtype=np.int64)
    score = np.array(scores)[order] if scores else np.empty(0)
    is_hit = np.concatenate(hits, axis=1)[:, order] if hits else np.empty((len(ious), 0), dtype=np.bool_)
    last = np.append(np.diff(score) != 0, True) if scores else np.empty(0, dtype=np.bool_)
    return Ranking(np.array(images, dtype=np.int64)[order], last, is_hit, counts)


def _map_blocks(ranking: Ranking, weights: Floats, curve: Callable[[Floats], Floats]) -> Floats:
    """Apply `curve` to a few draws at a time, so that draws x predictions stays small."""
    size = max(1, _BLOCK // max(1, len(ranking.image)))
    return np.concatenate([curve(weights[start : start + size]) for start in range(0, len(weights), size)])


def average_precision(ranking: Ranking, weights: Floats) -> Floats:
    """Return the AP at each IoU threshold: the area under the precision-recall curve, interpolated at all points.

    Precision at a recall is the best precision at that recall or a higher one (Everingham et al., IJCV 88, 2010, since
    VOC 2010). COCO reads the same curve at 101 recalls (Lin et al., ECCV 2014), which differs by at most 0.01 for each.
    pycocotools gives the same values at these recalls, but it has no 3D boxes, no weights of images for the bootstrap, and
    the order of the predictions decides between equal scores; so it only serves as a test.

    Args:
        ranking: of one class.
        weights: (draws, images).

    Returns:
        (draws, thresholds), NaN without truth.
    """

    def curve(block: Floats) -> Floats:
        image_weights = block[:, ranking.image]
        n_predicted = np.cumsum(image_weights, axis=1)[:, ranking.last]
        positives = block @ ranking.truths
        areas = []
        for is_hit in ranking.is_hit:
            true_positives = np.cumsum(image_weights * is_hit, axis=1)[:, ranking.last]
            precision = np.nan_to_num(divide(true_positives, n_predicted))
            interpolated = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            areas.append(divide((np.diff(true_positives, axis=1, prepend=0.0) * interpolated).sum(axis=1), positives))
        return np.stack(areas, axis=1)

    return _map_blocks(ranking, weights, curve)


def froc(ranking: Ranking, weights: Floats, threshold: int = 0) -> Floats:
    """Return the sensitivity at 1/8, 1/4, 1/2, 1, 2, 4 and 8 false positives per image.

    It is the largest share of true boxes detected at any score threshold with at most that many false positives per
    image; nothing is interpolated. A second prediction for an already detected box is a false positive.

    Args:
        ranking: of one class.
        weights: (draws, images).
        threshold: index of the IoU threshold in the ranking.

    Returns:
        (draws, 7), NaN without truth; their mean is the CPM (Niemeijer et al., IEEE TMI 30, 2011).
    """
    is_hit = ranking.is_hit[threshold]

    def curve(block: Floats) -> Floats:
        image_weights = block[:, ranking.image]
        true_positives = np.cumsum(image_weights * is_hit, axis=1)[:, ranking.last]
        false_positive_rate = np.cumsum(image_weights * ~is_hit, axis=1)[:, ranking.last] / np.maximum(
            block.sum(axis=1, keepdims=True), 1e-300
        )
        max_detected = [
            np.where(false_positive_rate <= rate + 1e-12, true_positives, 0.0).max(axis=1, initial=0.0)
            for rate in FROC_RATES
        ]
        return divide(np.stack(max_detected, axis=1), (block @ ranking.truths)[:, None])

    return _map_blocks(ranking, weights, curve)
