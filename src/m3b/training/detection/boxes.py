"""Boxes as arrays (N, 2 d), lower corner then upper: overlap, suppression, average precision, image score. NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FROC_RATES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
SAME = 0.5
"""Boxes of several views of an image that overlap by so much are one."""


def box_iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """(n, 2 d) and (m, 2 d) to (n, m) intersection over union; 0 where both are empty."""
    d = first.shape[1] // 2
    low = np.maximum(first[:, None, :d], second[None, :, :d])
    high = np.minimum(first[:, None, d:], second[None, :, d:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    sizes = [np.clip(boxes[:, d:] - boxes[:, :d], 0, None).prod(axis=1) for boxes in (first, second)]
    return shared / np.maximum(sizes[0][:, None] + sizes[1][None] - shared, 1e-9)


def suppress(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, most: int = 100, overlap: float = 0.45
) -> np.ndarray:
    """Rows to keep, the surest first: of boxes of one class that overlap by more than `overlap`, the surest stays."""
    kept: list[int] = []
    for row in np.argsort(-scores, kind="stable"):
        same = [other for other in kept if labels[other] == labels[row]]
        if same and box_iou(boxes[row : row + 1], boxes[same]).max() > overlap:
            continue
        kept.append(int(row))
        if len(kept) == most:
            break
    return np.array(kept, np.int64)


def flipped(boxes: np.ndarray, size: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """(N, 2 d) boxes of an image of `size` that was mirrored along the axes, as they lie in the image."""
    result, d = boxes.copy(), len(size)
    for axis in axes:
        result[:, axis], result[:, d + axis] = size[axis] - boxes[:, d + axis], size[axis] - boxes[:, axis]
    return result


def fused(views: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes of several views of an image as one list: those of a class that overlap are averaged by their scores, and the score is
    the mean over all views (weighted boxes fusion; Solovyev et al., Image and Vision Computing 2021)."""
    boxes, scores, labels = (np.concatenate(column) for column in zip(*views, strict=True))
    whose = np.concatenate([np.full(len(view[1]), number) for number, view in enumerate(views)])
    groups: list[list[int]] = []
    for row in np.argsort(-scores, kind="stable"):
        heads = [group for group in groups if labels[group[0]] == labels[row] and whose[row] not in whose[group]]
        overlap = box_iou(boxes[row : row + 1], boxes[[group[0] for group in heads]])[0] if heads else np.zeros(0)
        if len(overlap) and overlap.max() >= SAME:
            heads[int(overlap.argmax())].append(int(row))
        else:
            groups.append([int(row)])
    if not groups:
        return boxes, scores, labels
    mean = [np.average(boxes[group], axis=0, weights=scores[group]) for group in groups]
    sure = np.array([scores[group].sum() / len(views) for group in groups])
    order = np.argsort(-sure, kind="stable")
    return np.stack(mean)[order], sure[order], labels[[group[0] for group in groups]][order]


def hits(boxes: np.ndarray, scores: np.ndarray, true: np.ndarray, least: float = 0.5) -> np.ndarray:
    """(n,) bool: the surest box chooses first and takes the free true box with the largest IoU of at least `least`."""
    found, free = np.zeros(len(boxes), bool), np.ones(len(true), bool)
    if not len(true) or not len(boxes):
        return found
    iou = box_iou(boxes, true)
    for row in np.argsort(-scores, kind="stable"):
        offers = np.where(free & (iou[row] >= least - 1e-10), iou[row], -1.0)
        if offers.max() >= 0:
            found[row] = True
            free[int(offers.argmax())] = False
    return found


def average_precision(scores: np.ndarray, hit: np.ndarray, truths: int) -> float:
    """Area under the precision-recall curve, precision interpolated at all points; NaN without a true box."""
    if not truths:
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    scores, hit = scores[order], hit[order]
    last = np.append(scores[1:] != scores[:-1], True)[: len(scores)]  # equal scores can only be cut off together
    right = np.cumsum(hit)[last]
    precision = right / np.maximum(np.flatnonzero(last) + 1, 1)
    recall = right / truths
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall, prepend=0.0) * best).sum())


def froc(scores: np.ndarray, hit: np.ndarray, truths: int, images: int) -> float:
    """Mean share of true boxes found at 1/8, 1/4, 1/2, 1, 2, 4 and 8 false boxes an image; NaN without a true box."""
    if not truths:
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    scores, hit = scores[order], hit[order]
    last = np.append(scores[1:] != scores[:-1], True)[: len(scores)]
    found, false = np.cumsum(hit)[last], np.cumsum(~hit)[last] / max(images, 1)
    return float(np.mean([np.where(false <= rate, found, 0).max(initial=0) / truths for rate in FROC_RATES]))


def rank_images(
    answers: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    truths: Sequence[tuple[np.ndarray, np.ndarray]],
    classes: int,
    least: float = 0.5,
) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """For each class: (scores, hit or not, number of true boxes) over all images.

    `answers` are (boxes, scores, labels) and `truths` are (boxes, labels), one pair an image.
    """
    table = []
    for label in range(classes):
        scores, found, count = [np.zeros(0)], [np.zeros(0, bool)], 0
        for (boxes, score, labels), (true, true_labels) in zip(answers, truths, strict=True):
            mine, real = labels == label, true[true_labels == label]
            scores.append(score[mine])
            found.append(hits(boxes[mine], score[mine], real, least))
            count += len(real)
        table.append((np.concatenate(scores), np.concatenate(found), count))
    return table


def image_score(scores: np.ndarray, most: int = 5) -> float:
    """1 - product of (1 - score) over the surest boxes: the chance that at least one of them is right."""
    top = np.sort(np.clip(scores, 0.0, 1.0 - 1e-6))[::-1][:most]
    return float(1.0 - np.prod(1.0 - top))


def fit_logistic(scores: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """(slope >= 0.05, offset) of the chance of being right given logit(score) (Platt, 1999), slightly regularised.

    (1, 0), which changes nothing, where there are fewer than 4 right or 4 wrong ones.
    """
    right = right.astype(float)
    if right.sum() < 4 or (1 - right).sum() < 4:
        return 1.0, 0.0
    x = logit(scores)
    design = np.stack([x, np.ones_like(x)], axis=1)
    weights, prior = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (p - right) + 1.0 * (weights - prior)
        bend = (design * (p * (1 - p))[:, None]).T @ design + np.eye(2)
        step = np.linalg.solve(bend, slope)
        weights = weights - np.clip(step, -2, 2)
    return max(float(weights[0]), 0.05), float(weights[1])


def logit(scores: np.ndarray) -> np.ndarray:
    """log(p / (1 - p)), p kept away from 0 and 1."""
    p = np.clip(np.asarray(scores, float), 1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))


def apply_logistic(scores: np.ndarray, fit: Sequence[float]) -> np.ndarray:
    """The calibrated chance; the order of scores stays."""
    result: np.ndarray = 1 / (1 + np.exp(-(float(fit[0]) * logit(scores) + float(fit[1]))))
    return result
