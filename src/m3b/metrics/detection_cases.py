"""What a detector is measured on: one case is a test image with lesions, boxes, a score of the image, or several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .boxes import Box
from .lesions import LesionCounts
from .masks import LabelMetrics
from .pixels import PixelCounts
from .segmentation import check_labels


@dataclass(frozen=True)
class DetectionCase:
    """One test image; every part that is there in one case has to be there in all.

    Args:
        image: what names the case in messages.
        patient: empty means a patient of its own.
        figures: class -> figures of its mask (`lesions.measure_channels`).
        lesions: class -> lesions of its mask.
        predicted: boxes with scores; None where the task has no boxes.
        truth: true boxes.
        anomaly_score: how abnormal the image is as a whole, any scale, higher is more.
        abnormal: whether it is.
        pixels: its anomaly map against its mask.
    """

    image: str
    patient: str
    figures: Mapping[str, LabelMetrics] = field(default_factory=dict)
    lesions: Mapping[str, LesionCounts] = field(default_factory=dict)
    predicted: tuple[Box, ...] | None = None
    truth: tuple[Box, ...] | None = None
    anomaly_score: float | None = None
    abnormal: bool | None = None
    pixels: PixelCounts | None = None

    def available_parts(self) -> tuple[bool, bool, bool, bool, bool]:
        """Whether it has mask figures, lesions, boxes, a score of the image, a map."""
        mark_parts = (bool(self.figures), bool(self.lesions), self.truth is not None)
        return (*mark_parts, self.anomaly_score is not None, self.pixels is not None)


def _find_problem(case: DetectionCase, first: DetectionCase, classes: Sequence[str]) -> str:
    if case.available_parts() != first.available_parts():
        return (
            f"mask figures, lesions, boxes, image score, map are {case.available_parts()}, in the first case "
            f"{first.available_parts()}"
        )
    if not any(case.available_parts()):
        return "nothing to score: no mask figures, no lesions, no boxes, no map and no score of the image"
    if (case.predicted is None) != (case.truth is None) or (case.anomaly_score is None) != (case.abnormal is None):
        return "a prediction without its truth, or the reverse"
    if case.anomaly_score is not None and not math.isfinite(case.anomaly_score):
        return f"the anomaly score is {case.anomaly_score}"
    boxes = (*(case.predicted or ()), *(case.truth or ()))
    problems = [problem for box in boxes if (problem := box.problem(classes))]
    if problems:
        return problems[0]
    if len({len(box.corners) for box in boxes}) > 1:
        return "boxes in 2D and in 3D"
    rules = {counts.rule for counts in (*case.lesions.values(), *first.lesions.values())}
    return f"lesions matched by different rules: {sorted(rules)}" if len(rules) > 1 else ""


def check_cases(cases: Sequence[DetectionCase], classes: Sequence[str]) -> None:
    """Every case can be scored and has the same parts.

    Raises:
        ValueError: the first that cannot or has not; the message names it by position and image.
    """
    for number, case in enumerate(cases):
        problem = _find_problem(case, cases[0], classes)
        if problem:
            raise ValueError(f"case {number} ({case.image}): {problem}")
    for name in ("figures", "lesions"):
        if cases and getattr(cases[0], name):
            check_labels(cases, classes, name)
