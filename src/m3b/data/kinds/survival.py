"""Records of a survival analysis: an image, how long its patient was followed, and whether the event came."""

from __future__ import annotations

import math
from typing import Any

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.records import Record, kind

TIME, EVENT = "time", "event"


def time_of(record: Record) -> float:
    """How long a case was followed, to the event or to the last that is known."""
    return float(record.extra[TIME])


def had_event(record: Record) -> bool:
    """Whether the event came; otherwise the case is censored at its time."""
    return bool(record.extra[EVENT])


class SurvivalRecords(RecordKind):
    """See `RecordKind`. label_dict.json names the time to the event, with its unit: `{"overall survival (months)": 0}`."""

    name = "survival"
    title = "a survival"
    targets = ("survival",)
    needed = (TIME, EVENT)
    takes_views = True
    takes_covariates = True
    taught = (
        "times or events",
        "Leave them out or find the right ones.",
        "Keep one copy of each, with the right time.",
    )

    def properties(self) -> dict[str, Any]:
        return {TIME: {"type": "number", "minimum": 0}, EVENT: {"type": "boolean"}}

    def parse(self, item: Item) -> dict[str, Any]:
        time, event = item[TIME], item[EVENT]
        if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time) or time < 0:
            raise ValueError(
                f"{TIME} must be a number from 0, is {time if isinstance(time, float | int) else kind(time)}"
            )
        if not isinstance(event, bool):
            raise ValueError(f"{EVENT} must be true (it came) or false (censored), is {str(event)[:40]!r}")
        return {"extra": {TIME: float(time), EVENT: event}}

    def in_records(self, records: Any) -> bool:
        return any(EVENT in record.extra for record in records)

    def example(self) -> list[dict[str, Any]]:
        return [
            {"image_path": "data/lungs/ct/p001.nii.gz", TIME: 14.5, EVENT: True, "patient": "p001"},
            {"image_path": "data/lungs/ct/p002.nii.gz", TIME: 60, EVENT: False, "patient": "p002"},
        ]

    def example_labels(self) -> dict[str, int]:
        return {"overall survival (months)": 0}
