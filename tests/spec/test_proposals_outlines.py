"""Proposed readings of LabelMe, COCO and DICOM SEG files as masks: found in the survey, counted, taken where it suffices."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from layout_kit import Names, Verdict, Want, coco_parts
from layout_kit import read as asked
from pycocotools import mask as runs
from spec_kit import picture
from test_spec_outlines import BOX, SIZE, segments, series

from m3b.data.spec.execute import execute
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey
from m3b.dataset.reading import read_masks

SHAPES = [
    {"label": "Polyp", "shape_type": "polygon", "points": BOX},
    {"label": "instrument", "shape_type": "polygon", "points": [[8, 7], [12, 7], [12, 10], [8, 10]]},
]


def labelme(file: Path, shapes: list[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({"version": "5.2", "flags": {}, "shapes": shapes, "imagePath": file.with_suffix(".png").name,
                    "imageData": None, "imageHeight": SIZE[0], "imageWidth": SIZE[1]})
    )  # fmt: skip


def read(root: Path, request: str, cases: int, *classes: str) -> Verdict:
    work = root.parent / "work"
    work.mkdir(exist_ok=True)
    return asked(root, Want(request, "segmentation", cases, frozenset(classes)), work)


@pytest.mark.parametrize("place", ["{}.json", "../notes/{}.json"])
def test_labelme_files_beside_their_images_or_in_a_folder_of_their_own(tmp_path: Path, place: str) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / f"images/c{at:02d}.png", size=SIZE)
        labelme(root / "images" / place.format(f"c{at:02d}"), [SHAPES[0], {**SHAPES[0], "label": "polyp"}])
    found = read(root, "Segment polyps on colonoscopy images", 10, "polyp")
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    assert found.best.evidence[0] == "20 outlines on 10 of 10 images: Polyp 10, polyp 10"
    assert found.best.spec.masks is not None
    assert found.best.spec.masks.combine == "one"


def test_stems_that_start_anew_in_every_folder_are_told_apart_by_it(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(12):
        picture(root / f"images/p{at // 3}/{at % 3}.png", size=SIZE)
        labelme(root / f"notes/p{at // 3}/{at % 3}.json", SHAPES[:1])
    assert read(root, "Segment polyps on endoscopy images", 12, "polyp").wrong == ""


def test_several_classes_are_a_mask_each_and_a_request_for_one_takes_one(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / f"c{at:02d}.png", size=SIZE)
        labelme(root / f"c{at:02d}.json", SHAPES)
    both = read(root, "Segment polyps and instruments on endoscopy images", 10, "polyp", "instrument")
    assert (both.wrong, both.why) == ("", "")
    assert both.best is not None
    made = execute(both.best.spec, root, name="set", work=tmp_path / "work")
    layers = read_masks(made.train[0].mask, made.values, str(tmp_path / "work"))
    assert sorted(layers.sum(axis=(1, 2)).tolist()) == [12, 35]
    assert (layers[0] & layers[1]).sum() == 1, "what overlaps stays in both"
    one = read(root, "Segment polyps on endoscopy images", 10, "polyp")
    assert (one.wrong, one.why) == ("", "")
    assert one.best is not None
    assert "not asked for, so background: instrument" in one.best.evidence


@pytest.mark.parametrize("kind", ["polygons", "run lengths"])
def test_coco_files_of_two_parts(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "raw"
    for part, count in (("train", 10), ("test", 4)):
        images, marks = [], []
        lesion = np.zeros(SIZE, np.uint8)
        lesion[7:10, 8:12] = 1
        coded = {"size": list(SIZE), "counts": runs.encode(np.asfortranarray(lesion))["counts"].decode()}
        drawn = coded if kind == "run lengths" else [[v for point in BOX for v in point]]
        for at in range(count):
            picture(root / part / f"{part}_{at:02d}.png", size=SIZE)
            images.append({"id": at, "file_name": f"{part}_{at:02d}.png", "height": SIZE[0], "width": SIZE[1]})
            marks.append({"id": at, "image_id": at, "category_id": 3, "bbox": [2, 3, 7, 5], "segmentation": drawn})
        names = [{"id": 1, "name": "vessel"}, {"id": 3, "name": "lesion"}]
        (root / f"{part}.json").write_text(json.dumps({"images": images, "annotations": marks, "categories": names}))
    found = read(root, "Segment lesions on skin photographs", 14, "lesion")
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    made = execute(found.best.spec, root, name="set", work=tmp_path / "work")
    assert {"test_" in str(record.image) for record in made.test} == {True}, "the data set's own split"


def test_rectangles_alone_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / f"c{at:02d}.png", size=SIZE)
        labelme(root / f"c{at:02d}.json", [{"label": "polyp", "shape_type": "rectangle", "points": [[2, 2], [8, 8]]}])
    assert "rectangles alone" in read(root, "Segment polyps on endoscopy images", 10, "polyp").why


def test_outlines_of_another_organ_are_asked_about(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / f"c{at:02d}.png", size=SIZE)
        labelme(root / f"c{at:02d}.json", [{**SHAPES[0], "label": "kidney"}])
    assert "another organ" in read(root, "Segment the liver on ultrasound images", 10, "kidney").why


def test_segments_of_dicom_lie_on_their_series(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for number in range(6):
        uid = f"1.2.3.100{number}"
        series(root / f"p{number}/ct", uid)
        segments(root / f"p{number}/seg/s.dcm", uid)
    found = read(root, "Segment the organ and the tumour on CT", 6, "organ", "tumour")
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    assert found.best.evidence[0].endswith("on 6 series: Organ 6, Tumour 6")


def test_boxes_are_asked_for_where_the_marks_are_outlines_too(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / f"c{at:02d}.png", size=SIZE)
        labelme(root / f"c{at:02d}.json", SHAPES[:1])
    found = propose(survey(root), Ask("detection", "Find polyps on endoscopy images, with boxes", boxes=True))
    assert sufficient(found) == ""
    assert found[0].spec.boxes is not None


def test_boxes_of_two_coco_files_are_read_from_both_and_what_neither_lists_is_not_healthy(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    coco_parts(root, Names(), random.Random(0))
    picture(root / "test/unlisted.png")
    request = "Find nodules and masses on chest X-rays, with boxes"
    found = asked(root, Want(request, "detection", 14, frozenset({"nodule", "mass"}), boxes=True), tmp_path)
    assert (found.wrong, found.why) == ("", "")
    assert found.best is not None
    made = execute(found.best.spec, root, name="set", work=tmp_path)
    assert all(record.boxes for record in (*made.train, *made.test))
