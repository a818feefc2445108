"""COCO files whose annotations name classes by several keys: `category_id_1` for the quadrant, `category_id_2` for the diagnosis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from proposals_kit import decide_folder, write_picture

from m3b.dataset.manifest.execute import execute
from m3b.dataset.survey.survey import survey
from m3b.dataset.survey.walk import walk

QUADRANTS, DIAGNOSES, SHAPES = ("upper", "lower"), ("caries", "impacted"), ("round", "oval")
N_IMAGES = 16


def write_set(folder: Path, *name_lists: tuple[str, ...], is_rectangle: bool = True) -> None:
    """Write images with two boxes each, and their COCO document with one category key for each list of names."""
    annotations: list[dict[str, Any]] = []
    for number in range(N_IMAGES):
        write_picture(folder / "images" / f"{folder.name}_{number}.png", number)
        for place in range(2):
            x, y = 5 + 15 * place, 8 + number
            corner = 0 if is_rectangle else 4
            outline = [x, y, x + 10, y, x + 10, y + 8, x + corner, y + 8]
            keys = {f"category_id_{at}": (number + place * at) % 2 for at in range(1, len(name_lists) + 1)}
            mark = {"id": len(annotations) + 1, "image_id": number, "bbox": [x, y, 10, 8], "segmentation": [outline]}
            annotations.append({**mark, **keys})
    images = [
        {"id": number, "file_name": f"{folder.name}_{number}.png", "width": 48, "height": 40}
        for number in range(N_IMAGES)
    ]
    categories = {
        f"categories_{at}": [{"id": id, "name": name} for id, name in enumerate(names)]
        for at, names in enumerate(name_lists, 1)
    }
    document = {"images": images, "annotations": annotations, **categories}
    (folder / f"{folder.name}.json").write_text(json.dumps(document), encoding="utf-8")


def test_the_key_whose_classes_the_request_names(tmp_path: Path) -> None:
    write_set(tmp_path / "quadrants", QUADRANTS)
    write_set(tmp_path / "diseases", QUADRANTS, DIAGNOSES)
    outcome = decide_folder(tmp_path, "Detect teeth with caries or impacted on dental X-rays")
    assert outcome.kind == "proposed", outcome.question
    manifest = outcome.proposals[0].manifest
    assert manifest.boxes is not None
    assert (manifest.boxes.category_key, set(manifest.boxes.classes)) == ("category_id_2", set(DIAGNOSES))
    index = execute(manifest, walk(tmp_path), name="teeth", work=tmp_path / "work")
    cases = [*index.train, *index.test]
    assert len(cases) == N_IMAGES  # images of the other document are no negatives
    assert all("/diseases_" in str(case.image) for case in cases)


def test_several_keys_and_no_class_in_the_request_are_asked_about(tmp_path: Path) -> None:
    write_set(tmp_path / "lesions", SHAPES, DIAGNOSES)
    outcome = decide_folder(tmp_path, "Detect lesions on X-rays")
    assert (outcome.kind, outcome.question and outcome.question.code) == ("ask", "rival")


def test_one_key_with_a_number_is_the_class(tmp_path: Path) -> None:
    write_set(tmp_path / "teeth", DIAGNOSES)
    (facts,) = survey(tmp_path).annotations
    assert {value.text: value.count for value in facts.classes} == dict.fromkeys(DIAGNOSES, N_IMAGES)
    assert facts.category_key == ""


@pytest.mark.parametrize(("is_rectangle", "shapes"), [(True, ("box",)), (False, ("box", "outline"))])
def test_outlines_that_all_are_rectangles_of_their_boxes_are_no_masks(
    tmp_path: Path, is_rectangle: bool, shapes: tuple[str, ...]
) -> None:
    write_set(tmp_path / "teeth", DIAGNOSES, is_rectangle=is_rectangle)
    assert [facts.shapes for facts in survey(tmp_path).annotations] == [shapes]
