"""Records of a grading: an image and its grade, one of several in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.records import Record, kind

GRADE = "grade"


class GradingRecords(RecordKind):
    """See `RecordKind`. A record's grade is its one label; label_dict.json numbers the grades from the lowest."""

    name = "grading"
    title = "a grading"
    targets = ("labels",)
    needed = (GRADE,)
    fewest_classes = 3
    taught = (
        "grades",
        "Leave them out or find the right grade.",
        "Nobody can learn from them: leave all copies out.",
    )
    ordered = True
    counts_labels = True
    takes_views = True
    takes_covariates = True

    def properties(self) -> dict[str, Any]:
        return {GRADE: {"type": "string", "minLength": 1}}

    def parse(self, item: Item) -> dict[str, Any]:
        grade = item[GRADE]
        if not isinstance(grade, str) or not grade:
            raise ValueError(f"{GRADE} must be the name of one grade, a text, is {kind(grade)}")
        return {"labels": (grade,)}

    def target(self, record: Record) -> dict[str, Any]:
        return {GRADE: record.labels[0] if record.labels else ""}

    def in_records(self, records: Sequence[Record]) -> bool:
        return False  # in memory they are what records of a diagnosis are; files tell them apart

    def example(self) -> list[dict[str, Any]]:
        return [
            {"image_path": "data/knees/images/p001_L.png", GRADE: "0", "patient": "p001"},
            {"image_path": "data/knees/images/p001_R.png", GRADE: "2", "patient": "p001"},
            {"image_path": "data/knees/archive.npz#images[17]", GRADE: "1", "patient": "p002"},
        ]

    def example_labels(self) -> dict[str, int]:
        return {"0": 0, "1": 1, "2": 2}
