"""The answers of a regression."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.models import ModelInfo
from m3b.models.answers import AnswerFormat, RawAnswer, is_finite_number
from m3b.models.model_card import format_number


class RegressionAnswers(AnswerFormat):
    """Answers of a regression; see `AnswerFormat`."""

    usage = (
        'Each prediction is `{"image": ..., "value": number, "interval": [low, high]}`, in the unit of the quantity; '
        "`interval_level` says how often such intervals hold the true number, by cases that were held out of the training."
    )
    baseline_description = "the better of the training cases' median and mean for every image"
    export_description = "Estimation of a quantity from medical images"

    def parse(self, location: str, item: RawAnswer, model_info: ModelInfo, folder: Path | None) -> dict[str, Any]:
        value, interval, level = item.get("value"), item.get("interval"), item.get("interval_level")
        if not is_finite_number(value):
            raise ModelError(f"{location}: `value` must be a finite number, it is {value!r}")
        fields: dict[str, Any] = {"value": float(value)}
        if interval is not None:
            if not isinstance(interval, list) or len(interval) != 2 or not all(map(is_finite_number, interval)):
                raise ModelError(f"{location}: `interval` must be two finite numbers, it is {interval!r}")
            if interval[0] > interval[1]:
                raise ModelError(f"{location}: the upper end of the interval {interval} lies below the lower one")
            fields["interval"] = [float(end) for end in interval]
        if level is not None:
            if not is_finite_number(level) or not 0 < level < 1:
                raise ModelError(f"{location}: `interval_level` must lie between 0 and 1, it is {level!r}")
            fields["interval_level"] = float(level)
        return {"extra": fields}

    def describe_details(self, details: Mapping[str, Any]) -> list[str]:
        lines, limits, intervals = [], details.get("limits_of_agreement"), details.get("intervals")
        if isinstance(limits, list) and len(limits) == 2:
            limits_text = f"{format_number(limits[0])} to {format_number(limits[1])}"
            lines.append(
                f"bias (mean of predicted minus true) {format_number(details.get('bias'))}, limits of agreement {limits_text}"
            )
        if isinstance(intervals, Mapping):
            lines.append(
                f"{intervals['promised']:.0%} intervals hold the true number in {intervals['held']:.0%} of the test cases, "
                f"{format_number(intervals.get('mean_width'))} wide on average"
            )
        return lines
