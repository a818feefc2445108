"""Cases whose true masks are boxes are measured by boxes, and by nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from audit_kit import find_metric_problem
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.models import Prediction
from m3b.tasks.segmentation.family import FAMILY

VALUES = {"a": 1, "b": 2}


def _write(file: Path, array: np.ndarray) -> str:
    Image.fromarray(array.astype(np.uint8)).save(file)
    return file.name


def _draw(folder: Path, *, overlapping: bool) -> tuple[Record, Prediction]:
    """A disc of `a` in its box, and a box of `b` of which the answer has the upper half."""
    disc = np.hypot(*np.mgrid[-20:20, -20:20]) <= 8
    a, b, half = (np.zeros((40, 40), bool) for _ in range(3))
    a[12:29, 12:29], b[30:38, 4:10], half[30:34, 4:10] = True, True, True
    image = _write(folder / "image.png", 100 * disc)
    if overlapping:
        mask: Any = {"a": _write(folder / "a.png", a), "b": _write(folder / "b.png", b)}
        masks = {
            name: folder / _write(folder / f"answer_{name}.png", part) for name, part in (("a", disc), ("b", half))
        }
        answer = Prediction(image, masks=masks)
    else:
        mask = _write(folder / "mask.png", a + 2 * b)
        answer = Prediction(image, mask=folder / _write(folder / "answer.png", disc + 2 * half))
    return Record(image, patient="p1", mask=mask, extra={"mask_origin": "boxes"}), answer


@pytest.mark.parametrize("overlapping", [False, True])
def test_boxes_of_answers_are_compared_with_boxes(tmp_path: Path, overlapping: bool) -> None:
    record, answer = _draw(tmp_path, overlapping=overlapping)
    index = Index((record,), (record,), ("a", "b"), "segmentation", VALUES)
    assert FAMILY.get_default_metric(index) == "box_iou"
    row = FAMILY.measure(record, answer, index, tmp_path)
    baseline = FAMILY.predict_baseline(index.train, index.test, index, tmp_path)
    scores = FAMILY.score([row], index, primary="box_iou", baseline=baseline)
    assert list(scores.metrics) == ["box_iou"]
    assert [label.metrics["box_iou"].value for label in scores.per_label] == pytest.approx([1.0, 0.5])
    assert scores.primary.value == pytest.approx(0.75)
    assert scores.details["boxed"] is True
    with pytest.raises(ValueError, match="dice of outlines cannot be measured"):
        FAMILY.score([row], index, primary="dice")
    outlined = {key: value for key, value in row.items() if key != "boxed"}
    with pytest.raises(ValueError, match="others outlines"):
        FAMILY.score([row, outlined], index, primary="box_iou")
    with pytest.raises(ValueError, match="choose dice"):
        FAMILY.score([outlined], index, primary="box_iou")


def test_the_audit_says_which_metric_boxes_and_outlines_allow() -> None:
    records = tuple(
        Record(f"{n}.png", patient=f"p{n}", mask=f"m{n}.png", extra={"mask_origin": "boxes"}) for n in range(6)
    )
    boxed = Index(records[:4], records[4:], ("a",), "segmentation", {"a": 1})
    assert "box_iou measures" in find_metric_problem(boxed, "dice")
    assert not find_metric_problem(boxed, "box_iou")
    outlines = tuple(Record(f"{n}.png", patient=f"p{n}", mask=f"m{n}.png") for n in range(6))
    index = Index(outlines[:4], outlines[4:], ("a",), "segmentation", {"a": 1})
    assert not find_metric_problem(index, "dice")
    assert "take dice" in find_metric_problem(index, "box_iou")
