"""Too few test cases for a verdict are known before training."""

from __future__ import annotations

from pathlib import Path

import pytest

from m3b.agents.artifacts import DataIndex
from m3b.bench.datasets import get_dataset
from m3b.run.dataset_preview import preview_dataset
from m3b.run.index_validation import describe_few_test_cases


def make_index(test: dict[str, int], train: dict[str, int], task: str = "diagnosis") -> DataIndex:
    counts = {"train": train, "test": test}
    patients = {name: sum(split.values()) for name, split in counts.items()}
    return DataIndex(tuple(test), False, counts, patients, patients, {}, task=task)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (make_index({"a": 4, "b": 60}, {"a": 16, "b": 200}), ("4 test cases of a", "About 25")),
        (make_index({"a": 0, "b": 60}, {"a": 3, "b": 200}), ("0 test cases of a", "About 20")),
        (make_index({"a": 2, "b": 1}, {"a": 6, "b": 6}), ("1 test cases of b",)),
        (make_index({"polyp": 4}, {"polyp": 9}, "segmentation"), ("4 test patients", "About 17")),
    ],
)
def test_too_few(index: DataIndex, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in describe_few_test_cases(index)


def test_enough() -> None:
    assert describe_few_test_cases(make_index({"a": 5, "b": 60}, {"a": 9, "b": 200})) == ""
    assert describe_few_test_cases(make_index({"0": 1, "1": 9, "2": 8}, {"0": 9, "1": 9, "2": 9}, "grading")) == ""


def test_a_drawn_split_without_test_cases_says_what_stays_together(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    get_dataset("CT-Kidney").make(tmp_path / "kidneys", patients=16)
    preview = preview_dataset(
        tmp_path / "kidneys", "Classify cyst, stone, tumor and normal on CT", tmp_path / "scratch"
    )
    assert "20 cases form 4 groups" in preview.insufficient
