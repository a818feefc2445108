"""Numbers and grades from a folder: which column, in which unit, what stands for unknown, in which order."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_kit import picture

from m3b.data.index import Index, read_index
from m3b.data.kinds.regression import value_of
from m3b.data.records import Record
from m3b.data.spec.execute import execute, write
from m3b.data.spec.numbers import parsed
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.spec.proposals.order import in_order
from m3b.data.spec.proposals.values import unit_asked, unit_in
from m3b.data.survey import survey
from m3b.dataset.audit import IndexRequest, audit_index
from m3b.tasks import find_requested_task


def hands(root: Path, column: str, cells: Sequence[object], more: Sequence[object] = ()) -> Path:
    rows = [["id", "patient_id", "visit", column]]
    for at, cell in enumerate(cells):
        picture(root / "hands" / f"h{at:03d}.png", 40 + at)
        rows.append([f"h{at:03d}.png", f"p{at // 2}", str(at % 3), str(cell)])
    with (root / "ages.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return root


REQUEST = "Predict the bone age in months from hand radiographs"


def test_the_column_that_the_request_names_becomes_the_number(tmp_path: Path) -> None:
    root = hands(tmp_path / "d", "boneage", [24 + 3.5 * at for at in range(29)] + [-1])
    [best, *_] = found = propose(survey(root), Ask("regression", REQUEST))
    assert sufficient(found) == ""
    assert best.spec.value is not None
    assert best.spec.value.title == "bone age (months)", "the unit is that of the request where no column names one"
    made = execute(best.spec, root, name="d", work=tmp_path)
    assert len(made.train) + len(made.test) == 29, "-1 stands for unknown"
    assert any("stands for an unknown one" in reason for reason in made.accounting.reasons())
    assert made.values == {"bone age (months)": 0}
    low = [value_of(record) < 60 for record in made.test]
    assert any(low), "every fifth of the numbers is tested"
    assert not all(low)
    write(made, tmp_path)
    again = read_index(tmp_path, "regression")
    assert [value_of(record) for record in again.train] == [value_of(record) for record in made.train]


def test_a_unit_that_was_not_asked_for_is_put_to_a_person(tmp_path: Path) -> None:
    root = hands(tmp_path / "d", "bone_age_years", [2 + 0.5 * at for at in range(30)])
    assert "asks for months" in sufficient(propose(survey(root), Ask("regression", REQUEST)))
    years = REQUEST.replace("months", "years")
    assert sufficient(propose(survey(root), Ask("regression", years))) == ""


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([7.0] * 20, "one_value"),
        ([1.0, 2.0, 3.0] * 10, "few_values"),
        ([50.0 + at for at in range(27)] + [999.0] * 3, "value_code"),
        ([50.0 + at for at in range(29)] + [900.0], "value_far"),
    ],
)
def test_the_audit_of_numbers(tmp_path: Path, cells: list[float], code: str) -> None:
    records = []
    for at, cell in enumerate(cells):
        picture(tmp_path / f"{at}.png", 50 + at)
        records.append(Record(f"{at}.png", (), f"p{at}", extra={"value": cell}))
    index = Index(tuple(records[::2]), tuple(records[1::2]), ("bone age (years)",), "regression")
    audit = audit_index(index, tmp_path, request=IndexRequest(REQUEST))
    assert code in {finding.code for finding in audit.findings}
    assert "unit_off_request" in {finding.code for finding in audit.findings}
    assert audit.counts["train"] == {"bone age (years)": len(records[::2])}


def test_grades_that_are_out_of_order_go_back() -> None:
    def codes(*classes: str) -> set[str]:
        records = tuple(Record(f"{at}.png", (name,), f"p{at}") for at, name in enumerate([*classes] * 8))
        index = Index(records[::2], records[1::2], classes, "grading")
        return {finding.code for finding in audit_index(index, Path("/nowhere")).findings}

    assert "grades_out_of_order" in codes("severe", "mild", "none")
    assert "grades_out_of_order" not in codes("none", "mild", "severe")
    assert "two_grades" in codes("none", "mild")


@pytest.mark.parametrize(
    ("names", "request_text", "order"),
    [
        ("10|9|0", "", "0|9|10"),
        ("KL3|KL0|KL1", "", "KL0|KL1|KL3"),
        ("density d|density a|density b", "", "density a|density b|density d"),
        ("III|I|IV|II", "", "I|II|III|IV"),
        ("severe NPDR|no DR|mild NPDR|proliferative DR|moderate NPDR", "",
         "no DR|mild NPDR|moderate NPDR|severe NPDR|proliferative DR"),
        ("walnut|pea|melon", "Grade nodules: pea, walnut or melon", "pea|walnut|melon"),
        ("walnut|pea|melon", "Grade nodules", ""),
    ],
)  # fmt: skip
def test_the_order_of_grades(names: str, request_text: str, order: str) -> None:
    assert in_order(names.split("|"), request_text) == (order.split("|") if order else [])


@pytest.mark.parametrize(
    ("request_text", "task"),
    [
        ("Grade knee osteoarthritis (Kellgren-Lawrence 0 to 4) on knee X-rays", "grading"),
        ("Grade knee osteoarthritis on X-rays (Kellgren-Lawrence)", "grading"),
        ("Predict the Gleason grade of prostate biopsies", "grading"),
        ("Detect osteoarthritis; Kellgren and Lawrence described it", ""),
        ("Grade breast density from a to d on mammograms", "grading"),
        ("Grade the ligament: intact, partial tear, complete rupture", ""),
        (REQUEST, "regression"),
        ("Estimate the ejection fraction from echo loops", "regression"),
        ("Classify the ejection fraction into three classes", ""),
        ("Segment the lesion and measure its volume in ml", "segmentation"),
        ("Predict pneumonia on chest X-rays", ""),
    ],
)
def test_what_a_request_asks_for(request_text: str, task: str) -> None:
    assert find_requested_task(request_text) == task


def test_units() -> None:
    assert [unit_in(name) for name in ("boneage_months", "HC (mm)", "EF", "weightKg", "fat %")] == [
        "months", "mm", "", "kg", "%",
    ]  # fmt: skip
    assert unit_asked("Predict the age in years") == "years"
    compound = ("bone density (g/cm2)", "density_g/ml", "g per square centimetre", "LDL (mg/dl)", "Dosis (g pro kg)")
    assert [unit_in(name) for name in compound] == [""] * len(compound)
    assert unit_asked("Predict the bone density in g/cm2 from forearm X-rays") == ""
    assert unit_asked("Find it in images") == ""


@given(st.floats(-1e6, 1e6).map(lambda value: round(value, 3)))
def test_cells_that_are_numbers(value: float) -> None:
    assert parsed(f" {value:.3f} ") == pytest.approx(value)
    assert parsed(f"{value:.3f} months".replace(".", ",")) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "12-14", "about 12", "1,234.5", "nan", "12 of 14"])
def test_cells_that_are_none(text: str) -> None:
    assert parsed(text) is None
