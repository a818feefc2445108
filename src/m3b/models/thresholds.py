"""One threshold for everything that is shown of predictions: scores of boxes, probabilities of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from m3b.errors import UsageError
from m3b.models.predictions import Prediction

DEFAULT_BOX_SCORE = 0.3
"""Least score of a box in pictures, tables and counts: detectors list many boxes of very low confidence."""

Threshold = float | Mapping[str, float]
"""One number, or one a class; classes without one keep the model's own decision, and boxes of them the default."""


def make_decider(
    threshold: Threshold | None, classes: Sequence[str], multi_label: bool
) -> Callable[[Prediction], Prediction]:
    """Return the function that applies a threshold to a prediction.

    Boxes with a lower score are left out; those of a class without a number if other classes have one, below
    `DEFAULT_BOX_SCORE`. If several classes may apply, those of at least this probability are decided. If one
    applies, a class with a threshold of its own is decided from it on (of several the one that exceeds it most), else the most
    probable of the others; with one number for all, the most probable class is decided only from this probability on, else none.

    Raises:
        UsageError: a number that is not between 0 and 1, or a class that the model does not know.
    """
    if threshold is None:
        return lambda prediction: prediction
    by_class = dict(threshold) if isinstance(threshold, Mapping) else {}
    unknown = [name for name in by_class if name not in classes]
    if unknown:
        raise UsageError(f"threshold: there is no class {unknown[0]!r}; the classes are {', '.join(classes)}")
    for value in by_class.values() if isinstance(threshold, Mapping) else (threshold,):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"threshold: {value!r} must be a number from 0 to 1")
    common = None if isinstance(threshold, Mapping) else float(threshold)
    min_score = (DEFAULT_BOX_SCORE if by_class else 0.0) if common is None else common

    def decide(prediction: Prediction) -> Prediction:
        boxes = prediction.boxes
        if boxes is not None:
            boxes = tuple(box for box in boxes if box.score >= by_class.get(box.label, min_score))
        if not prediction.probabilities:
            return replace(prediction, boxes=boxes)
        decision = _decide_classes(prediction, common, by_class, multi_label)
        abstains = prediction.abstains
        if prediction.prediction_set is not None:
            abstains = set(prediction.prediction_set) != set(decision)
        return replace(prediction, boxes=boxes, prediction=decision, abstains=abstains)

    return decide


def _decide_classes(
    prediction: Prediction, common: float | None, by_class: Mapping[str, float], multi_label: bool
) -> tuple[str, ...]:
    probabilities = prediction.probabilities
    if multi_label:
        return tuple(
            name
            for name, value in probabilities.items()
            if (value >= by_class[name] if name in by_class else _is_decided(prediction, name, value, common))
        )
    exceeding = {name: probabilities[name] - limit for name, limit in by_class.items() if probabilities[name] >= limit}
    if exceeding:
        return (max(exceeding, key=lambda name: exceeding[name]),)
    other_classes = {name: value for name, value in probabilities.items() if name not in by_class}
    best = max(other_classes, key=lambda name: other_classes[name], default=None)
    return () if best is None or other_classes[best] < (common or 0.0) else (best,)


def _is_decided(prediction: Prediction, name: str, value: float, common: float | None) -> bool:
    return name in prediction.prediction if common is None else value >= common
