"""Pictures that EXIF turns: read, measured, marked and previewed as they are shown, whichever way their marks were drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from m3b.data.records import Record
from m3b.dataset.audit.probes import probe_mask
from m3b.dataset.formats.base import turn_upright
from m3b.dataset.manifest.box_grids import grid_for, upright
from m3b.dataset.reading import align_mask, geometry, probe_shape, read_image, read_mask, read_masks

ORIENTATIONS = range(1, 9)
WRITERS = ("png", "jpg", "webp", "tif")


def save(array: np.ndarray, file: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = (
        {"lossless": True}
        if file.suffix == ".webp"
        else {"quality": 100, "subsampling": 0}
        if file.suffix == ".jpg"
        else {}
    )
    Image.fromarray(array).save(file, exif=exif, **options)


@pytest.fixture
def stored() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 255, (20, 14, 3)).astype(np.uint8)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_read_as_pillow_shows_it(tmp_path: Path, stored: np.ndarray, writer: str, orientation: int) -> None:
    file = tmp_path / f"a.{writer}"
    save(stored, file, orientation)
    with Image.open(file) as picture:
        upright_picture = np.array(ImageOps.exif_transpose(picture))
    assert np.array_equal(read_image(str(file)).array, np.moveaxis(upright_picture, -1, 0))
    assert probe_shape(str(file)) == upright_picture.shape[:2] == geometry(str(file)).shape


@pytest.mark.parametrize("value", [0, 9])
def test_a_damaged_orientation_turns_nothing(tmp_path: Path, stored: np.ndarray, value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    Image.fromarray(stored).save(tmp_path / "a.png", exif=exif)
    assert read_image("a.png", str(tmp_path)).array.shape == (3, 20, 14)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("drawn_on", ["stored", "shown"])
def test_masks_follow_their_picture(tmp_path: Path, stored: np.ndarray, orientation: int, drawn_on: str) -> None:
    """A mask of the stored size is turned; one of the size on display, or that could be either, is not."""
    save(stored, tmp_path / "a.png", orientation)
    bright = (stored[..., 0] > 127).astype(np.uint8)
    upright_mask = turn_upright(bright, orientation)
    turned = orientation >= 5
    Image.fromarray(bright if drawn_on == "stored" and turned else upright_mask).save(tmp_path / "m.png")
    base = str(tmp_path)
    expected = read_image("a.png", base).array[0] > 127
    assert np.array_equal(align_mask("m.png", "a.png", base) == 1, expected)
    assert np.array_equal(read_masks("m.png", {"bright": 1}, base, expected.shape, "a.png")[0], expected)
    look = probe_mask(
        Record("a.png", mask="m.png", patient="p"), {"bright": 1}, tmp_path, read_image("a.png", base).array
    )
    assert look is not None
    assert look.has_image_shape
    assert look.class_voxels == {"bright": int(bright.sum())}


def test_a_mask_with_the_same_exif_as_its_picture(tmp_path: Path, stored: np.ndarray) -> None:
    save(stored, tmp_path / "a.png", 6)
    palette = Image.fromarray((stored[..., 0] > 127).astype(np.uint8)).convert("P")
    exif = Image.Exif()
    exif[0x0112] = 6
    palette.save(tmp_path / "m.png", exif=exif)
    assert read_mask("m.png", str(tmp_path)).array.shape == (14, 20)
    upright_mask = read_image("a.png", str(tmp_path)).array[0] > 127
    assert np.array_equal(align_mask("m.png", "a.png", str(tmp_path)) == 1, upright_mask)


@pytest.mark.parametrize("orientation", range(5, 9))
def test_boxes_that_were_drawn_on_the_stored_picture(tmp_path: Path, orientation: int) -> None:
    array = np.zeros((40, 16, 3), np.uint8)
    array[30:38, 2:7] = 255
    save(array, tmp_path / "a.png", orientation)
    grid = grid_for("a.png", tmp_path)
    (box,) = upright([(2.0, 30.0, 7.0, 38.0)], grid)
    bright_pixels = read_image("a.png", str(tmp_path)).array[0] > 0
    rows, columns = np.nonzero(bright_pixels)
    around = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert box == pytest.approx(around)
    assert upright([tuple(map(float, around))], grid) == [tuple(map(float, around))]
