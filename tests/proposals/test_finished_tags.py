"""Images without the tag of those that were looked at, or with one that says they cannot be assessed, are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from proposals_kit import decide_folder, write_picture

from m3b.dataset.proposals.restrictions import is_finished_tag, is_unassessable_tag

IMAGES = 45


def _write_task(folder: Path, tag: str, *, n_tagged: int, note: str = "") -> None:
    """Write frames of which every third has no box; the first have a tag, and only they have boxes."""
    elements = []
    for number in range(IMAGES):
        name = f"clip{number // 5}_{number % 5}.png"
        write_picture(folder / "frames" / name, number)
        x, y = 2 + number % 9, 3 + number % 7
        box = f'<box label="caries" xtl="{x}" ytl="{y}" xbr="{x + 9}" ybr="{y + 8}" occluded="0"/>'
        content = box if number % 3 and number < n_tagged else ""
        content += f'<tag label="{tag}" source="manual"/>' if tag and number < n_tagged else ""
        elements.append(f'<image id="{number}" name="{name}" width="48" height="40">{content}</image>')
    text = f"<annotations><version>1.1</version>{''.join(elements)}</annotations>"
    (folder / "annotations.xml").write_text(text)
    if note:
        (folder / "LIESMICH.txt").write_text(note, encoding="utf-8")


@pytest.mark.parametrize(
    ("tag", "n_tagged", "note", "cases"),
    [
        ("reviewed", 39, "", 39),
        ("reviewed", 24, "", 24),
        ("ok_a", 33, "Bilder mit ok_a sind fertig.", 33),
        ("ok_a", 33, "Bilder mit ok_a sind unscharf.", IMAGES),
        ("blurred", 33, "", IMAGES),
        ("not_reviewed", 33, "", IMAGES),
        ("reviewed", IMAGES, "", IMAGES),
        ("", IMAGES, "", IMAGES),
    ],
)
def test_images_without_the_tag_are_left_out(tmp_path: Path, tag: str, n_tagged: int, note: str, cases: int) -> None:
    _write_task(tmp_path, tag, n_tagged=n_tagged, note=note)
    outcome = decide_folder(tmp_path, "Detect caries with boxes")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == cases


@pytest.mark.parametrize(
    ("tag", "notes", "is_finished"),
    [
        ("done", "", True),
        ("geprüft", "", True),
        ("todo", "", False),
        ("unfinished", "", False),
        ("set2", "Images of set2 have been checked.", True),
        ("set2", "Images of set2 have not been checked.", False),
        ("set2", "Images of set3 have been checked.", False),
        ("reviewed: yes", "", True),
        ("reviewed: no", "", False),
        ("annotated by: AB", "", False),
    ],
)
def test_tags_of_images_that_were_looked_at(tag: str, notes: str, *, is_finished: bool) -> None:
    assert is_finished_tag(tag, notes) == is_finished


@pytest.mark.parametrize(
    ("tag", "is_unassessable"),
    [
        ("ungradable", True),
        ("gradable: no", True),
        ("gradable: yes", False),
        ("ungradable: no", False),
        ("quality: not assessable", True),
        ("beurteilbar: nein", True),
        ("不可评估", True),
        ("quality: poor", False),
        ("gradable", False),
    ],
)
def test_tags_of_images_that_cannot_be_assessed(tag: str, *, is_unassessable: bool) -> None:
    assert is_unassessable_tag(tag) == is_unassessable


def _write_via(folder: Path, attribute: str, values: tuple[str, str], *, has_marks: bool) -> None:
    """Write photographs of which the last six have the second value, and regions only if `has_marks`."""
    images: dict[str, Any] = {}
    for number in range(40):
        name = f"photo{number}.png"
        write_picture(folder / "photos" / name, number)
        is_last = number >= 34
        shape = {"name": "circle", "cx": 20 + number % 5, "cy": 18, "r": 7}
        regions = [{"shape_attributes": shape, "region_attributes": {"structure": "optic disc"}}]
        images[f"{name}100"] = {
            "filename": name,
            "size": 100,
            "regions": regions if has_marks or not is_last else [],
            "file_attributes": {attribute: values[is_last]},
        }
    (folder / "via_region_data.json").write_text(json.dumps(images))


@pytest.mark.parametrize(
    ("attribute", "values", "has_marks", "cases"),
    [
        ("gradable", ("yes", "no"), False, 34),
        ("quality", ("good", "ungradable"), False, 34),
        ("gradable", ("yes", "no"), True, 40),
        ("eye", ("left", "right"), False, 40),
    ],
)
def test_images_that_cannot_be_assessed_are_left_out(
    tmp_path: Path, attribute: str, values: tuple[str, str], cases: int, *, has_marks: bool
) -> None:
    _write_via(tmp_path, attribute, values, has_marks=has_marks)
    outcome = decide_folder(tmp_path, "Segment the optic disc")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == cases


def test_flags_of_labelme_say_that_an_image_cannot_be_assessed(tmp_path: Path) -> None:
    for number in range(40):
        write_picture(tmp_path / f"photo{number}.png", number)
        points = [[10, 10], [30, 12], [24, 28 + number % 4]]
        document = {
            "flags": {"ungradable": number >= 34},
            "shapes": [{"label": "wound", "points": points, "shape_type": "polygon"}] if number < 34 else [],
            "imagePath": f"photo{number}.png",
            "imageWidth": 48,
            "imageHeight": 40,
        }
        (tmp_path / f"photo{number}.json").write_text(json.dumps(document))
    outcome = decide_folder(tmp_path, "Segment the wound")
    assert outcome.kind == "proposed"
    assert outcome.proposals[0].cases == 34
