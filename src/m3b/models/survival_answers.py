"""The answers of survival models, from the JSON of predict.py to the fields of a `Prediction`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from m3b.errors import ModelError

from .kinds import AnswerKind, Item
from .number_answers import finite
from .predictions import Promise

SLACK = 1e-6


class SurvivalAnswers(AnswerKind):
    """See `AnswerKind`."""

    use = (
        'Each prediction is `{"image": ..., "risk": number, "survival": [[time, probability], ...], "median": time}`: the chance that '
        "the event has not come until a time, in the unit of the quantity; the risk, from 0 to 1, is the share of the time up to the "
        "last of them that is lost to the event on average, and ranks patients; `median` is null where it lies beyond."
    )
    blind = "the better of no ranking at all and the survival curve of the training cases for everybody"
    exported = "Survival prediction from medical images"

    def parse(self, where: str, item: Item, promise: Promise, folder: Path | None) -> dict[str, Any]:
        risk, curve, median = item.get("risk"), item.get("survival"), item.get("median")
        if not finite(risk):
            raise ModelError(f"{where}: `risk` must be a finite number, it is {risk!r}")
        is_nonempty_list = isinstance(curve, list) and bool(curve)
        if not is_nonempty_list or not all(
            isinstance(point, list) and len(point) == 2 and all(map(finite, point)) for point in curve or ()
        ):
            raise ModelError(f"{where}: `survival` must be a list of [time, probability], it is {str(curve)[:80]}")
        points = [(float(time), float(probability)) for time, probability in curve or ()]
        if any(b[0] <= a[0] or b[1] > a[1] + SLACK for a, b in pairwise(points)):
            raise ModelError(f"{where}: times of `survival` must rise, and its probabilities must not")
        if not all(-SLACK <= probability <= 1 + SLACK for _, probability in points):
            raise ModelError(f"{where}: `survival` has probabilities outside [0, 1]")
        if median is not None and not finite(median):
            raise ModelError(f"{where}: `median` must be a time or null, it is {median!r}")
        clipped_curve = [[time, min(max(probability, 0.0), 1.0)] for time, probability in points]
        return {
            "extra": {
                "risk": float(risk),
                "survival": clipped_curve,
                "median": None if median is None else float(median),
            }
        }
