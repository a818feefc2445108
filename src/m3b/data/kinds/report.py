"""Records of report generation: the views of a study, and the text that was written about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from m3b.data.kinds.base import Item, RecordKind
from m3b.data.kinds.parts import NAMES, labels
from m3b.data.records import Record, Report

_REPORT: Final = {
    "type": "object",
    "required": ["findings", "impression"],
    "properties": {"findings": {"type": "string"}, "impression": {"type": "string"}},
}


class ReportRecords(RecordKind):
    """See `RecordKind`."""

    name = "report"
    title = "a report"
    targets = ("report",)
    beside = ("labels",)
    needed = ("report",)
    empty_vocabulary = True
    separate_images = True
    cases_word = "studies"
    taught = ("reports", "Keep one report a study, or leave them out.", "Keep one copy of each.")

    def properties(self) -> dict[str, Any]:
        return {"report": _REPORT, "labels": NAMES}

    def parse(self, item: Item) -> dict[str, Any]:
        return {"labels": labels(item.get("labels", [])), "report": _report(item["report"])}

    def target(self, record: Record) -> dict[str, Any]:
        report = record.report or Report("", "")
        named = {"labels": list(record.labels)} if record.labels else {}
        return {"report": {"findings": report.findings, "impression": report.impression}, **named}

    def in_records(self, records: Sequence[Record]) -> bool:
        return any(record.report is not None for record in records)

    def multi_label(self, records: Sequence[Record]) -> bool:
        return True

    def example(self) -> list[dict[str, Any]]:
        return [
            {
                "image_path": ["data/cxr/01/frontal.png", "data/cxr/01/lateral.png"],
                "report": {"findings": "The heart is enlarged. No effusion.", "impression": "Cardiomegaly."},
                "labels": ["cardiomegaly"],
                "patient": "p001",
            },
            {
                "image_path": "data/cxr/02.png",
                "report": {"findings": "The heart is of normal size. The lungs are clear.", "impression": ""},
                "labels": [],
                "patient": "p002",
            },
            {
                "image_path": "data/ct/03.nii.gz",
                "report": {"findings": "", "impression": "Small pleural effusion on the left."},
                "patient": "p003",
            },
        ]

    def example_labels(self) -> dict[str, int]:
        return {"cardiomegaly": 0, "effusion": 1}


def _report(value: Any) -> Report:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("findings", "impression")):
        raise ValueError('report must be {"findings": "...", "impression": "..."}, either may be ""')
    return Report(value["findings"], value["impression"])
