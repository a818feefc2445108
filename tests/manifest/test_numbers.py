"""Numbers of a column: commas and points are decided on the whole column."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.dataset.manifest.numbers import parse_numbers


@pytest.mark.parametrize(
    ("cells", "numbers", "comma"),
    [
        (["131", "131.5", "-2", "1.2e3"], [131, 131.5, -2, 1200], ""),
        (["12,5 ml", "7,25 ml"], [12.5, 7.25], "decimal"),
        (["1.234,5", "17,25"], [1234.5, 17.25], "decimal"),
        (["1,234.5", "950"], [1234.5, 950], "thousands"),
        (["1,234,567", "1,000"], [1234567, 1000], "thousands"),
        (["1,234", "12.5"], [1234, 12.5], "thousands"),
        (["0,123", "0,456"], [0.123, 0.456], "decimal"),
        (["1 234", "12 345,5"], [1234, 12345.5], "decimal"),
        (["1'234", "1'000"], [1234, 1000], ""),
        (["064Y", "12 months", "1.1 g/cm2", "5 %", "3 kg/m²"], [64, 12, 1.1, 5, 3], ""),
        (["3-4", "1/2", "12 to 15", "abc", "", None, "nan", "1 2", "-"], [None] * 9, ""),
        (["+5", "−5"], [5, -5], ""),
        ([".5", "5."], [0.5, 5], ""),
    ],
)
def test_columns(cells: list[str | None], numbers: list[float | None], comma: str) -> None:
    parsed = parse_numbers(pl.Series(cells, dtype=pl.String))
    assert parsed.values.to_list() == pytest.approx(numbers)
    assert parsed.comma == comma
    assert parsed.is_sure


def test_commas_that_may_be_either_are_said() -> None:
    parsed = parse_numbers(pl.Series(["1,234", "1,310"]))
    assert parsed.values.to_list() == [1.234, 1.31]
    assert [problem.code for problem in parsed.problems("value")] == ["comma_of_two_meanings"]


def test_units_that_differ_are_said() -> None:
    problems = parse_numbers(pl.Series(["12 ml", "3 mg", "4 Mg"])).problems("value")
    assert [(problem.code, problem.values["units"]) for problem in problems] == [("mixed_units", ["ml", "mg"])]


@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda number: round(number, 3)), min_size=1, max_size=8),
    st.sampled_from(["", " ml", "mg/dl"]),
)
def test_what_python_writes_is_read_back(numbers: list[float], unit: str) -> None:
    for comma in (".", ","):
        cells = [f"{number:.4f}{unit}".replace(".", comma) for number in numbers]
        assert parse_numbers(pl.Series(cells)).values.to_list() == pytest.approx(numbers)


@pytest.mark.parametrize(
    ("cells", "unit", "numbers"),
    [
        (["8 ans 6 mois", "7 ans", "11 mois"], "months", [102, 84, 11]),
        (["8y6m", "7y", "102 mo"], "years", [8.5, 7, 8.5]),
        (["8y6m", "7y"], "", [8.5, 7]),
        (["3岁5个月", "4岁"], "months", [41, 48]),
        (["4 Jahre und 3 Monate", "18 Monate", "unklar"], "months", [51, 18, None]),
        (["2 weeks 3 days", "1 week"], "days", [17, 7]),
        (["102 mo", "84 mo"], "years", [8.5, 7]),
        (["064Y", "071Y"], "", [64, 71]),
        (["5 m", "6 m"], "months", [5, 6]),
        (["12 mm", "14 mm"], "months", [12, 14]),
        (["3 d", "12 ml", "1.1 g/cm2"], "years", [3, 12, 1.1]),
    ],
)
def test_durations(cells: list[str], unit: str, numbers: list[float | None]) -> None:
    assert parse_numbers(pl.Series(cells), unit).values.to_list() == pytest.approx(numbers)
