"""The rules on segmentation, detection and reports: the task that is chosen, and the index that is made."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.request_words import is_mask_path
from m3b.tasks import find_requested_task


def marked(room: Any, name: str, at: int, *values: int) -> None:
    """A mask of 32 x 32 with a square of each value, elsewhere in every case."""
    pixels = np.zeros((32, 32), np.uint8)
    for number, value in enumerate(values):
        y, x = (at * 5 + 7 * number) % 25, (at * 3 + 11 * number) % 25
        pixels[y : y + 5, x : x + 5] = value
    file = room.raw / name
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


@pytest.mark.parametrize(
    ("request_text", "task"),
    [
        ("Segment the liver and spleen on CT", "segmentation"),
        ("Segmentiere die Lunge", "segmentation"),
        ("Find the haemorrhage and outline it", "segmentation"),
        ("How much of the lung is infected? Draw it into the CT.", "segmentation"),
        ("Colour each vertebra of a CT with its own number", "segmentation"),
        ("Localise nodules on chest X-rays", "detection"),
        ("Draw bounding boxes around fractures", "detection"),
        ("Find white blood cells and platelets in blood smears, with boxes", "detection"),
        ("Put a box around each nodule", "detection"),
        ("Tell box jellyfish stings from burns", ""),
        ("Write the radiology report of a brain MRI", "report"),
        ("Schreibe aus einer Röntgenaufnahme des Brustkorbs den Befundbericht", "report"),
        ("Rédiger automatiquement le compte rendu d'une IRM cérébrale", "report"),
        ("Draft the radiologist's text for a thoracic CT scan", "report"),
        ("Tell pneumonia from normal", ""),
        ("Detect pneumonia on chest X-rays", ""),
    ],
)
def test_the_task_in_a_request(request_text: str, task: str) -> None:
    assert find_requested_task(request_text) == task


@pytest.mark.parametrize(
    ("path", "is_mask"),
    [
        ("masks/c1.png", True), ("labelsTr/c1.nii.gz", True), ("a/c1_seg-vert_msk.nii.gz", True), ("p/GOLD_1.nii", True),
        ("Liver_Mask/c.nii.gz", True), ("label/label0001.nii.gz", True), ("images/c1.png", False),
        ("Lung-Seg_40cases/c1.nii.gz", False), ("imagesTr/c1.nii.gz", False), ("p/flair.nii.gz", False),
    ],
)  # fmt: skip
def test_what_is_called_like_a_mask(path: str, is_mask: bool) -> None:
    assert is_mask_path(path) is is_mask


def test_masks_beside_images(room: Any) -> None:
    for at in range(10, 22):
        room.image(f"images/c{at}.png", 32)
        marked(room, f"masks/c{at}.png", at, 1, 2, 6, 7)
    room.write("labels.json", '["spleen", "left kidney", "x", "y", "z", "liver", "right kidney"]')
    index = room.index("Segment the organs on CT", "segmentation")
    assert {"spleen": 1, "left kidney": 2, "liver": 6, "right kidney": 7}.items() <= dict(index.values).items()
    assert len(index.records) == 12
    selection = room.select("Segment the abdominal organs on CT")
    assert (selection["task"], selection["metric"]) == ("segmentation", "dice")


def test_masks_in_folders_of_cases_and_the_sequence_that_is_asked_for(room: Any) -> None:
    for at in range(12):
        for name in ("t1", "flair"):
            room.image(f"patient{at:02d}/{name}.png", 32)
        marked(room, f"patient{at:02d}/gold.png", at, 255)
    for name in ("flair", "t1"):
        best = room.brief(f"Detect lesions on {name.upper()} MRI", "detection").facts.readings[0]
        assert f"/{name}.png" in json.dumps(best.manifest["images"]["files"])
    index = room.index("Detect lesions on FLAIR MRI", "detection")
    assert list(index.values.values()) == [255]
    selection = room.select("Detect lesions on FLAIR MRI of the brain")
    assert (selection["task"], selection["metric"]) == ("detection", "lesion_f1")


def test_boxes_in_coco_with_the_patient_inside(room: Any) -> None:
    room.images("images/p{}.png", 24)
    raw = {
        "categories": [{"id": 1, "name": "nodule"}],
        "images": [{"id": at, "file_name": f"p{at}.png", "info": {"patient_id": f"z{at // 2}"}} for at in range(24)],
        "annotations": [{"image_id": at, "category_id": 1, "bbox": [1, 1, 3, 3 + at % 2]} for at in range(20)],
    }
    room.write("notes/boxes.json", json.dumps(raw))
    request = "Localise nodules on chest X-rays"
    index = room.index(request, "detection")
    assert len(index.records) == 24
    assert sum(bool(record.boxes) for record in index.records) == 20
    selection = room.select(request)
    assert (selection["task"], selection["metric"]) == ("detection", "map_50")


def test_reports_in_a_table(room: Any) -> None:
    lines = ["image_id,findings,impression"]
    for at in range(30):
        for view in (1, 2):
            room.image(f"images/{at}_IM-{view}.png")
            lines.append(
                f"{at}_IM-{view}.png,The heart of number {at} is large and the lungs are clear.,Large heart {at}."
            )
    room.write("reports.csv", "\n".join(lines))
    request = "Write reports for chest X-rays"
    index = room.index(request, "report")
    assert {file for record in index.records for file in record.files} == {
        f"data/x/images/{at}_IM-{view}.png" for at in range(30) for view in (1, 2)
    }
    numbers = [{str(record.image).split("_")[0] for record in side} for side in (index.train, index.test)]
    assert not numbers[0] & numbers[1], "the views of a study stay on one side"
    selection = room.select(request)
    assert (selection["task"], selection["metric"]) == ("report", "bleu_4")


def test_reports_in_two_tables(room: Any) -> None:
    files, texts = ["uid,filename,projection"], ["uid,findings,impression"]
    for at in range(30):
        texts.append(f"{at},Number {at} shows no effusion and no opacity at all.,Normal number {at}.")
        for view in ("frontal", "lateral"):
            room.image(f"images/{at}_{view}.png")
            files.append(f"{at},{at}_{view}.png,{view}")
    room.write("projections.csv", "\n".join(files))
    room.write("reports.csv", "\n".join(texts))
    index = room.index("Write reports for chest X-rays", "report")
    assert len(index.records) == 30
    assert all(record.report.impression.startswith("Normal number") for record in index.records)


@pytest.mark.parametrize("task", ["segmentation", "detection", "report"])
def test_what_is_beyond_them_is_said(room: Any, task: str) -> None:
    room.images("a/{}.png", 8)
    room.images("b/{}.png", 8)
    assert room.brief("Do it", task).facts.unusable


def test_each_task_sees_its_own_records(room: Any) -> None:
    room.images("a/{}.png", 3)
    assert '"mask_path"' in room.brief("x", "segmentation").text
    assert '"mask_path"' not in room.brief("x", "report").text


def test_a_mask_is_shown_with_its_image(room: Any) -> None:
    for at in range(10, 20):
        room.image(f"images/c{at}.png", 32)
        marked(room, f"masks/c{at}.png", 0, 1, 2)
    text = room.brief("Segment", "segmentation").text
    assert "data/x/masks/c10.png: " in text
    assert "data/x/images/c10.png: " in text
    assert "values 0 x 974, 1 x 25, 2 x 25" in text
