"""The verdicts and tables of `benchmarks/layouts.py`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from statsmodels.stats.proportion import proportion_confint

from layouts.generate import draw_layout
from layouts.test_generate import make_index

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "layouts.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """Load the script under a name of its own, since a package of the tests is called like it."""
    spec = importlib.util.spec_from_file_location("bench_layouts", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_layouts"] = module
    spec.loader.exec_module(module)
    return module


def test_seeds_are_ranges_with_steps(benchmark: ModuleType) -> None:
    assert benchmark.parse_seeds("1-9:2, 20") == [1, 3, 5, 7, 9, 20]
    with pytest.raises(argparse.ArgumentTypeError):
        benchmark.parse_seeds("odd")


def test_a_solvable_folder_is_right_if_its_index_is(benchmark: ModuleType) -> None:
    layout = draw_layout(1, solvability="solvable", task="diagnosis", split="none", images_per_patient="several")
    records = tuple(make_index(layout.truth))
    order = tuple(f"class {number}" for number in range(len(layout.classes)))
    outcome = benchmark.Outcome("proposed", "diagnosis", records, order)
    assert benchmark.judge(outcome, layout.truth) == ("right", [])
    assert benchmark.judge(benchmark.Outcome("asked"), layout.truth)[0] == "asked"
    assert benchmark.judge(benchmark.Outcome("refused"), layout.truth)[0] == "refused"
    fewer = replace(outcome, records=records[1:])
    assert benchmark.judge(fewer, layout.truth)[0] == "wrong"
    verdict, differences = benchmark.judge(replace(outcome, task="grading"), layout.truth)
    assert (verdict, [item.code for item in differences]) == ("wrong", ["wrong_task"])


@pytest.mark.parametrize(
    ("solvability", "kind", "verdict"),
    [("two_targets", "asked", "right"), ("two_targets", "refused", "refused"), ("two_targets", "proposed", "wrong"),
     ("other_anatomy", "asked", "right"), ("no_targets", "refused", "right"), ("more_classes", "proposed", "wrong")],
)  # fmt: skip
def test_what_cannot_be_solved_must_not_be_accepted(
    benchmark: ModuleType, solvability: str, kind: str, verdict: str
) -> None:
    truth = draw_layout(1, solvability=solvability).truth
    assert benchmark.judge(benchmark.Outcome(kind, records=tuple(make_index(truth))), truth)[0] == verdict


def test_shares_have_wilson_intervals(benchmark: ModuleType) -> None:
    low, high = proportion_confint(31, 40, method="wilson")
    assert benchmark.format_share(31, 40) == f"78 % ({100 * low:.0f} to {100 * high:.0f})"


def test_tables_count_each_folder_once_by_axis(benchmark: ModuleType) -> None:
    axes = draw_layout(1, solvability="solvable").axes.to_dict()
    lines: list[dict[str, Any]] = [
        {"verdict": verdict, "axes": axes} for verdict in ("right", "right", "wrong", "asked")
    ]
    rows = [row for row in benchmark.format_tables(lines) if row.startswith(f"| {axes['task']} |")]
    assert rows[0].startswith(f"| {axes['task']} | 4 | 2 | 1 | 0 | 1 | 0 |")
