"""Slides: levels as SubIFDs or pages, parts and overviews read in bounded memory, the physical size of a pixel."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tifffile

from formats.slide_kit import draw_slide, list_halved, write_slide
from m3b.dataset.formats import DataError, Part, overview_path, probe_image, read_image

SIDE = 2304
"""No multiple of the tiles."""


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return draw_slide(SIDE, seed=0)[: SIDE - 200]


@pytest.mark.parametrize("storage", ["subifds", "pages", "svs", "one level", "strips"])
@pytest.mark.parametrize(
    "part", [Part(0, 0, 256, 256, 1), Part(512, 1536, 512, 512, 2), Part(1500, 2000, 1024, 512, 4)]
)
def test_a_part_is_the_same_however_a_slide_is_stored(
    tmp_path: Path, pixels: np.ndarray, storage: str, part: Part
) -> None:
    file = write_slide(tmp_path / "a.tif", pixels, storage)
    image = read_image(f"{file}#{part.to_item()}")
    window = pixels[part.row :, part.column :][: part.height, : part.width]
    rows, columns = (side // part.factor for side in window.shape[:2])
    blocks = window.reshape(rows, part.factor, columns, part.factor, 3)
    expected = np.moveaxis(blocks.mean(axis=(1, 3)), -1, 0)
    last = image.array[:, :rows, columns:]
    assert image.array.shape == (3, part.height // part.factor, part.width // part.factor)
    assert image.array.dtype == np.uint8
    assert np.abs(image.array[:, :rows, :columns] - expected).max() <= 1.01, "levels are rounded once each"
    assert np.array_equal(last, np.repeat(last[..., :1], last.shape[-1], axis=-1)), "the border is continued"


@pytest.mark.parametrize("storage", ["subifds", "pages", "svs", "one level"])
def test_a_slide_is_recognised_with_the_size_of_a_pixel(tmp_path: Path, pixels: np.ndarray, storage: str) -> None:
    file = write_slide(tmp_path / "a.tif", pixels, storage, um=0.5)
    info = probe_image(str(file))
    assert [note.values for note in info.notes if note.code == "slide"] == [{"rows": SIDE - 200, "columns": SIDE}]
    assert [note.values["levels"] for note in info.notes if note.code == "pyramid"] == (
        [] if storage == "one level" else [3]
    )
    assert info.items == 1
    assert info.spacing == pytest.approx((0.0005, 0.0005))
    overview = read_image(overview_path(str(file)))
    assert overview.array.shape == (3, -(-(SIDE - 200) // 4), SIDE // 4)
    assert overview.spacing == pytest.approx((0.002, 0.002))
    assert read_image(str(file)).array.shape == (3, SIDE - 200, SIDE), "without an item it is read whole"


def test_a_photograph_is_no_slide(tmp_path: Path, pixels: np.ndarray) -> None:
    file = write_slide(tmp_path / "a.tif", pixels, "strips", um=0.5)
    small = write_slide(tmp_path / "b.tif", pixels[:1024, :1024], "subifds")
    grey = tmp_path / "c.tif"
    tifffile.imwrite(grey, pixels[..., 0], tile=(256, 256))
    for path in map(str, (file, small, grey)):
        assert overview_path(path) == path
        assert "slide" not in [note.code for note in probe_image(path).notes]
        assert probe_image(path).spacing is None


def test_the_resolution_of_a_printer_is_no_size_of_a_pixel(tmp_path: Path, pixels: np.ndarray) -> None:
    file = write_slide(tmp_path / "a.tif", pixels, "one level", um=25400 / 300)
    assert probe_image(str(file)).spacing is None


@pytest.mark.parametrize("storage", ["subifds", "one level"])
def test_an_overview_does_not_hold_the_full_size(tmp_path: Path, storage: str) -> None:
    """Of 192 MB of pixels, no more than one band of segments and the result are in memory."""
    side = 8192
    file = tmp_path / "a.tif"
    row = np.random.default_rng(0).integers(0, 255, (256, side, 3), np.uint8)
    tiles = (row[:, at : at + 256] for _ in range(side // 256) for at in range(0, side, 256))
    with tifffile.TiffWriter(file) as writer:
        options = {"photometric": "rgb", "tile": (256, 256), "dtype": np.uint8}
        levels = list_halved(np.tile(list_halved(row, 2)[1], (side // 256, 1, 1)), 3) if storage == "subifds" else []
        writer.write(tiles, shape=(side, side, 3), subifds=len(levels), **options)
        for level in levels:
            writer.write(level, subfiletype=1, **options)
    tracemalloc.start()
    overview = read_image(f"{file}#overview=1024")
    tile = read_image(f"{file}#{Part(4096, 4096, 256, 256, 1).to_item()}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert overview.array.shape == (3, 1024, 1024)
    assert tile.array.shape == (3, 256, 256)
    assert np.array_equal(tile.array, np.moveaxis(row[:, 4096:4352], -1, 0))
    assert peak < 64 << 20


@pytest.mark.parametrize(
    "item", ["part=0,0,256,256,3", "part=9999,0,256,256,1", "part=0,0,0,256,1", "part=0,0,256,256", "overview=0"]
)
def test_what_is_no_part_is_refused(tmp_path: Path, pixels: np.ndarray, item: str) -> None:
    file = write_slide(tmp_path / "a.tif", pixels, "one level")
    with pytest.raises(DataError, match="part"):
        read_image(f"{file}#{item}")


def test_a_slide_that_is_cut_off_is_refused(tmp_path: Path, pixels: np.ndarray) -> None:
    file = write_slide(tmp_path / "a.tif", pixels, "one level")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"cut off|cannot be read"):
        read_image(f"{file}#{Part(1792, 0, 256, 256, 1).to_item()}")
