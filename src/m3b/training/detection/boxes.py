"""Boxes as NumPy arrays (N, 2 d), lower then upper corner: overlap, suppression, average precision, FROC, calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FROC_RATES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
FUSION_IOU = 0.5
"""Boxes of several views of an image with at least this IoU are fused."""


def box_iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the (n, m) intersection over union of (n, 2 d) and (m, 2 d); 0 if both are empty."""
    d = first.shape[1] // 2
    low = np.maximum(first[:, None, :d], second[None, :, :d])
    high = np.minimum(first[:, None, d:], second[None, :, d:])
    intersection = np.clip(high - low, 0, None).prod(axis=2)
    sizes = [np.clip(boxes[:, d:] - boxes[:, :d], 0, None).prod(axis=1) for boxes in (first, second)]
    return np.asarray(intersection / np.maximum(sizes[0][:, None] + sizes[1][None] - intersection, 1e-9))


def suppress_overlaps(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, max_boxes: int = 100, overlap: float = 0.45
) -> np.ndarray:
    """Return the rows to keep, highest score first: boxes of one class that overlap a better one by more than `overlap` are
    dropped.
    """
    order = np.argsort(-scores, kind="stable")
    boxes, labels = boxes[order], labels[order]
    is_open = np.ones(len(order), bool)
    kept_rows: list[int] = []
    while len(kept_rows) < max_boxes and is_open.any():
        row = int(is_open.argmax())
        kept_rows.append(int(order[row]))
        is_open[row] = False
        rivals = np.flatnonzero(is_open & (labels == labels[row]))
        is_open[rivals[box_iou(boxes[row : row + 1], boxes[rivals])[0] > overlap]] = False
    return np.array(kept_rows, np.int64)


