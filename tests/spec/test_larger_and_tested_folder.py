"""Two folders of which one is called after testing alone, and how many classes a request speaks of."""

from __future__ import annotations

import random
from pathlib import Path

import layout_kit as kit
import pytest
from spec_kit import picture

from m3b.data.spec.proposals.language import how_many_classes
from m3b.data.survey.sides import beside_a_test_part

TISSUES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")


def tiles(root: Path) -> None:
    """As NCT-CRC-HE-100K lies beside CRC-VAL-HE-7K."""
    draw = random.Random(0)
    for top, count in (("NCT-CRC-HE-100K", 6), ("CRC-VAL-HE-7K", 2)):
        for place, tissue in enumerate(TISSUES):
            for at in range(count):
                name = "".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=8))
                picture(root / top / tissue / f"{tissue}-{name}.png", 20 + 9 * place + at)


@pytest.mark.parametrize("request_text", ["Classify colorectal tissue tiles", "Tell nine tissue types apart on tiles"])
def test_the_folder_that_is_called_after_validation_tests(request_text: str, tmp_path: Path) -> None:
    tiles(tmp_path / "raw")
    (tmp_path / "work").mkdir()
    want = kit.Want(request_text, "diagnosis", 72, tested="CRC-VAL-HE-7K/")
    got = kit.read(tmp_path / "raw", want, tmp_path / "work")
    assert (got.wrong, got.why) == ("", "")
    assert got.best is not None
    assert got.best.spec.labels is not None
    assert sorted(got.best.spec.labels.classes) == sorted(TISSUES)


def test_a_smaller_folder_that_no_word_calls_a_part_is_none() -> None:
    assert beside_a_test_part({"images": 30, "test": 10}) == {"images": "train", "test": "test"}
    assert beside_a_test_part({"images": 10, "test": 30}) == {}
    assert beside_a_test_part({"invalid": 30, "valid": 10}) == {}
    assert beside_a_test_part({"a": 30, "b": 30, "test": 10}) == {}
    assert beside_a_test_part({"cat": 30, "dog": 10}) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Sort tiles into nine classes", 9),
        ("Tell 4 brain tumour types apart", 4),
        ("Classify three stages of fibrosis", 3),
        ("Grade the knee (0 to 4 grades)", None),
        ("Tell COVID-19 from other types of pneumonia", None),
        ("Detect pneumonia", None),
    ],
)
def test_how_many_classes_a_request_speaks_of(text: str, number: int | None) -> None:
    assert how_many_classes(text) == number
