"""The answers of regression models, from the JSON of predict.py to the fields of a `Prediction`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeGuard

from m3b.errors import ModelError

from .kinds import AnswerKind, Item
from .predictions import Promise


def finite(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class RegressionAnswers(AnswerKind):
    """See `AnswerKind`."""

    use = (
        'Each prediction is `{"image": ..., "value": number, "interval": [low, high]}`, in the unit of the quantity; '
        "`interval_level` says how often such intervals hold the true number, by cases that were held out of the training."
    )
    blind = "the better of the training cases' median and mean for every image"
    exported = "Estimation of a quantity from medical images"

    def parse(self, where: str, item: Item, promise: Promise, folder: Path | None) -> dict[str, Any]:
        value, interval, level = item.get("value"), item.get("interval"), item.get("interval_level")
        if not finite(value):
            raise ModelError(f"{where}: `value` must be a finite number, it is {value!r}")
        fields: dict[str, Any] = {"value": float(value)}
        if interval is not None:
            if not isinstance(interval, list) or len(interval) != 2 or not all(map(finite, interval)):
                raise ModelError(f"{where}: `interval` must be two finite numbers, it is {interval!r}")
            if interval[0] > interval[1]:
                raise ModelError(f"{where}: the upper end of the interval {interval} lies below the lower one")
            fields["interval"] = [float(end) for end in interval]
        if level is not None:
            if not finite(level) or not 0 < level < 1:
                raise ModelError(f"{where}: `interval_level` must lie between 0 and 1, it is {level!r}")
            fields["interval_level"] = float(level)
        return {"extra": fields}