def flip_boxes(boxes: np.ndarray, size: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """Return (N, 2 d) boxes of an image of `size` that was mirrored along the axes, in coordinates of the original image."""
    result, d = boxes.copy(), len(size)
    for axis in axes:
        result[:, axis], result[:, d + axis] = size[axis] - boxes[:, d + axis], size[axis] - boxes[:, axis]
    return result


def fuse_boxes(views: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fuse the boxes of several views of an image: weighted boxes fusion (Solovyev et al., Image and Vision Computing 2021).

    Overlapping boxes of a class are averaged with their scores as weights, and the score is the mean over all views.
    """
    boxes, scores, labels = (np.concatenate(column) for column in zip(*views, strict=True))
    view_of_row = np.concatenate([np.full(len(view[1]), number) for number, view in enumerate(views)])
    groups: list[list[int]] = []
    heads, has_view = np.zeros(len(scores), np.int64), np.zeros((len(scores), len(views)), bool)
    for row in np.argsort(-scores, kind="stable"):
        count = len(groups)
        candidates = np.flatnonzero((labels[heads[:count]] == labels[row]) & ~has_view[:count, view_of_row[row]])
        overlap = box_iou(boxes[row : row + 1], boxes[heads[candidates]])[0]
        if len(overlap) and overlap.max() >= FUSION_IOU:
            group = int(candidates[int(overlap.argmax())])
        else:
            group, heads[count] = count, row
            groups.append([])
        groups[group].append(int(row))
        has_view[group, view_of_row[row]] = True
    if not groups:
        return boxes, scores, labels
    means = [np.average(boxes[group], axis=0, weights=scores[group]) for group in groups]
    fused_scores = np.array([scores[group].sum() / len(views) for group in groups])
    order = np.argsort(-fused_scores, kind="stable")
    return np.stack(means)[order], fused_scores[order], labels[[group[0] for group in groups]][order]


def match_boxes(boxes: np.ndarray, scores: np.ndarray, true_boxes: np.ndarray, min_iou: float = 0.5) -> np.ndarray:
    """Return (n,) bool: by decreasing score, each box takes the free true box with the largest IoU of at least `min_iou`."""
    is_match, is_free = np.zeros(len(boxes), bool), np.ones(len(true_boxes), bool)
    if not len(true_boxes) or not len(boxes):
        return is_match
    iou = box_iou(boxes, true_boxes)
    for row in np.argsort(-scores, kind="stable"):
        candidates = np.where(is_free & (iou[row] >= min_iou - 1e-10), iou[row], -1.0)
        if candidates.max() >= 0:
            is_match[row] = True
            is_free[int(candidates.argmax())] = False
    return is_match


def average_precision(scores: np.ndarray, is_match: np.ndarray, truths: int) -> float:
    """Return the area under the precision-recall curve, interpolated at all points; NaN without a true box."""
    if not truths:
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    scores, is_match = scores[order], is_match[order]
    is_last = np.append(scores[1:] != scores[:-1], True)[: len(scores)]  # equal scores share a threshold
    matched = np.cumsum(is_match)[is_last]
    precision = matched / np.maximum(np.flatnonzero(is_last) + 1, 1)
    recall = matched / truths
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall, prepend=0.0) * envelope).sum())


def froc(scores: np.ndarray, is_match: np.ndarray, truths: int, images: int) -> float:
    """Return the mean sensitivity at 1/8, 1/4, 1/2, 1, 2, 4 and 8 false positives per image; NaN without a true box."""
    if not truths:
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    scores, is_match = scores[order], is_match[order]
    is_last = np.append(scores[1:] != scores[:-1], True)[: len(scores)]
    matched, false_positives = np.cumsum(is_match)[is_last], np.cumsum(~is_match)[is_last] / max(images, 1)
    sensitivities = [np.where(false_positives <= rate, matched, 0).max(initial=0) / truths for rate in FROC_RATES]
    return float(np.mean(sensitivities))


def rank_boxes(
    predictions: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    truths: Sequence[tuple[np.ndarray, np.ndarray]],
    classes: int,
    min_iou: float = 0.5,
) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Return (scores, whether each is a match, number of true boxes) over all images, for each class.

    `predictions` are (boxes, scores, labels) and `truths` are (boxes, labels), one pair per image.
    """
    table = []
    for label in range(classes):
        scores, matches, count = [np.zeros(0)], [np.zeros(0, bool)], 0
        for (boxes, score, labels), (true_boxes, true_labels) in zip(predictions, truths, strict=True):
            of_class, class_boxes = labels == label, true_boxes[true_labels == label]
            scores.append(score[of_class])
            matches.append(match_boxes(boxes[of_class], score[of_class], class_boxes, min_iou))
            count += len(class_boxes)
        table.append((np.concatenate(scores), np.concatenate(matches), count))
    return table


def image_score(scores: np.ndarray, max_boxes: int = 5) -> float:
    """Return 1 - product of (1 - score) over the best boxes: the probability that at least one of them is right."""
    top = np.sort(np.clip(scores, 0.0, 1.0 - 1e-6))[::-1][:max_boxes]
    return float(1.0 - np.prod(1.0 - top))


def fit_logistic(scores: np.ndarray, is_right: np.ndarray) -> tuple[float, float]:
    """Return (slope >= 0.05, offset) of the probability of being right given logit(score) (Platt, 1999), slightly regularised.

    (1, 0), the identity, if there are fewer than 4 right or 4 wrong scores.
    """
    is_right = is_right.astype(float)
    if is_right.sum() < 4 or (1 - is_right).sum() < 4:
        return 1.0, 0.0
    x = logit(scores)
    design = np.stack([x, np.ones_like(x)], axis=1)
    weights, prior = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (p - is_right) + 1.0 * (weights - prior)
        hessian = (design * (p * (1 - p))[:, None]).T @ design + np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        weights = weights - np.clip(step, -2, 2)
    return max(float(weights[0]), 0.05), float(weights[1])


def logit(scores: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)), with p clipped away from 0 and 1."""
    p = np.clip(np.asarray(scores, float), 1e-6, 1 - 1e-6)
    return np.asarray(np.log(p / (1 - p)))


def apply_logistic(scores: np.ndarray, fit: Sequence[float]) -> np.ndarray:
    """Return the calibrated probability; the order of scores is unchanged."""
    result: np.ndarray = 1 / (1 + np.exp(-(float(fit[0]) * logit(scores) + float(fit[1]))))
    return result
