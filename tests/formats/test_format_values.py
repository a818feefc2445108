"""One scale for grey values, units that values imply, and values that are not finite."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image as Pillow

from formats.store_kit import dicom_file, film
from m3b.dataset.formats import DataError, normalised_range, read_image
from m3b.dataset.formats.values import looks_like_hounsfield


def on_one_scale(file: Path) -> np.ndarray:
    image = read_image(str(file))
    scale = normalised_range(image)
    assert scale is not None
    return np.asarray((image.array[0] - scale[0]) / (scale[1] - scale[0]))


def save_dicom(values: np.ndarray, file: Path, bits: int, **fields: object) -> None:
    dicom_file(values, BitsStored=bits, HighBit=bits - 1, **fields).save_as(file, enforce_file_format=True)


def test_copies_with_other_bits_are_equal(tmp_path: Path) -> None:
    grey = film()
    wide = grey.astype(np.uint16)
    Pillow.fromarray(grey).save(tmp_path / "8.png")
    Pillow.fromarray(wide * 257).save(tmp_path / "16.png")
    Pillow.fromarray(wide * 16).save(tmp_path / "12in16.png")
    Pillow.fromarray(wide).save(tmp_path / "8in16.png")
    tifffile.imwrite(tmp_path / "16.tif", wide * 257)
    tifffile.imwrite(tmp_path / "float.tif", (grey / 255).astype(np.float32))
    tifffile.imwrite(tmp_path / "float255.tif", grey.astype(np.float32))
    tifffile.imwrite(tmp_path / "max.tif", wide * 4, extratags=[(281, 3, 1, 1023, True)])
    save_dicom(grey, tmp_path / "8.dcm", 8)
    save_dicom(wide * 16, tmp_path / "12.dcm", 12)
    save_dicom(wide * 16, tmp_path / "16bit_window.dcm", 16, WindowCenter="2048", WindowWidth="4096")
    save_dicom(4095 - wide * 16, tmp_path / "inverted.dcm", 12, PhotometricInterpretation="MONOCHROME1")
    expected = on_one_scale(tmp_path / "8.png")
    for file in sorted(tmp_path.iterdir()):
        assert np.abs(on_one_scale(file) - expected).max() < 0.005, file.name


def test_bits_of_a_set_decide_for_a_dark_image(tmp_path: Path) -> None:
    Pillow.fromarray((film() // 8).astype(np.uint16)).save(tmp_path / "dark.png")
    image = read_image(str(tmp_path / "dark.png"))
    assert normalised_range(image) == (0, 255)
    assert normalised_range(image, bits=12) == (0, 4095)


def test_units_and_signed_values_have_no_such_scale(tmp_path: Path) -> None:
    save_dicom(film(), tmp_path / "ct.dcm", 8, Modality="CT", RescaleType="HU", RescaleIntercept="-1024")
    np.save(tmp_path / "signed.npy", film().astype(np.int16) - 50)
    assert normalised_range(read_image(str(tmp_path / "ct.dcm"))) is None
    assert normalised_range(read_image(str(tmp_path / "signed.npy"))) is None


def body(shape: tuple[int, ...] = (40, 40, 20)) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.normal(-1000, 15, shape)
    values[10:30, 10:30] = rng.normal(40, 20, (20, 20, *shape[2:]))
    values[12:20, 12:20] = rng.normal(-800, 60, (8, 8, *shape[2:]))
    return values.astype(np.int16)


@pytest.mark.parametrize("padding", [None, -2000, -3024, -1024])
def test_hounsfield_units(padding: int | None) -> None:
    values = body()
    if padding is not None:
        rows, columns = np.mgrid[0:40, 0:40]
        values[(rows - 20) ** 2 + (columns - 20) ** 2 > 380] = padding
    assert looks_like_hounsfield(values)


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).integers(-4096, 4096, (30, 30, 10)).astype(np.int16),  # MR phase
        np.random.default_rng(0).normal(0, 700, (30, 30, 10)).astype(np.float32),  # differences
        np.full((30, 30, 10), -1000, np.int16),  # nothing but air
        np.random.default_rng(0).integers(0, 900, (30, 30, 10)),
    ],
    ids=["phase", "differences", "blank", "positive"],
)
def test_what_are_no_hounsfield_units(values: np.ndarray) -> None:
    assert not looks_like_hounsfield(values)


def save_volume(values: np.ndarray, file: Path) -> None:
    nib.save(nib.Nifti1Image(values.astype(np.float32), np.eye(4)), file)


def test_single_voxels_that_are_not_finite(tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(5, 9, (12, 10, 8))
    values[5, 5, 5], values[2, 3, 4], values[1, 1, 1] = np.nan, np.inf, -np.inf
    save_volume(values, tmp_path / "a.nii.gz")
    image = read_image(str(tmp_path / "a.nii.gz"))
    low = float(values[np.isfinite(values)].min())
    assert np.isfinite(image.array).all()
    assert dict(image.notes[-1].values) == {"count": 3, "value": pytest.approx(low)}
    assert image.notes[-1].code == "nonfinite_filled"


def test_a_background_of_nan(tmp_path: Path) -> None:
    values = np.full((20, 20, 10), np.nan)
    values[5:15, 5:15, 2:8] = np.random.default_rng(0).normal(0, 3, (10, 10, 6))
    save_volume(values, tmp_path / "a.nii.gz")
    image = read_image(str(tmp_path / "a.nii.gz"))
    assert image.notes[-1].values["value"] == 0
    assert np.count_nonzero(image.array) == 600


@pytest.mark.parametrize("kind", ["scattered", "everything", "infinite background"])
def test_too_many_values_that_are_not_finite(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 3, (20, 20, 10))
    if kind == "scattered":
        values[rng.random(values.shape) < 0.05] = np.nan
    elif kind == "everything":
        values[:] = np.nan
    else:
        values[:6] = np.inf
    save_volume(values, tmp_path / "a.nii.gz")
    with pytest.raises(DataError, match="NaN or infinite"):
        read_image(str(tmp_path / "a.nii.gz"))
