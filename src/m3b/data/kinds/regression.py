"""Records of a regression: an image and a number that belongs to it."""

from __future__ import annotations

import math
from typing import Any

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.records import Record, kind

VALUE = "value"


def value_of(record: Record) -> float:
    """The number of a case."""
    return float(record.extra[VALUE])


class RegressionRecords(RecordKind):
    """See `RecordKind`. label_dict.json names the quantity, with its unit in brackets: `{"bone age (months)": 0}`."""

    name = "regression"
    title = "a regression"
    targets = (VALUE,)
    needed = (VALUE,)
    takes_views = True
    takes_covariates = True
    taught = (
        "values",
        "Leave them out or find the right value.",
        "Keep one copy of each, with the right value.",
    )

    def properties(self) -> dict[str, Any]:
        return {VALUE: {"type": "number"}}

    def parse(self, item: Item) -> dict[str, Any]:
        value = item[VALUE]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(
                f"{VALUE} must be a finite number, is {value if isinstance(value, float) else kind(value)}"
            )
        return {"extra": {VALUE: float(value)}}

    def example(self) -> list[dict[str, Any]]:
        return [
            {"image_path": "data/hands/images/p001.png", VALUE: 131.5, "patient": "p001"},
            {"image_path": "data/hands/archive.npz#images[17]", VALUE: 84, "patient": "p002"},
        ]

    def example_labels(self) -> dict[str, int]:
        return {"bone age (months)": 0}
