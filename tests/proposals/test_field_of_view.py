"""Masks of the field of view are no vessels and no finding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from proposals_kit import decide_folder, write_picture

SIZE = 48
REQUEST = "Segment the retinal vessels on fundus photographs"


def write_disc(path: Path, radius: int = 23, centre: tuple[int, int] = (24, 24)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    disc = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2
    Image.fromarray((255 * disc).astype(np.uint8)).save(path)


def write_lines(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = np.zeros((SIZE, SIZE), np.uint8)
    for row in np.random.default_rng(seed).integers(4, SIZE - 4, 3):
        lines[row : row + 2, 8:40] = 255
    Image.fromarray(lines).save(path)


def write_pictures(folder: Path) -> list[str]:
    names = [f"{number:02}" for number in range(12)]
    for number, name in enumerate(names):
        write_picture(folder / f"images/{name}.png", number, size=(SIZE, SIZE))
    return names


def test_one_disc_for_all_images_is_no_vessel(tmp_path: Path) -> None:
    for name in write_pictures(tmp_path):
        write_disc(tmp_path / f"mask/{name}.png")
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind != "proposed"
    assert outcome.proposals[0].doubts[0].code == "target_not_marked"


@pytest.mark.parametrize(
    ("folder", "notes"),
    [("fov", ""), ("mask", "images/ photographs\nmask/ mask of the field of view (FOV) of the camera\n")],
)
def test_discs_are_fields_of_view_by_name_or_notes(tmp_path: Path, folder: str, notes: str) -> None:
    for number, name in enumerate(write_pictures(tmp_path)):
        write_disc(tmp_path / f"{folder}/{name}.png", radius=12 + number)
    (tmp_path / "readme.txt").write_text(notes)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind != "proposed"
    assert outcome.proposals[0].doubts[0].code == "target_not_marked"


def test_vessels_beside_a_field_of_view_are_read(tmp_path: Path) -> None:
    for number, name in enumerate(write_pictures(tmp_path)):
        write_disc(tmp_path / f"mask/{name}_mask.png")
        write_lines(tmp_path / f"1st_manual/{name}_manual1.png", number)
    outcome = decide_folder(tmp_path, REQUEST)
    assert outcome.kind == "proposed"
    masks = outcome.proposals[0].manifest.masks
    assert masks is not None
    assert "1st_manual" in str(masks.files)
    assert "mask/" not in str(masks.files)


def test_a_requested_field_of_view_is_read(tmp_path: Path) -> None:
    for name in write_pictures(tmp_path):
        write_disc(tmp_path / f"mask/{name}.png")
    assert decide_folder(tmp_path, "Segment the field of view of fundus photographs").kind == "proposed"


def test_large_shapes_that_differ_are_read(tmp_path: Path) -> None:
    for number, name in enumerate(write_pictures(tmp_path)):
        write_disc(tmp_path / f"masks/{name}.png", radius=22, centre=(20 + number % 9, 28 - number % 7))
    assert decide_folder(tmp_path, "Segment the kidney on ultrasound").kind == "proposed"
