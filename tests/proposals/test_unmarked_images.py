"""Images that annotations do not name, and marked structures that nobody asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_picture, write_rows

from m3b.dataset.proposals.outcome import Outcome
from m3b.dataset.proposals.request import parse

REQUEST = "Detect polyps with bounding boxes on endoscopy images"
Numbers = Collection[int]


def write_images(folder: Path, count: int = 40) -> None:
    for number in range(count):
        write_picture(folder / "images" / f"case{number:02d}.png", number)


def box(number: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a box that differs by image."""
    return 3 + number % 11, 2 + number % 7, 9 + number % 5, 8 + number % 3


def write_coco(folder: Path, numbers: Numbers, marked: Numbers, labels: Sequence[str] = ("polyp",)) -> None:
    images = [
        {"id": number, "file_name": f"case{number:02d}.png", "width": 48, "height": 40} for number in sorted(numbers)
    ]
    annotations = [
        {"id": place, "image_id": number, "category_id": 1 + place % len(labels), "bbox": box(number), "iscrowd": 0,
         "area": 90}
        for place, number in enumerate(sorted(marked))
    ]  # fmt: skip
    categories = [{"id": place, "name": name} for place, name in enumerate(labels, 1)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(document), "utf-8")


def write_yolo(folder: Path, numbers: Numbers, marked: Numbers) -> None:
    (folder / "labels").mkdir()
    (folder / "classes.txt").write_text("polyp\n", "utf-8")
    for number in numbers:
        x, y, width, height = box(number)
        shares = (x + width / 2) / 48, (y + height / 2) / 40, width / 48, height / 40
        line = " ".join(["0", *(f"{share:.6f}" for share in shares)]) + "\n"
        (folder / "labels" / f"case{number:02d}.txt").write_text(line if number in marked else "", "utf-8")


def write_labelme(folder: Path, numbers: Numbers, marked: Numbers) -> None:
    (folder / "labels").mkdir()
    for number in numbers:
        x, y, width, height = box(number)
        shape = {"label": "polyp", "points": [[x, y], [x + width, y + height]], "shape_type": "rectangle", "flags": {}}
        document = {
            "version": "5.2.1", "flags": {}, "shapes": [shape] if number in marked else [], "imageData": None,
            "imagePath": f"case{number:02d}.png", "imageHeight": 40, "imageWidth": 48,
        }  # fmt: skip
        (folder / "labels" / f"case{number:02d}.json").write_text(json.dumps(document), "utf-8")


def write_table(folder: Path, numbers: Numbers, marked: Numbers) -> None:
    rows: list[list[object]] = [["image", "x", "y", "width", "height"]]
    rows += [[f"case{number:02d}.png", *(box(number) if number in marked else [""] * 4)] for number in numbers]
    write_rows(folder / "boxes.csv", rows)


WRITERS: dict[str, Callable[[Path, Numbers, Numbers], None]] = {
    "coco": write_coco,
    "yolo": write_yolo,
    "labelme": write_labelme,
    "table": write_table,
}


def doubt_codes(outcome: Outcome) -> list[str]:
    return [doubt.code for doubt in outcome.proposals[0].doubts]


@pytest.mark.parametrize("name", WRITERS)
def test_images_that_annotations_do_not_name_are_left_out_if_negatives_are_named(name: str, tmp_path: Path) -> None:
    write_images(tmp_path)
    WRITERS[name](tmp_path, range(32), range(3, 32))
    outcome = decide_folder(tmp_path, REQUEST)
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 32)
    assert "images_without_target" in doubt_codes(outcome)
    assert outcome.assumptions[0].kind == "exclusions"
    assert outcome.assumptions[0].message.startswith("8 of 40 ")


@pytest.mark.parametrize(
    ("name", "kind", "cases"),
    [("coco", "proposed", 32), ("yolo", "proposed", 40), ("labelme", "ask", 32), ("table", "ask", 32)],
)
def test_images_outside_annotations_that_only_name_marked_images(
    name: str, kind: str, cases: int, tmp_path: Path
) -> None:
    write_images(tmp_path)
    WRITERS[name](tmp_path, range(32), range(32))
    outcome = decide_folder(tmp_path, REQUEST)
    assert (outcome.kind, outcome.proposals[0].cases) == (kind, cases)
    if name == "yolo":  # by its convention an image without a file shows nothing
        assert [item.kind for item in outcome.assumptions][:1] == ["negatives"]
    if kind == "ask":
        assert outcome.question is not None
        assert (outcome.question.code, len(outcome.question.options)) == ("unlisted_images", 2)
        boxes = [proposal.manifest.boxes for proposal in outcome.proposals[:2]]
        assert [part.empty for part in boxes if part is not None] == ["leave_out", "healthy"]
        assert [proposal.cases for proposal in outcome.proposals[:2]] == [32, 40]


@pytest.mark.parametrize("name", WRITERS)
def test_more_than_a_third_outside_annotations_is_asked_about(name: str, tmp_path: Path) -> None:
    write_images(tmp_path)
    WRITERS[name](tmp_path, range(22), range(22))
    assert decide_folder(tmp_path, REQUEST).kind == "ask"


def test_images_of_a_folder_of_normals_are_negative(tmp_path: Path) -> None:
    for number in range(40):
        write_picture(tmp_path / ("polyp" if number < 30 else "normal") / f"case{number:02d}.png", number)
    write_table(tmp_path, range(30), range(30))
    outcome = decide_folder(tmp_path, REQUEST)
    assert (outcome.kind, outcome.proposals[0].cases) == ("proposed", 40)
    assert [item.kind for item in outcome.assumptions][:1] == ["negatives"]


