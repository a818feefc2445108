"""Overlays: contours, boxes and planes lie where the image has them."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.errors import DataError
from m3b.models.overlay import (
    COLOURS,
    DrawnBox,
    draw_overlay,
    load_font,
    make_panels,
    mask_outline,
    paint_panel,
    physical_extent,
    to_display_rgb,
    wrap_text,
)
from m3b.models.predictions import DetectedBox, ModelInfo, Prediction


def marked(file: Path, number: int, first_column: int = 0, last_column: int | None = None) -> np.ndarray:
    """Where a picture has the colour of a class, in its left part (without the legend)."""
    pixels = np.asarray(Image.open(file))
    positions: np.ndarray = np.argwhere((pixels[:, first_column:last_column] == COLOURS[number]).all(axis=-1))
    return positions


@pytest.fixture
def picture(tmp_path: Path) -> str:
    Image.fromarray(np.full((40, 80), 90, np.uint8)).save(tmp_path / "i.png")
    return str(tmp_path / "i.png")


def test_boxes_and_contours_of_a_picture(tmp_path: Path, picture: str) -> None:
    """An 80 x 40 picture is drawn 714 wide, 8.925 times as large, 12 pixels from the corner."""
    mask = np.zeros((40, 80), np.uint8)
    mask[20:30, 50:70] = 6
    np.save(tmp_path / "m.npy", mask)
    promise = ModelInfo("detection", ("a", "b"), labels={"a": 2, "b": 6})
    boxes = (DetectedBox("a", (8, 4, 24, 12), 0.9), DetectedBox("a", (60, 2, 79, 8), 0.1))
    overlay = draw_overlay(
        Prediction(picture, mask=tmp_path / "m.npy", boxes=boxes, anomaly_score=0.5), promise, tmp_path / "o.png"
    )
    scale = 714 / 80
    rows, columns = marked(overlay, 0, last_column=726).T
    assert rows.min() == pytest.approx(12 + 4 * scale - 15, abs=16)  # the score is written above the box
    assert rows.max() == pytest.approx(12 + 12 * scale, abs=3)
    assert (columns.min(), columns.max()) == pytest.approx((12 + 8 * scale, 12 + 24 * scale), abs=3)
    rows, columns = marked(overlay, 1, last_column=726).T
    assert (rows.min(), rows.max()) == pytest.approx((12 + 20 * scale, 12 + 30 * scale), abs=3)
    assert (columns.min(), columns.max()) == pytest.approx((12 + 50 * scale, 12 + 70 * scale), abs=3)
    assert len(marked(overlay, 0, first_column=726)) > 50  # the legend's swatch


def test_three_planes_through_the_centre_of_mass(tmp_path: Path) -> None:
    """Head on top, proportions by the spacing, whatever way the file is stored."""
    array = np.zeros((30, 20, 10), np.int16)  # RAS: x, y, z
    array[5:11, 12:16, 6:8] = 1
    affine = np.diag([1.0, 2.0, 3.0, 1.0])
    nib.save(nib.Nifti1Image(np.zeros_like(array), affine), tmp_path / "i.nii.gz")
    nib.save(nib.Nifti1Image(array, affine), tmp_path / "m.nii.gz")
    from m3b.dataset.reading import read_image, read_masks

    image = read_image(str(tmp_path / "i.nii.gz"))
    masks = read_masks(str(tmp_path / "m.nii.gz"), {"a": 1})
    panels = make_panels(to_display_rgb(image.array, ""), masks, [], image.spacing, True)
    assert [panel.title.split(",")[0] for panel in panels] == ["axial", "coronal", "sagittal"]
    assert [panel.picture.shape[:2] for panel in panels] == [(20, 30), (10, 30), (10, 20)]
    assert [panel.pixel_size for panel in panels] == [(2, 1), (3, 1), (3, 2)]
    assert [int(panel.masks.sum()) for panel in panels] == [24, 12, 8]
    rows = np.argwhere(panels[1].masks[0])[:, 0]
    assert (rows.min(), rows.max()) == (2, 3)  # z 6 and 7 of 10, counted from the head
    columns = np.argwhere(panels[1].masks[0])[:, 1]
    assert columns.min() == 30 - 11  # right is on the left
    assert [physical_extent(panel) for panel in panels] == [40, 30, 40]
    paintings = [paint_panel(panel, 10) for panel in panels]
    assert [painting.size for painting in paintings] == [(300, 400), (300, 300), (400, 300)]


def test_planes_without_a_mask() -> None:
    volume, none = np.zeros((8, 9, 10, 3), np.uint8), np.zeros((0, 8, 9, 10), bool)
    middle = make_panels(volume, none, [], None, False)
    assert [panel.title for panel in middle] == ["slice 6 of 10", "row 5 of 8", "column 5 of 9"]
    true = make_panels(volume, none, [DrawnBox((1, 2, 3, 3, 4, 5), 1)], None, False)
    scored = make_panels(volume, none, [DrawnBox((1, 2, 3, 3, 4, 5), 1, 1.0)], None, False)
    assert paint_panel(true[0], 30.0).tobytes() != paint_panel(scored[0], 30.0).tobytes(), (
        "a true box has no score to be written"
    )
    assert [plane.title for plane in true] == [plane.title for plane in scored]
    boxed = make_panels(volume, none, [DrawnBox((1, 2, 3, 3, 4, 5), 1, 0.9)], None, False)
    assert [panel.title for panel in boxed] == ["slice 5 of 10", "row 3 of 8", "column 4 of 9"]
    assert boxed[0].boxes == ((1, 2, 3, 4, 1, 0.9),)
    assert boxed[1].boxes == ((5, 2, 7, 4, 1, 0.9),)  # slices 3 to 5 of 10, counted from the top
    assert boxed[2].boxes == ((5, 1, 7, 3, 1, 0.9),)


def test_two_lesions_and_nothing_between_them() -> None:
    masks = np.zeros((1, 20, 20, 20), bool)
    masks[0, 1:3, 1:3, 1:3] = masks[0, 15:19, 15:19, 15:19] = True
    panels = make_panels(np.zeros((20, 20, 20, 3), np.uint8), masks, [], (1, 1, 1), True)
    assert all(panel.masks.any() for panel in panels)


def test_every_task_gives_a_picture(tmp_path: Path, picture: str) -> None:
    diagnosis = Prediction(picture, probabilities={"a": 0.2, "b": 0.8}, prediction=("b",))
    overlay = draw_overlay(diagnosis, ModelInfo("diagnosis", ("a", "b")), tmp_path / "x" / "d.png")
    assert (
        len(marked(overlay, 1, first_column=726)) > 2 * len(marked(overlay, 0, first_column=726)) > 0
    )  # bars by probability
    report = Prediction((picture, picture), findings="Clear. " * 60, impression="Nothing\x00 odd.")
    assert Image.open(draw_overlay(report, ModelInfo("report", ()), tmp_path / "r.png")).width > 900
    np.save(tmp_path / "wrong.npy", np.zeros((5, 5), np.uint8))
    wrong = Prediction(picture, mask=tmp_path / "wrong.npy")
    with pytest.raises(DataError, match="its mask"):
        draw_overlay(wrong, ModelInfo("segmentation", ("a",)), tmp_path / "e.png")


def test_parts() -> None:
    mask = np.zeros((9, 9), bool)
    mask[1:8, 1:8] = True
    assert mask_outline(mask).sum() == 49 - 9
    assert mask_outline(np.ones((6, 6), bool)).sum() == 36 - 4
    lines = wrap_text("word " * 30 + "\n" + "x" * 200, 200)
    assert all(load_font().getlength(line) <= 200 for line in lines)
    assert "".join(lines).replace(" ", "") == "word" * 30 + "x" * 200
    window = {"mode": "window", "low": 0, "high": 100}
    grey = to_display_rgb(np.array([[[0.0, 50, 100, np.nan]]]), "ct", window)
    assert grey[0, :, 0].tolist() == [0, 127, 255, 0]
    assert to_display_rgb(np.array([[[-1000.0, 40, 1000]]]), "ct")[0, :, 0].tolist() == [0, 127, 255]
    colour = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    assert to_display_rgb(colour, "")[1, 1].tolist() == [3, 7, 11]
