"""Test cases in words and numbers: best, median, worst and errors, for each task; rows that were edited are left out."""

from __future__ import annotations

from typing import Any

import pytest

from m3b.report.case_ranking import rank_cases
from m3b.report.measured_view import draw_case_histogram, find_report_section

FIGURES = {"liver": [0.8, 0.7, 3.0, 100, 90, 50.0], "tumour": [None, None, None, 0, 0, 50.0]}
ROWS: dict[str, list[dict[str, Any]]] = {
    "segmentation": [{"figures": FIGURES, "unit": "mm"}, {"figures": {"liver": [0.1, 0.1, "inf", 5, 900, 50.0]}}],
    "detection": [
        {"predicted": [[[0, 0, 9, 9], "cell", 0.9], [[50, 50, 60, 60], "cell", 0.1]], "truth": [[[0, 0, 10, 10], "cell", 1.0]]},
        {"predicted": [[[20, 20, 30, 30], "cell", 0.8]], "truth": [[[0, 0, 10, 10], "cell", 1.0]]},
    ],
    "diagnosis": [
        {"labels": ["ill"], "decided": ["ill"], "probabilities": {"ill": 0.9, "well": 0.1}},
        {"labels": ["well"], "decided": ["ill"], "probabilities": {"ill": 0.8, "well": 0.2}},
    ],
    "grading": [
        {"labels": ["0"], "decided": ["0"], "probabilities": {"0": 0.7, "1": 0.2, "2": 0.1}},
        {"labels": ["2"], "decided": ["0"], "probabilities": {"0": 0.7, "1": 0.2, "2": 0.1}},
    ],
    "regression": [{"true": 3.0, "predicted": 3.5, "interval": [2.0, 5.0]}, {"true": 9.0, "predicted": 3.0}],
    "report": [
        {"reference": "the lungs are clear", "prediction": "the lungs are clear"},
        {"reference": "one nodule on top", "prediction": "the lungs are clear"},
    ],
}  # fmt: skip
VALUES = {
    "segmentation": ("Dice", [0.8, 0.1]),
    "detection": ("F1", [1.0, 0.0]),
    "diagnosis": ("Probability of the truth", [0.9, 0.2]),
    "grading": ("Probability of the truth", [0.7, 0.1]),
    "regression": ("Absolute error", [0.5, 6.0]),
    "report": ("ROUGE-L", [1.0, 0.0]),
}


def with_names(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"image": f"data/set/{n}/scan.png", "patient": f"p{n}", **row} for n, row in enumerate(rows)]


@pytest.mark.parametrize("task", ROWS)
def test_each_task_ranks_its_cases_from_the_best(task: str) -> None:
    rows = with_names([*reversed(ROWS[task]), {"damaged": True}])
    ranking = rank_cases(rows, find_report_section(task))
    title, values = VALUES[task]
    assert ranking.value_title == title
    assert ranking.values == pytest.approx(values, abs=0.02)
    assert [case.name for case in ranking.cases] == ["1/scan.png", "0/scan.png"], "equal file names need their folder"
    assert [case.key for case in ranking.best] == ["data/set/1/scan.png"]
    assert [case.key for case in (*ranking.worst, *ranking.errors)] == ["data/set/0/scan.png"]
    assert all(case.summary.truth and case.summary.answer for case in ranking.cases)


def test_numbers_of_one_column_have_the_same_decimals() -> None:
    rows = [{"true": 104.9, "predicted": 118.0, "interval": [99.25, 131.4]}, {"true": 40.0, "predicted": 40.18}]
    ranking = rank_cases(with_names(rows), find_report_section("regression"))
    assert [ranking.format_value(case) for case in ranking.cases] == ["0.18", "13.10"]
    assert ranking.cases[1].summary.truth == "104.9"
    assert ranking.cases[1].summary.answer == "118.0 (99.2 to 131.4)"


