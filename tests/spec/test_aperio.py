"""Aperio ImageScope files: outlines as masks and as boxes, what layers are called, holes, and what bounds no area."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from layout_kit import SIZE, Names
from layout_kit_boxes import aperio, slides
from spec_kit import picture

from m3b.data.spec.aperio import drawn, regions
from m3b.data.spec.execute import execute
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey
from m3b.dataset.reading import read_masks
from m3b.errors import DataError

SQUARE = [(2.0, 3.0), (8.0, 3.0), (8.0, 9.0), (2.0, 9.0)]
HOLE = [(4.0, 5.0), (6.0, 5.0), (6.0, 7.0), (4.0, 7.0)]
NONE = {"nucleus": ("(none)",)}


def written(place: Path, text: str) -> Path:
    file = place / "a.xml"
    file.write_text(text)
    return file


def test_outlines_hold_the_pixels_between_their_edges_and_holes_are_left_out(tmp_path: Path) -> None:
    wanted = np.zeros(SIZE, bool)
    wanted[3:9, 2:8] = True
    found = drawn(written(tmp_path, aperio(SQUARE)), SIZE, {"nucleus": 1}, NONE)
    assert (found["nucleus"] == wanted).all()
    wanted[5:7, 4:6] = False
    found = drawn(written(tmp_path, aperio(SQUARE, HOLE, hole=1)), SIZE, {"nucleus": 1}, NONE)
    assert (found["nucleus"] == wanted).all()


@pytest.mark.parametrize(
    ("old", "new", "called"),
    [
        ("", "", "(none)"),
        ('Name=""', 'Name="Tumor"', "Tumor"),
        ('Value=""', 'Value="stroma"', "stroma"),
        ('Name="Description"', 'Name="Epithelial"', "Epithelial"),
        ('Type="0"', 'Type="0" Text="mitosis"', "mitosis"),
    ],
)
def test_what_a_layer_is_called(tmp_path: Path, old: str, new: str, called: str) -> None:
    text = aperio(SQUARE)
    assert [one.name for one in regions(written(tmp_path, text.replace(old, new) if old else text))] == [called]


def test_arrows_bound_no_area_and_ellipses_are_said(tmp_path: Path) -> None:
    assert list(regions(written(tmp_path, aperio(SQUARE).replace('Type="0"', 'Type="3"')))) == []
    with pytest.raises(DataError, match="ellipse"):
        drawn(written(tmp_path, aperio(SQUARE).replace('Type="0"', 'Type="2"')), SIZE, {"nucleus": 1}, NONE)
    with pytest.raises(DataError, match="Aperio"):
        drawn(written(tmp_path, "<other/>"), SIZE, {"nucleus": 1}, NONE)


def test_a_folder_of_slides_is_read_as_masks_and_as_boxes(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    slides(root, Names(), random.Random(0))
    found = propose(survey(root), Ask("segmentation", "Segment nuclei on histology"))
    assert sufficient(found) == ""
    made = execute(found[0].spec, root, name="set", work=tmp_path)
    mask = read_masks(made.train[0].mask, made.values, str(tmp_path))[0]
    assert mask[2:8, 2:7].all()
    boxes = propose(survey(root), Ask("detection", "Find nuclei with boxes on histology", boxes=True))
    assert sufficient(boxes) == ""
    made = execute(boxes[0].spec, root, name="set", work=tmp_path)
    assert [one.box for one in made.train[0].boxes or ()] == [(2, 2, 7, 8), (11, 4, 15, 9)]


def test_layers_are_classes(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    for at in range(10):
        picture(root / f"s{at:02d}.tif", 90, SIZE)
        layers = [aperio(SQUARE, name="Epithelial"), aperio([(10, 3), (14, 3), (14, 9)], name="Lymphocyte")]
        inner = "".join(text.split(">", 1)[1].rpartition("</Annotations>")[0] for text in layers)
        (root / f"s{at:02d}.xml").write_text(f"<Annotations>{inner}</Annotations>")
    found = propose(survey(root), Ask("segmentation", "Segment epithelial cells and lymphocytes on histology"))
    assert sufficient(found) == ""
    made = execute(found[0].spec, root, name="set", work=tmp_path)
    assert sorted(made.values) == ["Epithelial", "Lymphocyte"]
