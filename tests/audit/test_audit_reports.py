"""Every finding about reports, on real pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.data.index import Index, Record, Report
from m3b.dataset.audit import Audit, audit_index

COUNT = 20


@pytest.fixture
def work(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    for at in range(COUNT):
        for view, size in (("front", (40, 36)), ("side", (40, 28))):
            Image.fromarray(random.integers(0, 255, size, dtype=np.uint8)).save(tmp_path / f"{view}{at}.png")
    return tmp_path


def record(at: int, **changes: Any) -> Record:
    report = Report(f"The heart measures {at} cm.", f"Size {at}." if at % 2 else "")
    views = (f"front{at}.png", f"side{at}.png") if at % 3 else f"front{at}.png"
    return replace(Record(views, (("large", "small")[at % 2],), f"p{at}", report=report), **changes)


def index(changed: Mapping[int, Record] | None = None, *, classes: tuple[str, ...] = ("large", "small")) -> Index:
    records = [(changed or {}).get(at, record(at)) for at in range(COUNT)]
    return Index(tuple(records[6:]), tuple(records[:6]), classes, "report")


def weights(audit: Audit) -> dict[str, str]:
    return {finding.code: finding.severity for finding in audit.findings if finding.code != "small_test"}


def only(audit: Audit, code: str) -> Any:
    (match,) = [finding for finding in audit.findings if finding.code == code]
    return match


def test_clean_reports_have_no_finding(work: Path) -> None:
    audit = audit_index(index(), work)
    assert weights(audit) == {}
    assert audit.opened == audit.cases == COUNT
    assert audit.shapes == {"1x40x36": 20, "1x40x28": 13}, "views are opened one by one; their sizes may differ"
    assert audit.counts["test"] == {"large": 3, "small": 3}
    assert "Opened 20 of 20 studies" in audit.summary()


def test_labels_may_be_left_out(work: Path) -> None:
    unlabelled = {at: record(at, labels=()) for at in range(COUNT)}
    audit = audit_index(index(unlabelled, classes=()), work)
    assert weights(audit) == {}
    assert audit.summary().startswith("train: 14 cases, 14 patients")
    assert weights(audit_index(index(unlabelled), work)) == {"class_absent_train": "warn", "class_absent_test": "warn"}
    assert weights(audit_index(index(classes=()), work)) == {"unknown_label": "fix"}


def test_empty_reports(work: Path) -> None:
    audit = audit_index(index({7: record(7, report=Report(" ", "\n"))}), work)
    assert weights(audit) == {"empty_report": "fix"}
    assert only(audit, "empty_report").cases == ("front7.png (+1)",)
    assert "Leave them out" in only(audit, "empty_report").agent_message


def test_the_same_text_for_most_and_for_all(work: Path) -> None:
    normal = Report("Normal  study.", "")
    mostly_normal = {at: record(at, report=normal) for at in range(6, 17)}
    audit = audit_index(index(mostly_normal), work)
    assert weights(audit) == {"reports_alike": "warn"}
    assert "11 of 20" in only(audit, "reports_alike").agent_message
    every = {
        at: record(at, report=Report("normal study.", "")) if at % 2 else record(at, report=normal)
        for at in range(COUNT)
    }
    assert weights(audit_index(index(every), work)) == {"one_report": "reject"}


def test_reports_that_are_known_from_training(work: Path) -> None:
    audit = audit_index(index({0: record(0, report=record(9).report)}), work)
    assert weights(audit) == {"report_across": "warn"}
    assert "1 of 6" in only(audit, "report_across").agent_message


@pytest.mark.parametrize(
    ("text", "has_identity"),
    [
        ("Patient Name: Jane Roe. Heart of normal size.", True),
        ("MRN: 123456. Lungs clear.", True),
        ("Date of birth : 1 May 1950", True),
        ("DOB: ____ MRN: XXXX Name: [redacted]", False),
        ("The name of the vessel is unclear.", False),
    ],
)
def test_headers_that_name_a_person(work: Path, text: str, has_identity: bool) -> None:
    audit = audit_index(index({9: record(9, report=Report(text, ""))}), work)
    assert weights(audit) == ({"report_identity": "warn"} if has_identity else {})
    assert not any("Jane" in finding.agent_message for finding in audit.findings), (
        "the finding does not repeat the name"
    )


def test_too_few(work: Path) -> None:
    small_index = replace(index(), train=index().train[:3], test=index().test[:3])
    assert weights(audit_index(small_index, work)) == {"too_few_cases": "reject"}


def test_a_view_that_is_missing_broken_or_in_two_studies(work: Path) -> None:
    (work / "side7.png").unlink()
    (work / "side8.png").write_bytes(b"\0")
    audit = audit_index(index({10: record(10, image=("front10.png", "front11.png"))}), work)
    assert weights(audit) == {"contradiction": "fix", "missing_file": "fix", "unreadable": "fix"}
    assert only(audit, "missing_file").cases == ("side7.png",)
    assert only(audit, "unreadable").cases == ("side8.png",)
    assert only(audit, "contradiction").cases == ("front11.png",)
    assert audit.opened == COUNT - 2


def test_a_view_whose_pixels_are_on_both_sides(work: Path) -> None:
    (work / "side8.png").write_bytes((work / "front1.png").read_bytes())
    audit = audit_index(index({8: record(8, report=record(1).report, labels=("small",))}), work)
    assert weights(audit) == {"duplicate_across": "fix", "report_across": "warn"}
    assert weights(audit_index(index(), work))["same_image_two_classes"] == "fix"
