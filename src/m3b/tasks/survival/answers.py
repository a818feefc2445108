"""The answers of a survival model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.models import ModelInfo
from m3b.models.answers import AnswerFormat, RawAnswer, is_finite_number

PROBABILITY_TOLERANCE = 1e-6


class SurvivalAnswers(AnswerFormat):
    """Answers of a survival model; see `AnswerFormat`."""

    usage = (
        'Each prediction is `{"image": ..., "risk": number, "survival": [[time, probability], ...], "median": time}`: the chance that '
        "the event has not come until a time, in the unit of the quantity; the risk, from 0 to 1, is the share of the time up to the "
        "last of them that is lost to the event on average, and ranks patients; `median` is null where it lies beyond."
    )
    baseline_description = "the better of no ranking at all and the survival curve of the training cases for everybody"
    export_description = "Survival prediction from medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        risk, curve, median = item.get("risk"), item.get("survival"), item.get("median")
        if not is_finite_number(risk):
            raise ModelError(f"{location}: `risk` must be a finite number, it is {risk!r}")
        is_nonempty_list = isinstance(curve, list) and bool(curve)
        if not is_nonempty_list or not all(
            isinstance(point, list) and len(point) == 2 and all(map(is_finite_number, point)) for point in curve or ()
        ):
            raise ModelError(f"{location}: `survival` must be a list of [time, probability], it is {str(curve)[:80]}")
        points = [(float(time), float(probability)) for time, probability in curve or ()]
        if any(b[0] <= a[0] or b[1] > a[1] + PROBABILITY_TOLERANCE for a, b in pairwise(points)):
            raise ModelError(f"{location}: times of `survival` must rise, and its probabilities must not")
        if not all(-PROBABILITY_TOLERANCE <= probability <= 1 + PROBABILITY_TOLERANCE for _, probability in points):
            raise ModelError(f"{location}: `survival` has probabilities outside [0, 1]")
        if median is not None and not is_finite_number(median):
            raise ModelError(f"{location}: `median` must be a time or null, it is {median!r}")
        clipped_curve = [[time, min(max(probability, 0.0), 1.0)] for time, probability in points]
        return {
            "extra": {
                "risk": float(risk),
                "survival": clipped_curve,
                "median": None if median is None else float(median),
            }
        }
