"""Measured cases of the average of several models, from those of each model."""

from __future__ import annotations

import math
from typing import Any

import pytest

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.tasks import get_family

Row = dict[str, Any]


def make_class_rows(values: list[float], labels: list[str], decided: list[str] | None = None) -> list[Row]:
    """Cases of two classes; `values` are the probabilities of the second."""
    return [
        {
            "image": f"{number}.png",
            "patient": f"p{number}",
            "labels": [label],
            "probabilities": {"a": 1 - value, "b": value},
            "decided": [name],
        }
        for number, (value, label, name) in enumerate(zip(values, labels, decided or labels, strict=True))
    ]


def test_logits_of_classes_are_averaged() -> None:
    index, labels = Index((), (), ("a", "b")), ["a", "b", "b"]
    rows = [make_class_rows([0.9, 0.8, 0.2], labels), make_class_rows([0.1, 0.8, 0.0], labels)]
    average = get_family("diagnosis").average_rows(rows, index)
    assert [row["probabilities"]["b"] for row in average[:2]] == pytest.approx([0.5, 0.8])
    assert 0 < average[2]["probabilities"]["b"] < 0.01
    assert all(sum(row["probabilities"].values()) == pytest.approx(1) for row in average)
    assert [row["decided"] for row in average[1:]] == [["b"], ["a"]]
    assert [(row["image"], row["labels"]) for row in average] == [(row["image"], row["labels"]) for row in rows[0]]


def test_a_rare_class_is_decided_for_at_its_share() -> None:
    labels = ["b", *["a"] * 9]
    rows = make_class_rows([0.3, *[0.05] * 9], labels)
    average = get_family("diagnosis").average_rows([rows, rows], Index((), (), ("a", "b")))
    assert [row["decided"] for row in average] == [["b"], *[["a"]] * 9]


def test_labels_of_one_case_are_averaged_each_for_itself() -> None:
    index = Index((Record("0.png", ("a", "b")),), (), ("a", "b"))
    parts = [
        [
            {"image": "0", "patient": "0", "labels": ["a"], "probabilities": {"a": p, "b": 0.1}, "decided": []},
            {"image": "1", "patient": "1", "labels": [], "probabilities": {"a": 0.1, "b": 0.3}, "decided": []},
            {"image": "2", "patient": "2", "labels": ["b"], "probabilities": {"a": 0.1, "b": 0.4}, "decided": []},
        ]
        for p in (0.3, 0.7)
    ]
    average = get_family("diagnosis").average_rows(parts, index)
    assert average[0]["probabilities"]["a"] == pytest.approx(0.5)
    assert [row["decided"] for row in average] == [["a"], [], ["b"]], (
        "by the thresholds with the best F1 on these cases"
    )


def test_grades_are_decided_by_the_rule_of_the_first_model() -> None:
    """The mean of these probabilities is grade 1, the likeliest grade is 0."""
    probabilities = {"0": 0.5, "1": 0.0, "2": 0.5}
    rows = [{"image": "0", "patient": "0", "labels": ["1"], "probabilities": probabilities, "decided": ["1"]}]
    average = get_family("grading").average_rows([rows, rows], Index((), (), ("0", "1", "2"), "grading"))
    assert average[0]["decided"] == ["1"]
    likeliest = [{**rows[0], "decided": ["0"]}]
    assert get_family("grading").average_rows([likeliest, rows], Index((), (), ("0", "1", "2"), "grading"))[0][
        "decided"
    ] == ["0"]


def test_numbers_and_their_intervals_are_averaged() -> None:
    first = [{"image": "0", "patient": "0", "true": 2.0, "predicted": 1.0, "interval": [0.0, 2.0], "level": 0.9}]
    second = [{**first[0], "predicted": 4.0, "interval": [2.0, 6.0]}]
    index = Index((), (), ("length (mm)",), "regression")
    assert get_family("regression").average_rows([first, second], index) == [
        {**first[0], "predicted": 2.5, "interval": [1.0, 4.0]}
    ]


def test_hazards_of_survival_are_averaged() -> None:
    index = Index((), (), ("months",), "survival")
    row = {"image": "0", "patient": "0", "time": 3.0, "event": True, "risk": 0.5}
    curves = [[[1.0, 0.5], [2.0, 0.25]], [[1.0, 0.5], [2.0, 0.45]]]
    rows = [[{**row, "curve": curve}] for curve in curves]
    average = get_family("survival").average_rows(rows, index)[0]
    assert average["curve"][0] == pytest.approx([1.0, 0.5])
    odds = math.sqrt((0.5 / 0.5) * (0.1 / 0.9))
    assert average["curve"][1] == pytest.approx([2.0, 0.5 * (1 - odds / (1 + odds))])
    assert average["risk"] == pytest.approx(1 - (0.75 + (0.5 + average["curve"][1][1]) / 2) / 2)
    assert get_family("survival").average_rows([rows[0]], index)[0]["curve"][1] == pytest.approx([2.0, 0.25])
    later = [{**row, "curve": [[1.0, 0.5], [3.0, 0.25]]}]
    assert get_family("survival").average_rows([rows[0], later], index) is None, "curves of other times"


@pytest.mark.parametrize("task", ["segmentation", "detection", "report"])
def test_masks_boxes_and_reports_are_not_averaged(task: str) -> None:
    assert get_family(task).average_rows([[], []], Index((), (), ("a",), task)) is None