# --- structures that are not asked for ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_text", "labels", "kind", "classes"),
    [
        ("Detect polyps with boxes on endoscopy images", ("polyp", "instrument", "artefact"), "proposed", {"polyp"}),
        ("Detect ulcers with boxes on endoscopy images", ("polyp", "instrument", "artefact"), "ask", None),
        ("Detect the annotated objects with boxes on endoscopy images", ("polyp", "ulcer"), "proposed",
         {"polyp", "ulcer"}),
        ("Detect lesions with boxes on endoscopy images", ("polyp", "ulcer"), "proposed", {"polyp", "ulcer"}),
        ("Find polyps and ulcers with boxes on endoscopy images", ("polyp", "ulcer", "ruler"), "proposed",
         {"polyp", "ulcer"}),
    ],
)  # fmt: skip
def test_labels_that_are_not_asked_for_are_no_targets(
    request_text: str, labels: tuple[str, ...], kind: str, classes: set[str] | None, tmp_path: Path
) -> None:
    write_images(tmp_path)
    write_coco(tmp_path, range(40), range(40), labels)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == kind
    if classes is None:
        assert "target_not_marked" in doubt_codes(outcome)
    else:
        boxes = outcome.proposals[0].manifest.boxes
        assert boxes is not None
        assert set(boxes.classes) == classes
        codes = [item.code for item in outcome.proposals[0].evidence]
        assert ("classes_left_out" in codes) == (classes != set(labels))


def write_values(folder: Path, names: Sequence[str], count: int = 40) -> None:
    """Write images and masks with the values 1, 2, ..., which a legend names."""
    write_images(folder, count)
    (folder / "masks").mkdir()
    for number in range(count):
        mask = np.zeros((40, 48), np.uint8)
        for place in range(len(names)):
            mask[5 + number % 9 : 15 + number % 9, 3 + 14 * place : 13 + 14 * place] = place + 1
        Image.fromarray(mask).save(folder / "masks" / f"case{number:02d}.png")
    legend = {str(value): name for value, name in enumerate(names, 1)}
    (folder / "classes.json").write_text(json.dumps(legend), "utf-8")


@pytest.mark.parametrize(
    ("request_text", "names", "kind", "classes"),
    [
        ("Segment the liver on CT images", ("liver", "spleen", "body"), "proposed", {"liver"}),
        ("Segment the liver and the spleen on CT images", ("liver", "spleen", "body"), "proposed", {"liver", "spleen"}),
        ("Segment the liver and the spleen on CT images", ("liver", "spleen"), "proposed", {"liver", "spleen"}),
        ("Segment the kidney on CT images", ("liver", "spleen", "body"), "ask", None),
    ],
)
def test_values_that_are_not_asked_for_are_background(
    request_text: str, names: tuple[str, ...], kind: str, classes: set[str] | None, tmp_path: Path
) -> None:
    write_values(tmp_path, names)
    outcome = decide_folder(tmp_path, request_text)
    assert outcome.kind == kind
    if classes is not None:
        masks = outcome.proposals[0].manifest.masks
        assert masks is not None
        assert set(masks.classes) == classes


@pytest.mark.parametrize(
    ("text", "available", "requested"),
    [
        ("Segment the tumour on MRI", ("tumour", "oedema", "body"), ("tumour",)),
        ("Segment the tumour on MRI", ("necrosis", "oedema", "enhancing tumour"),
         ("necrosis", "oedema", "enhancing tumour")),
        ("Segment the lungs on CT", ("left lung", "right lung", "heart"), ("left lung", "right lung")),
        ("Segment retinal vessels on fundus images", ("vessel", "optic disc"), ("vessel",)),
        ("Segment the lung on X-ray", ("LU", "RU"), ("LU",)),
        ("Segment lungs and heart on CT", ("left lung", "right lung", "heart", "body"),
         ("left lung", "right lung", "heart")),
        ("Segment liver and stomach on CT", ("liver", "spleen"), ("liver", "spleen")),
        ("Segment the annotated structures on CT", ("liver", "spleen"), ("liver", "spleen")),
    ],
)  # fmt: skip
def test_marked_classes_that_a_request_asks_for(
    text: str, available: tuple[str, ...], requested: tuple[str, ...]
) -> None:
    assert parse(text).list_asked(available) == requested


@pytest.mark.parametrize(
    ("text", "available", "is_unnamed"),
    [
        ("Segment the kidney on CT", ("liver", "spleen"), True),
        ("Segment the kidney on CT", ("liver",), False),
        ("Segment the brain tumour on MRI", ("necrotic core", "enhancing tumour"), False),
        ("Detect lesions on X-rays", ("nodule", "effusion"), False),
        ("Segment brain tumour sub-regions on MRI", ("necrosis", "oedema", "enhancing"), False),
        ("Detect tumours (positive and negative regions)", ("negative", "positive"), False),
        ("Find cells in blood smears", ("red blood cell", "platelet"), False),
        ("Segment kidney and stomach on CT", ("liver", "spleen"), False),
    ],
)
def test_a_single_target_that_no_class_names(text: str, available: tuple[str, ...], is_unnamed: bool) -> None:
    assert parse(text).names_none_of(available) == is_unnamed
