"""Findings about numbers, units, grades and survival."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from audit_kit import find_without_images
from m3b.data.index import Index, Record
from m3b.dataset.audit import IndexRequest
from m3b.dataset.audit.numbers import sort_grades
from m3b.dataset.words.units import find_column_unit, find_requested_unit


def codes(index: Index, request: str = "") -> set[str]:
    return {finding.code for finding in find_without_images(index, IndexRequest(request))}


def numbered(cells: list[float], column: str = "bone age (years)") -> Index:
    records = tuple(Record(f"{n}.png", (), f"p{n}", extra={"value": cell}) for n, cell in enumerate(cells))
    return Index(records[::2], records[1::2], (column,), "regression")


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([7.0] * 20, "one_value"),
        ([1.0, 2.0, 3.0] * 10, "few_values"),
        ([50.0 + n for n in range(27)] + [999.0] * 3, "value_code"),
        ([50.0 + n for n in range(29)] + [900.0], "value_far"),
        ([50.0 + n + 30 * (n % 2) for n in range(30)], "value_beyond"),
        ([50.0 + n for n in range(30)], ""),
    ],
)
def test_numbers(cells: list[float], code: str) -> None:
    finding_codes = codes(numbered(cells)) - {"small_test", "few_patients"}
    assert finding_codes == ({code} if code else set())


@pytest.mark.parametrize(
    ("request_text", "column", "is_found"),
    [
        ("Estimate the bone age in months", "bone age (years)", True),
        ("Estimate the bone age in years", "bone age (years)", False),
        ("Estimate bone mineral density in g/cm2", "bmd_g_cm2", False),
        ("Estimate bone mineral density in g/cm²", "BMD (g/cm2)", False),
        ("Estimate bone mineral density in g per square centimetre", "BMD [g/cm^2]", False),
        ("Estimate bone mineral density in g/cm2", "bmd_mg_cm2", True),
        ("Estimate the size in mg/dl", "size (cm)", True),
        ("Estimate glucose (mg/dL)", "glucose_mg_dl", False),
        ("Estimate the eGFR in ml/min/1.73m2", "egfr (ml/min/1.73m2)", False),
        ("Estimate the bone mineral density", "bmd_g_cm2", False),
    ],
)
def test_units(request_text: str, column: str, is_found: bool) -> None:
    assert ("unit_off_request" in codes(numbered([50.0 + n for n in range(40)], column), request_text)) == is_found


@pytest.mark.parametrize(
    ("text", "unit"),
    [("in g/cm2 from DXA", "g/cm2"), ("in mg per decilitre", "mg/dl"), ("as a percentage", "%"), ("in Jahren", "years"),
     ("in mg/foo", ""), ("as images of 3 centres", ""), ("height in m", ""), ("in cm^3", "")],
)  # fmt: skip
def test_units_of_requests(text: str, unit: str) -> None:
    assert find_requested_unit(text) == unit


@pytest.mark.parametrize(
    ("name", "unit"),
    [("boneage_months", "months"), ("BoneAgeMonths", "months"), ("HC (mm)", "mm"), ("glucose_mg/dL", "mg/dl"),
     ("bmd_g_per_cm2", "g/cm2"), ("weight_g", "g"), ("stage_m", ""), ("mm", ""), ("EF", "")],
)  # fmt: skip
def test_units_of_columns(name: str, unit: str) -> None:
    assert find_column_unit(name) == unit


@pytest.mark.parametrize(
    ("classes", "code"),
    [("severe mild none", "grades_out_of_order"), ("none mild severe", ""), ("none mild", "two_grades")],
)
def test_grades(classes: str, code: str) -> None:
    names = tuple(classes.split())
    records = tuple(Record(f"{n}.png", (name,), f"p{n}") for n, name in enumerate([*names] * 8))
    finding_codes = codes(Index(records[::2], records[1::2], names, "grading")) & {"grades_out_of_order", "two_grades"}
    assert finding_codes == ({code} if code else set())


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ("10|9|0", "0|9|10"),
        ("KL3|KL0|KL1", "KL0|KL1|KL3"),
        ("density d|density a|density b", "density a|density b|density d"),
        ("III|I|IV|II", "I|II|III|IV"),
        ("severe NPDR|no DR|mild NPDR|proliferative DR|moderate NPDR",
         "no DR|mild NPDR|moderate NPDR|severe NPDR|proliferative DR"),
        ("walnut|pea|melon", ""),
    ],
)  # fmt: skip
def test_the_order_of_grades(names: str, order: str) -> None:
    assert "|".join(sort_grades(names.split("|"))) == order


@pytest.mark.parametrize(
    ("event", "time", "code"),
    [
        (lambda n: n % 2, lambda n: n + 1, ""),
        (lambda n: n < 60, lambda n: n + 1, "no_events"),
        (lambda n: n % 20 == 1, lambda n: n + 1, "few_events"),
        (lambda n: n % 2, lambda n: 999 if n % 10 == 0 else n + 1, "time_code"),
        (lambda n: n % 2, lambda n: 7, "one_time"),
        (lambda n: n % 2, lambda n: n + 1 + 100 * (n % 2), "censored_first"),
    ],
)
def test_survival(event: Callable[[int], object], time: Callable[[int], float], code: str) -> None:
    records = tuple(
        Record(f"{n}.png", (), f"p{n}", extra={"time": float(time(n)), "event": bool(event(n))}) for n in range(80)
    )
    index = Index(records[:60], records[60:], ("survival (months)",), "survival")
    finding_codes = codes(index) - {"small_test"}
    assert finding_codes - {"censored_first"} == ({code} - {"censored_first"} if code else set())
    assert ("censored_first" in finding_codes) == (code in ("censored_first", "one_time"))
