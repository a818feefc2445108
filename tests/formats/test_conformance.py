"""The same data stored by other programs in other formats is read as the same arrays, bits, geometry and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats.store_kit import FILMS, PHOTOGRAPHS, VOLUMES, Writer
from m3b.dataset.formats import probe_image, read_image, read_labels

FAST = {"nifti pair", ".mha from nifti", ".nrrd compressed", "ome tiff", "dicom series", "npz", "mat", "mgz", "png palette",
        "jpeg2000", "jpeg turned by exif", "tiff tiled zstd", "mask rgba", "gif", "ppm", "webp", "bmp", "deflated", "without preamble",
        "monochrome1", "h5"}  # fmt: skip


def stores(table: dict[str, Writer]) -> list[object]:
    """Every store, those that repeat the path of another one as slow tests."""
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in table]


def check_store(writer: Writer, folder: Path) -> None:
    expected = writer(folder)
    image, info = read_image(expected.image, folder), probe_image(expected.image, folder)
    assert image.array.shape == expected.array.shape
    if expected.tolerance:
        assert np.abs(image.array.astype(float) - expected.array).mean() < expected.tolerance
    else:
        assert np.array_equal(image.array, expected.array)
    assert info.shape == image.array.shape[1:]
    assert info.dims == image.dims == image.array.ndim - 1
    assert np.dtype(info.dtype) == image.array.dtype
    for geometry in (image.geometry, info.geometry):
        assert (geometry.spacing is None) == (expected.spacing is None)
        if expected.spacing is not None:
            assert geometry.spacing == pytest.approx(expected.spacing, abs=1e-4)
        if expected.affine is not None:
            assert geometry.affine == pytest.approx(expected.affine, abs=1e-3)
    if expected.labels:
        labels = read_labels(expected.labels, folder).array
        if expected.label_values:
            labels = np.where(labels > 127, expected.label_values[1], expected.label_values[0])
        assert np.array_equal(labels, expected.label_array)


@pytest.mark.parametrize("name", stores(VOLUMES))
def test_volumes(tmp_path: Path, name: str) -> None:
    check_store(VOLUMES[name], tmp_path)


@pytest.mark.parametrize("name", stores(PHOTOGRAPHS))
def test_photographs(tmp_path: Path, name: str) -> None:
    check_store(PHOTOGRAPHS[name], tmp_path)


@pytest.mark.parametrize("name", stores(FILMS))
def test_films(tmp_path: Path, name: str) -> None:
    check_store(FILMS[name], tmp_path)


def test_all_stores_of_the_matrix_are_here() -> None:
    assert (len(VOLUMES), len(PHOTOGRAPHS), len(FILMS)) == (22, 25, 13)
