"""File names that tell labels of test cases, which Landlock cannot hide from scripts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.dataset.manifest.model import Manifest
from m3b.dataset.manifest.reference import EXAMPLES
from m3b.run.visible_names import find_label_in_names


def make_index(cases: Sequence[tuple[str, str]]) -> Index:
    """An index whose test cases are the given (path, label)."""
    classes = tuple(sorted({label for _, label in cases}))
    return Index((), tuple(Record(path, (label,), path) for path, label in cases), classes)


@pytest.mark.parametrize(
    ("first", "second", "classes"),
    [
        ("data/x/nevus/{}.png", "data/x/melanoma/{}.png", ("nevus", "melanoma")),
        ("data/x/{}_nevus.png", "data/x/{}_melanoma.png", ("nevus", "melanoma")),
        ("data/x/Grade-2/{}", "data/x/Grade-3/{}", ("grade 2", "grade 3")),
        ("data/x/class0/{}.png", "data/x/class1/{}.png", ("0", "1")),
        ("data/lung_colon/lung_n/{}.png", "data/lung_colon/colon_n/{}.png", ("lung n", "colon n")),
        ("data/x/HEALTHY{}.png", "data/x/{}.png", ("healthy", "ill")),
    ],
)
def test_classes_in_folders_and_names(first: str, second: str, classes: tuple[str, str]) -> None:
    cases = [
        (path.format(n), label) for path, label in zip((first, second), classes, strict=True) for n in range(90, 99)
    ]
    assert find_label_in_names(make_index(cases), None) in [f"class {name}" for name in classes]


@pytest.mark.parametrize(
    "pattern",
    [
        "data/nevus or melanoma/img_{}.png",
        "data/x/p{:04d}/1/0.png",
        "data/x/abnormal/{}.png",
        "data/x/all.npz#images[{}]",
    ],
)
@pytest.mark.parametrize("classes", [("0", "1", "2"), ("nevus", "melanoma", "normal")])
def test_numbers_and_common_folders_are_no_labels(pattern: str, classes: tuple[str, ...]) -> None:
    cases = [(pattern.format(n), classes[n * n % 3 if n % 2 else n % 3]) for n in range(60)]
    assert find_label_in_names(make_index(cases), None) == ""


def test_the_manifest_says_that_a_label_comes_from_the_path() -> None:
    index = make_index([(f"data/x/{n}.png", "mild") for n in range(9)])
    evidence_of = {
        name: find_label_in_names(index, Manifest.model_validate(values)) for name, values in EXAMPLES.items()
    }
    assert {name for name, evidence in evidence_of.items() if evidence} == {"grading"}
    archive = make_index([(f"data/x/a.npz#images[{n}]", "mild") for n in range(9)])
    assert find_label_in_names(archive, Manifest.model_validate(EXAMPLES["grading"])) == ""
