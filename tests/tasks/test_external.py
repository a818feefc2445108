"""Cases of another set brought to a model's classes by name, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.data.index import Index
from m3b.data.records import BoxLabel, Channels, Record
from m3b.errors import DataError
from m3b.run.external_sets import fit_to_model_classes
from m3b.tasks.worker_jobs import CompareRequest, RenumberRequest, compare_images, renumber_masks


def pictures(*labels: tuple[str, ...], prefix: str = "a") -> tuple[Record, ...]:
    return tuple(Record(f"{prefix}{at}.png", classes, f"p{at}") for at, classes in enumerate(labels))


MODEL = Index(
    pictures(("normal",), ("pneumonia",), ("tb",)), pictures(("normal",), prefix="t"), ("normal", "pneumonia", "tb")
)
MASKS = Index((Record("a.png", mask="m.png"),), (), ("liver", "spleen"), "segmentation", {"liver": 1, "spleen": 6})
BOXES = Index((Record("a.png", boxes=(BoxLabel("cell", (0, 0, 2, 2)),)),), (), ("cell",), "detection")


def test_names_meet_without_case_and_signs() -> None:
    result = fit_to_model_classes(
        pictures(("NORMAL",), ("Pneumonia",), ("cancer",)), {"NORMAL": 0, "Pneumonia": 1, "cancer": 2}, MODEL
    )
    assert [record.labels for record in result.records] == [("normal",), ("pneumonia",)]
    assert "cancer" in result.notes[0]
    assert "1 cases of another class are left out" in result.notes[1]


def test_numbers_of_masks_follow_the_names() -> None:
    record = Record("b.png", mask="n.png")
    assert fit_to_model_classes((record,), {"spleen": 6, "Liver": 1}, MASKS).mask_values == ()
    assert fit_to_model_classes((record,), {"liver": 6, "spleen": 1}, MASKS).mask_values == ((6, 1), (1, 6))
    assert fit_to_model_classes((record,), {"liver": 1, "spleen": 2, "heart": 6}, MASKS).mask_values == ((1, 1), (2, 6))
    with pytest.raises(DataError, match="does not speak of spleen"):
        fit_to_model_classes((record,), {"liver": 1}, MASKS)


@pytest.mark.parametrize(
    ("records", "values", "index", "words"),
    [
        (pictures(("x",), ("y",)), {"x": 0, "y": 1}, MODEL, "does not speak of normal, pneumonia, tb"),
        ((Record("b.png", mask="n.png"),), {"cell": 1}, BOXES, "has masks"),
        ((Record("b.png", boxes=()),), {"liver": 0, "spleen": 1}, replace(MASKS, task="detection"), "has no masks"),
        ((Record("b.png", mask="n.png", extra={"mask_origin": "boxes"}),), {"liver": 1}, MASKS, "masks are boxes"),
        ((Record("b.png", mask={"liver": "l.png"}),), {"liver": 1, "spleen": 2}, MASKS, "one mask file for all"),
        ((Record(Channels((("t1", "b.png"), ("t2", "c.png"))), ("tb",)),), {"tb": 0, "normal": 1}, MODEL, "other channels"),
        ((Record("b.png", ("tb", "normal")),), {"tb": 0, "normal": 1}, MODEL, "None of its cases"),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_why(records: Any, values: dict[str, int], index: Index, words: str) -> None:
    with pytest.raises(DataError, match=words):
        fit_to_model_classes(records, values, index)


def test_labels_that_are_not_known_get_the_names_of_the_model() -> None:
    index = replace(MODEL, train=(Record("a.png", ("tb", "normal")),))
    record = Record("b.png", ("TB",), extra={"unknown_labels": ["Pneumonia", "dust"]})
    classes = {"TB": 0, "NORMAL": 1, "Pneumonia": 2, "dust": 3}
    [renamed] = fit_to_model_classes((record,), classes, index).records
    assert renamed.labels == ("tb",)
    assert renamed.extra["unknown_labels"] == ["pneumonia"]


def test_a_set_may_lack_channels_of_the_model() -> None:
    names = ("flair", "t1")
    full_record = Record(Channels(tuple((name, f"{name}.nii") for name in names)), mask="a.nii")
    index = replace(MASKS, train=(full_record,), test=(full_record,))
    partial_record = Record(Channels((("t1", "b.nii"),)), mask="n.nii")
    assert fit_to_model_classes((partial_record,), {"liver": 1, "spleen": 2}, index).records == (partial_record,)
    with pytest.raises(DataError, match="other channels"):
        fit_to_model_classes((Record("b.nii", mask="n.nii"),), {"liver": 1, "spleen": 2}, index)


def test_boxes_of_other_classes_are_left_out() -> None:
    record = Record("b.png", boxes=(BoxLabel("Cell", (0, 0, 2, 2)), BoxLabel("dust", (1, 1, 3, 3))))
    assert fit_to_model_classes((record,), {"Cell": 0, "dust": 1}, BOXES).records[0].boxes == (
        BoxLabel("cell", (0, 0, 2, 2)),
    )


def test_masks_are_written_anew(tmp_path: Path) -> None:
    mask = np.zeros((6, 8), np.uint8)
    mask[1:3], mask[4:] = 6, 9
    Image.fromarray(mask).save(tmp_path / "n.png")
    (tmp_path / "new").mkdir()
    [name] = renumber_masks(
        RenumberRequest([Record("b.png", mask="n.png")], tmp_path, tmp_path / "new", [(6, 1), (1, 6)])
    )
    assert np.array_equal(np.asarray(Image.open(tmp_path / "new" / name)), (mask == 6).astype(np.uint8))


def test_copies_of_training_images_are_found(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = [random.integers(0, 255, (48, 48), np.uint8) for _ in range(4)]
    for name, pixels in zip(
        ("a.png", "b.png", "c.png", "d.png"), (images[0], images[1], images[0], images[2]), strict=True
    ):
        Image.fromarray(pixels).save(tmp_path / name)
    comparison = compare_images(
        CompareRequest([Record("a.png"), Record("b.png")], [Record("c.png"), Record("d.png")], tmp_path)
    )
    assert comparison.same_keys == ["c.png"]
    assert (comparison.near_count, comparison.is_complete) == (0, True)
