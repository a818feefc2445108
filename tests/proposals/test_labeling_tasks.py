"""Answers of people to tasks of Label Studio as labels of images."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from proposals_kit import decide_folder, write_picture, write_rows

CLASSES = ("melanoma", "nevus")
REQUEST = "Classify dermoscopy images as melanoma or nevus"
TASKS = 48


def _upload_name(number: int) -> str:
    name = f"isic{number // 2:03d}_v{number % 2}.png"
    return f"{hashlib.sha256(name.encode()).hexdigest()[:8]}-{name}"


def _answer(choices: list[str], *, cancelled: bool = False, is_truth: bool = False) -> dict[str, Any]:
    value = {"choices": choices}
    region = {"from_name": "lesion", "to_name": "img", "type": "choices", "value": value}
    result = [] if cancelled else [region]
    return {"id": 1, "completed_by": 2, "was_cancelled": cancelled, "ground_truth": is_truth, "result": result}


def _write_tasks(
    folder: Path, answers_of: Any, *, key: str = "annotations", local: str = "", renamed: bool = False
) -> None:
    tasks = []
    for number in range(TASKS):
        upload = _upload_name(number)
        write_picture(folder / "pictures" / (upload if renamed else upload[9:]), number)
        address = f"/data/local-files/?d=pictures/{upload[9:]}" if local else f"/data/upload/3/{upload}"
        tasks.append({"id": number, key: answers_of(number), "data": {"img": address, "subject": f"S{number // 4}"}})
    (folder / "export.json").write_text(json.dumps(tasks), encoding="utf-8")


def _class_of(number: int) -> str:
    return CLASSES[(number * 7 // 3) % 2]


@pytest.mark.parametrize(
    "options",
    [{}, {"key": "completions"}, {"renamed": True}, {"local": "yes"}],
    ids=["json", "old", "renamed", "local"],
)
def test_choices_are_labels(tmp_path: Path, options: dict[str, Any]) -> None:
    _write_tasks(tmp_path, lambda number: [_answer([_class_of(number)])], **options)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    best = outcome.proposals[0]
    assert best.cases == TASKS
    assert best.manifest.patient is not None
    assert "subject" in best.manifest.patient.value


@pytest.mark.parametrize(
    ("answers", "left_out"),
    [
        ([_answer(["melanoma"], cancelled=True)], 1),
        ([_answer(["melanoma"]), _answer(["nevus"])], 1),
        ([_answer(["nevus"]), _answer(["nevus"])], 0),
        ([_answer(["melanoma"]), _answer(["nevus"], is_truth=True)], 0),
        ([_answer(["melanoma"]), _answer(["nevus"], cancelled=True)], 0),
        ([_answer(["cannot judge"])], 1),
    ],
)
def test_answers_that_count(tmp_path: Path, answers: list[dict[str, Any]], left_out: int) -> None:
    _write_tasks(tmp_path, lambda number: answers if number % 12 == 5 else [_answer([_class_of(number)])])
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == TASKS - 4 * left_out


def test_names_of_uploads_in_a_table(tmp_path: Path) -> None:
    rows = [["image", "choice", "annotator"]]
    for number in range(TASKS):
        write_picture(tmp_path / "pictures" / _upload_name(number)[9:], number)
        rows.append([f"/data/upload/3/{_upload_name(number)}", _class_of(number), "2"])
    write_rows(tmp_path / "export.csv", rows)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == TASKS


@pytest.mark.parametrize("is_of_lesion", [False, True])
def test_images_with_labels_of_their_own_are_no_channels(tmp_path: Path, *, is_of_lesion: bool) -> None:
    rows = [["file", "diagnosis"]]
    for number in range(TASKS):
        name = f"L{number // 2:03d}_{'ab'[number % 2]}.png"
        write_picture(tmp_path / "views" / name, number)
        rows.append([name, CLASSES[number // 2 % 2] if is_of_lesion else _class_of(number)])
    write_rows(tmp_path / "labels.csv", rows)
    outcome = decide_folder(tmp_path, REQUEST)
    if not is_of_lesion:
        assert outcome.kind == "proposed"
        assert not outcome.proposals[0].manifest.images.channels
    assert any(item.manifest.images.channels for item in outcome.proposals) == is_of_lesion