def test_of_labels_in_several_words_each_counts() -> None:
    row = {"labels": ["a", "c"], "decided": ["a"], "probabilities": {"a": 0.9, "b": 0.2, "c": 0.4}}
    (case,) = rank_cases(with_names([row]), find_report_section("diagnosis")).cases
    assert case.summary.value == pytest.approx((0.9 + 0.8 + 0.4) / 3)
    assert case.summary.is_wrong


def test_errors_are_the_surest_first_and_no_case_is_best_and_worst() -> None:
    rows = [
        {"labels": ["ill"], "decided": ["ill" if share > 0.5 else "well"], "probabilities": {"ill": share, "well": 1 - share}}
        for share in [n / 40 for n in range(40)]
    ]  # fmt: skip
    ranking = rank_cases(with_names(rows), find_report_section("diagnosis"))
    assert ranking.n_wrong == 21
    assert [case.summary.value for case in ranking.errors] == [n / 40 for n in range(12)]
    assert ranking.worst == (), "the errors are the worst cases"
    displayed_keys = [case.key for group in (ranking.best, ranking.uncertain, ranking.errors) for case in group]
    assert len(displayed_keys) == len(set(displayed_keys)) == len(ranking.shown_keys) == 21
    assert "test cases" in draw_case_histogram(ranking)


def test_the_most_uncertain_cases_come_first_in_a_review_after_those_unlike_the_training_images() -> None:
    rows: list[dict[str, Any]] = [
        {"labels": ["ill"], "decided": ["ill"], "probabilities": {"ill": share, "well": 1 - share}}
        for share in (0.99, 0.6, 0.9, 0.55, 0.97, 0.8, 0.7, 0.95, 0.85, 0.75)
    ]
    rows[4]["out_of_distribution"] = True
    ranking = rank_cases(with_names(rows), find_report_section("diagnosis"))
    numbers = [int(case.key.split("/")[2]) for case in ranking.cases_to_review]
    assert numbers == [4, 3, 1, 6, 9, 5, 8, 2, 7, 0]
    assert [int(case.key.split("/")[2]) for case in ranking.uncertain] == [3, 1, 6, 9, 5, 8]
    assert (ranking.median, ranking.worst) == ((), ())
    assert len(ranking.explained_keys) == len(set(ranking.explained_keys)) == 6
    shares = [case.summary.uncertainty for case in ranking.cases]
    assert shares == sorted(shares, key=lambda value: value or 0.0)
    assert rank_cases(with_names(ROWS["regression"]), find_report_section("regression")).uncertain == ()


def test_uncertainty_is_the_entropy_as_a_share_of_its_maximum() -> None:
    for probabilities, expected in (({"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}, 1.0), ({"a": 1.0, "b": 0.0}, 0.0),
                                    ({"a": 0.5, "b": 0.0, "c": 1.0}, 1 / 3)):  # fmt: skip
        row = {"labels": ["a"], "decided": ["a"], "probabilities": probabilities}
        (case,) = rank_cases(with_names([row]), find_report_section("diagnosis")).cases
        assert case.summary.uncertainty == pytest.approx(expected)


def test_an_error_in_the_middle_is_shown_once() -> None:
    rows = [
        {"labels": ["ill"], "decided": ["ill"] if n < 4 else [], "probabilities": {"ill": 0.95 - 0.01 * n, "old": 0.1}}
        for n in range(10)
    ]
    ranking = rank_cases(with_names(rows), find_report_section("diagnosis"))
    assert len(ranking.errors) == 6
    assert {case.key for case in ranking.median}.isdisjoint(case.key for case in ranking.errors)
    assert ranking.errors[0].summary.answer == "not ill (0.86)", "its threshold is above 0.86"


def test_five_cases_are_shown_once_each() -> None:
    ranking = rank_cases(
        with_names([{"true": 0.0, "predicted": float(n)} for n in range(5)]), find_report_section("regression")
    )
    assert sorted(case.key for group in (ranking.best, ranking.median, ranking.worst) for case in group) == sorted(
        case.key for case in ranking.cases
    )


def test_a_task_that_tells_nothing_of_a_case_has_no_cases() -> None:
    assert rank_cases(with_names([{"risk": 1}]), find_report_section("landmarks")).cases == ()
