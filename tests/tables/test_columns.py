"""Facts of columns."""

from __future__ import annotations

import random

import polars as pl
import pytest

from m3b.dataset.tables import parse_numbers
from m3b.dataset.tables.columns import ColumnFact, describe_column, find_missing_words


def describe(name: str, cells: list[str | None]) -> ColumnFact:
    return describe_column(pl.Series(name, cells, dtype=pl.String))


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("image", ["a/1.png", "b/2.png"] * 3, "path"),
        ("file", [f"{number}.dcm" for number in range(9)], "path"),
        ("patient_id", ["007", "008", "009"] * 3, "id"),
        ("case", [f"case_{number:03}" for number in range(40)], "id"),
        ("nr", [str(number) for number in range(1, 50)], "id"),
        ("age", [str(20 + number * 7 % 60) for number in range(200)], "number"),
        ("Größe", ["1,5", "2,25", "3,0", "0,5"], "number"),
        ("grade", ["0", "1", "2", "3", "4"] * 5, "category"),
        ("finding", ["edema", "mass", "normal"] * 5, "category"),
        ("malignant", ["yes", "no"] * 5, "boolean"),
        ("Befund", ["ja", "nein", None] * 5, "boolean"),
        ("status", ["+", "-"] * 5, "boolean"),
        ("date", ["2020-01-31", "2021-12-01"], "date"),
        ("Datum", ["31.01.2020", "01.12.2021"], "date"),
        ("StudyDate", ["20200131", "20211201", "20190703"], "date"),
        ("report", [f"The heart is of normal size and the lungs are clear in study {number}." for number in range(9)], "free_text"),
        ("findings", ["edema|mass", "mass", "edema", "effusion|edema"] * 5, "list"),
        ("tags", ["mass, nodule", "nodule", "effusion"] * 4, "list"),
        ("empty", [None, "NA", "-", "k.A.", "leer"], "empty"),
    ],
)  # fmt: skip
def test_kinds(name, cells, kind):
    assert describe(name, cells).kind == kind


@pytest.mark.parametrize(
    ("cells", "missing"),
    [
        (["none", "mild", "severe", "none"], []),
        (["none", "1.5", "2.5"], ["none"]),
        (["none", "case_1", "case_2", "case_3"], ["none"]),
        (["+", "-", "+"], []),
        (["-", "12", "13"], ["-"]),
        (["?", "a", "b"], ["?"]),
        (["k.A.", "3,5", "leer"], ["k.A.", "leer"]),
        (["N/A", "normal"], ["N/A"]),
        (["未知", "肺炎", "正常"], ["未知"]),
    ],
)
def test_missing_words(cells, missing):
    assert find_missing_words([cell for cell in cells if cell]) == set(missing)
    fact = describe("value", cells)
    assert fact.missing == len([cell for cell in cells if cell in missing])


@pytest.mark.parametrize(
    ("texts", "values", "unit", "decimal_comma"),
    [
        (["12,5 ml", "13 ml"], [12.5, 13], "ml", True),
        (["1.234,5", "12.345,0"], [1234.5, 12345], "", True),
        (["1,234", "12,345", "999"], [1234, 12345, 999], "", False),
        (["1,234.5", "2"], [1234.5, 2], "", False),
        (["0,123", "1,456"], [0.123, 1.456], "", True),
        (["045Y", "061Y"], [45, 61], "Y", False),
        (["1e-3", "-2.5", "+4"], [0.001, -2.5, 4], "", False),
        (["1 234", "5 678"], [1234, 5678], "", False),
        (["0.9 g/cm2", "1.1 g/cm2"], [0.9, 1.1], "g/cm2", False),
        (["12%", "50 %"], [12, 50], "%", False),
        (["a1", "<5", "7"], [None, None, 7], "", False),
    ],
)
def test_numbers(texts, values, unit, decimal_comma):
    parsed = parse_numbers(texts)
    assert list(parsed.values) == values
    assert (parsed.unit, parsed.decimal_comma) == (unit, decimal_comma)


@pytest.mark.parametrize(
    ("name", "unit"),
    [("age (years)", "years"), ("Alter in Jahren", ""), ("Alter (Jahre)", "Jahre"), ("volume [ml]", "ml"), ("size_mm", "mm"),
     ("Knochendichte (g/cm²)", "g/cm²"), ("score (mean)", ""), ("image", "")],
)  # fmt: skip
def test_units_in_names(name, unit):
    assert describe(name, ["1.5", "2.5", "3.25"]).unit == unit


def test_counts_range_and_distinct_are_exact():
    chance = random.Random(0)
    cells = [str(chance.randrange(30_000)) for _ in range(50_000)]
    fact = describe("count", cells)
    assert (fact.distinct, fact.low, fact.high) == (len(set(cells)), min(map(float, cells)), max(map(float, cells)))
    assert fact.missing == 0
    assert len(fact.values) == 60
    assert fact.values[0][1] == max(cells.count(text) for text, _ in fact.values[:1])


@pytest.mark.parametrize(
    ("name", "cells", "sensitive"),
    [
        ("Patient Name", ["Weber^Anna", "Klein^Eva"], "identity"),
        ("Geburtsdatum", ["01.02.1950", "03.04.1960"], "identity"),
        ("report", ["Mrs Weber came on Monday with pain in her left knee and was seen by Dr Klein on the same day."] * 3, "free_text"),
        ("finding", ["edema", "mass"], ""),
    ],
)  # fmt: skip
def test_sensitive_columns(name, cells, sensitive):
    assert describe(name, cells).sensitive == sensitive
