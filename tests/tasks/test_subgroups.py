"""Figures told apart by what an index says of its cases: grouping, small groups, and who is shown the attributes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.agents.checks.index_lock import list_site_codes, serialize_training_index
from m3b.data.index import TRAIN, Index, Record, read_records, write_records
from m3b.errors import DataError
from m3b.models.model_card import format_metrics_section
from m3b.report.measured_view import list_subgroup_rows
from m3b.tasks import get_family
from m3b.tasks.base import Row
from m3b.tasks.score_details import (
    MIN_PATIENTS,
    add_subgroups,
    describe_group_differences,
    score_by_subgroup,
    split_into_groups,
)

CLASSES = ("clear", "ill")


def make_cases(kinds: list[str], wrong_for: str = "") -> tuple[Index, list[Row]]:
    """Cases of patients of their own, every second one ill; those of one kind get answers that say nothing."""
    random, records, rows = np.random.default_rng(0), [], []
    for at, kind in enumerate(kinds):
        ill = at % 2
        probability = random.uniform(0.1, 0.9) if kind == wrong_for else 0.2 + 0.6 * ill + random.uniform(-0.1, 0.1)
        records.append(Record(f"data/x/{at}.png", (CLASSES[ill],), f"p{at}", attributes={"site": kind} if kind else {}))
        rows.append(
            {"image": f"data/x/{at}.png", "patient": f"p{at}", "labels": [CLASSES[ill]], "decided": [],
             "probabilities": {"clear": 1 - probability, "ill": probability}}
        )  # fmt: skip
    return Index((), tuple(records), CLASSES), rows


def test_a_site_where_the_model_fails_is_named() -> None:
    index, rows = make_cases(["north", "north", "south", "south"] * 30, wrong_for="south")
    groups = score_by_subgroup(get_family("diagnosis"), rows, index, primary="auroc")
    north, south = groups["site"]
    assert (north["group"], north["n"], north["measure"]["value"]) == ("north", 60, 1.0)
    assert south["measure"]["value"] < 0.8
    [description] = describe_group_differences(groups)
    assert "auroc differs by site" in description
    assert "(south, n = 60)" in description


def test_groups_too_small_or_of_one_class_have_no_figure() -> None:
    index, rows = make_cases(["a"] * 20 + ["b"] * (MIN_PATIENTS - 1))
    groups = score_by_subgroup(get_family("diagnosis"), rows, index, primary="auroc")["site"]
    assert [group["measure"] is None for group in groups] == [False, True]
    index, rows = make_cases(["even", "odd"] * 20)  # every odd one is ill
    assert [
        group["measure"] for group in score_by_subgroup(get_family("diagnosis"), rows, index, primary="auroc")["site"]
    ] == [
        None,
        None,
    ]
    assert describe_group_differences({"site": groups}) == []


def test_no_attributes_and_one_group_say_nothing() -> None:
    for kinds in ([""] * 12, ["north"] * 12):
        index, rows = make_cases(kinds)
        assert score_by_subgroup(get_family("diagnosis"), rows, index, primary="auroc") == {}


@given(st.lists(st.one_of(st.integers(0, 99).map(str), st.integers(0, 99).map("{:03d}Y".format)), max_size=60))
def test_ages_are_divided_without_loss_into_at_most_three_ranges(values: list[str]) -> None:
    groups = split_into_groups(values)
    assert sorted(at for places in groups.values() for at in places) == list(range(len(values))) or len(groups) == 12
    ages = {int(value.rstrip("Y")) for value in values}
    if len(ages) > 6:
        assert len(groups) <= 3
        spans = sorted([float(end) for end in name.split(" to ")] for name in groups)
        assert all(lower[-1] < upper[0] for lower, upper in pairwise(spans))


def test_texts_are_told_apart_without_case_and_the_rarest_left_out() -> None:
    assert {name: len(places) for name, places in split_into_groups(["F", "f", " M", "", "m", "M"]).items()} == {
        "M": 3,
        "F": 2,
    }
    assert len(split_into_groups([f"site {letter}" for letter in "abcdefghijklmnop"])) == 12


def test_those_who_train_are_not_shown_them_and_the_index_keeps_them(tmp_path: Path) -> None:
    record = Record("data/x/1.png", ("ill",), "p1", attributes={"sex": "F", "age": "61"})
    write_records(tmp_path / "test.json", [record], "diagnosis")
    assert read_records(tmp_path / "test.json", "diagnosis") == (record,)
    assert read_records(tmp_path / "test.json", "diagnosis")[0].attributes == {"sex": "F", "age": "61"}
    content = b"".join(serialize_training_index(Index((record,), (record,), CLASSES))[TRAIN])
    assert "attributes" not in json.loads(content)[0]


def test_training_knows_sites_by_invented_names() -> None:
    sites = ({"site": "north", "sex": "F"}, {"site": "east"}, {}, {"site": "north"})
    records = tuple(Record(f"data/x/{n}.png", ("ill",), f"p{n}", attributes=values) for n, values in enumerate(sites))
    rows = json.loads(b"".join(serialize_training_index(Index(records, records[:1], CLASSES))[TRAIN]))
    assert [row.get("attributes") for row in rows] == [{"site": "site2"}, {"site": "site1"}, None, {"site": "site2"}]
    assert list_site_codes(["north", "east", "north"]) == {"site1": "east", "site2": "north"}


@pytest.mark.parametrize("attributes", ["F", ["F"], {"sex": None}, {"sex": ["F"]}, {"note": "x" * 101}, {"old": True}])
def test_attributes_are_short_texts_and_numbers(attributes: object, tmp_path: Path) -> None:
    item = {"image_path": "data/x/1.png", "labels": ["ill"], "patient": "p1", "attributes": attributes}
    (tmp_path / "test.json").write_text(json.dumps([item]))
    with pytest.raises(DataError, match="attributes must look like"):
        read_records(tmp_path / "test.json", "diagnosis")


def test_card_and_report_show_the_groups() -> None:
    index, rows = make_cases(["north", "north", "south", "south"] * 10 + ["west"] * 2)
    of_task = get_family("diagnosis")
    scores = add_subgroups(of_task.score(rows, index, primary="auroc"), of_task, rows, index)
    card = "\n".join(format_metrics_section(scores.to_dict()))
    assert "### Subgroups" in card
    assert "| site | west | 2 | too few, or not defined |" in card
    table_rows, n_undefined = list_subgroup_rows(scores.to_dict())
    assert n_undefined == 1
    assert any(row[1] == "south" and "1.000" in str(row[-1]) for row in table_rows)
    without_groups = of_task.score(rows, index, primary="auroc")
    assert "Subgroups" not in "\n".join(format_metrics_section(without_groups.to_dict()))
