"""Records of a diagnosis: an image and its labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.kinds.parts import NAMES, labels
from m3b.data.records import Record

UNKNOWN_LABELS = "unknown_labels"
"""Key of the labels of which nobody knows whether they apply to a case; with it several labels can apply."""


class DiagnosisRecords(RecordKind):
    """See `RecordKind`."""

    name = "diagnosis"
    title = "a diagnosis"
    targets = ("labels",)
    needed = ("labels",)
    fewest_classes = 2
    taught = (
        "labels",
        "Leave them out or find the right label.",
        "Nobody can learn from them: leave all copies out.",
    )
    counts_labels = True
    takes_views = True
    takes_covariates = True
    takes_unlabelled = True

    def properties(self) -> dict[str, Any]:
        return {"labels": NAMES, UNKNOWN_LABELS: NAMES}

    def parse(self, item: Item) -> dict[str, Any]:
        present, unknown = labels(item["labels"]), labels(item.get(UNKNOWN_LABELS, []))
        if both := sorted({*present} & {*unknown}):
            raise ValueError(f"labels and {UNKNOWN_LABELS} both name {', '.join(both)}")
        return {"labels": present, **({"extra": {UNKNOWN_LABELS: list(unknown)}} if unknown else {})}

    def target(self, record: Record) -> dict[str, Any]:
        return {"labels": list(record.labels), **record.extra}

    def in_records(self, records: Sequence[Record]) -> bool:
        return any(record.labels or UNKNOWN_LABELS in record.extra for record in records)

    def multi_label(self, records: Sequence[Record]) -> bool:
        return any(len(record.labels) != 1 or UNKNOWN_LABELS in record.extra for record in records)

    def example(self) -> list[dict[str, Any]]:
        return [
            {"image_path": "data/chest/images/p001_a.png", "labels": ["pneumonia"], "patient": "p001"},
            {"image_path": "data/chest/ct/p002/scan1", "labels": ["normal"], "patient": "p002"},
            {"image_path": ["data/chest/s/1.png", "data/chest/s/2.png"], "labels": ["normal"], "patient": "p003"},
            {"image_path": "data/chest/archive.npz#train_images[17]", "labels": ["pneumonia"], "patient": "p004"},
        ]

    def example_labels(self) -> dict[str, int]:
        return {"normal": 0, "pneumonia": 1}
