"""The answers on the test cases that a run folder keeps."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from m3b.data.records import Channels, Record
from m3b.isolation.untrusted import UnsafePathError
from m3b.models import Prediction, kept_answers
from m3b.models.kept_answers import find_changed_answers, keep_answers, read_answers
from m3b.models.predictions import DetectedBox, ModelInfo


def test_masks_of_each_class_and_every_other_field_come_back_under_the_names_of_the_cases(tmp_path: Path) -> None:
    locked, source = tmp_path / "locked", tmp_path / "out"
    for folder in (locked, source / "masks"):
        folder.mkdir(parents=True)
    for name in ("a", "b"):
        (source / f"masks/case_0001_{name}.nii.gz").write_bytes(name.encode())
    record = Record(Channels((("t1", "data/x/Jörg T1.nii.gz"), ("t2", "data/x/t2.nii.gz"))), patient="p7")
    masks = {name: source / f"masks/case_0001_{name}.nii.gz" for name in ("a", "b")}
    prediction = Prediction(
        "case_0001", masks=masks, volumes_ml={"a": 1.5, "b": None}, out_of_distribution=True, why="dark"
    )
    for _ in range(2):  # measured again: the earlier answers are replaced
        keep_answers(locked, "segmentation", [record], [prediction], source)
    answers = read_answers(locked, ModelInfo("segmentation", ("a", "b"), labels={"a": 1, "b": 2}))
    assert answers is not None
    (answer,) = answers.predictions.values()
    assert answer.image == record.image
    assert [file.read_bytes() for file in answer.masks.values()] == [b"a", b"b"]
    assert {file.name for file in answer.masks.values()} == {"0001-J-rg-T1-1.nii.gz", "0001-J-rg-T1-2.nii.gz"}
    assert (answer.volumes_ml, answer.out_of_distribution, answer.why) == ({"a": 1.5, "b": None}, True, "dark")
    assert find_changed_answers(locked) == []
    (locked / "answers/masks/0001-J-rg-T1-2.nii.gz").unlink()
    assert find_changed_answers(locked) == ["answers/masks/0001-J-rg-T1-2.nii.gz"]


def test_boxes_and_texts(tmp_path: Path) -> None:
    info, record = ModelInfo("detection", ("cell",)), Record("data/x/1.png")
    boxes = (DetectedBox("cell", (1.0, 2.0, 3.0, 4.0), 0.9),)
    keep_answers(tmp_path, "detection", [record], [Prediction("c", boxes=boxes)], tmp_path)
    answers = read_answers(tmp_path, info)
    assert answers is not None
    assert answers.predictions["data/x/1.png"].boxes == boxes
    keep_answers(tmp_path, "report", [record], [Prediction("c", findings="Clear.\x1b[2J", impression="")], tmp_path)
    answers = read_answers(tmp_path, ModelInfo("report", ()))
    assert answers is not None
    assert answers.predictions["data/x/1.png"].findings == "Clear.\x1b[2J"
    assert "\x1b" not in (tmp_path / "answers/answers.json").read_text()


def test_masks_that_are_too_large_are_left_out_and_their_cases_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "MAX_KEPT_BYTES", 15)
    locked, records, predictions = tmp_path / "locked", [Record(f"data/{n}.png") for n in range(2)], []
    locked.mkdir()
    for number in range(2):
        file = tmp_path / f"{number}.png"
        file.write_bytes(b"0123456789")
        predictions.append(Prediction(file.name, mask=file))
    keep_answers(locked, "segmentation", records, predictions, tmp_path)
    answers = read_answers(locked, ModelInfo("segmentation", ("a",), labels={"a": 1}))
    assert answers is not None
    assert (list(answers.predictions), answers.without_files) == (["data/0.png"], ("data/1.png",))
    assert [entry["case"] for entry in json.loads((locked / "answers/answers.json").read_text())["cases"]] == [
        "data/0.png",
        "data/1.png",
    ]


def test_a_link_in_place_of_a_mask_is_never_followed(tmp_path: Path) -> None:
    locked, source = tmp_path / "locked", tmp_path / "out"
    locked.mkdir()
    source.mkdir()
    (source / "real.png").write_bytes(b"x")
    os.symlink(source / "real.png", source / "mask.png")
    prediction = Prediction("c", mask=source / "mask.png")
    with pytest.raises(UnsafePathError):
        keep_answers(locked, "segmentation", [Record("data/a.png")], [prediction], source)


def test_a_run_without_answers(tmp_path: Path) -> None:
    assert read_answers(tmp_path, ModelInfo("report", ())) is None
