"""Options of writers beyond the matrix: types, byte orders, orientations, compressions, colour spaces."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import nibabel as nib
import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image as Pillow

from formats.store_kit import dicom_file, film, in_lps, photograph, volume
from m3b.dataset.formats import probe_image, read_image

COLOURS, MASK = photograph()
CHANNELS = np.moveaxis(COLOURS, -1, 0)
VALUES, LABELS, AFFINE = volume()
LPS_VALUES, LPS_AFFINE = in_lps(VALUES, AFFINE)
GREY = film()
GREY_12 = GREY.astype(np.uint16) * 16


def check(file: Path, expected: np.ndarray, tolerance: float = 0.0) -> None:
    image, info = read_image(str(file)), probe_image(str(file))
    assert image.array.shape == expected.shape
    difference = np.abs(image.array.astype(float) - expected.astype(float)).mean()
    assert difference <= tolerance
    assert info.shape == image.array.shape[1:]
    assert np.dtype(info.dtype) == image.array.dtype


# --- NIfTI --------------------------------------------------------------------------------------------------------


def with_forms(*, sform: bool) -> Any:
    image: Any = nib.Nifti1Image(VALUES, AFFINE)
    (image.set_qform if sform else image.set_sform)(None, 0)
    (image.set_sform if sform else image.set_qform)(AFFINE, 1)
    return image


def with_other_axes() -> Any:
    affine = AFFINE.copy()
    affine[:3, :3] = AFFINE[:3, [2, 0, 1]]
    array = np.transpose(VALUES, (2, 0, 1))[:, ::-1]
    affine[:3, 3] += affine[:3, 1] * (array.shape[1] - 1)
    affine[:3, 1] *= -1
    return nib.Nifti1Image(array, affine)


def in_colours() -> Any:
    array = np.zeros(VALUES.shape, [("R", "u1"), ("G", "u1"), ("B", "u1")])
    array["R"], array["G"] = VALUES % 250, LABELS
    return nib.Nifti1Image(array, AFFINE)


TWICE = np.stack([VALUES, VALUES + 1], -1)
NIFTIS: dict[str, tuple[str, Callable[[], Any], np.ndarray]] = {
    "big endian": ("a.nii", lambda: nib.Nifti1Image(VALUES, AFFINE, nib.Nifti1Header().as_byteswapped(">")), LPS_VALUES[None]),
    "qform": ("a.nii", lambda: with_forms(sform=False), LPS_VALUES[None]),
    "sform": ("a.nii", lambda: with_forms(sform=True), LPS_VALUES[None]),
    "other axes": ("a.nii", with_other_axes, LPS_VALUES[None]),
    "bzip2": ("a.nii.bz2", lambda: nib.Nifti1Image(VALUES, AFFINE), LPS_VALUES[None]),
    "packed pair": ("a.img.gz", lambda: nib.Nifti1Pair(VALUES, AFFINE), LPS_VALUES[None]),
    "nifti2 pair": ("a.img", lambda: nib.Nifti2Pair(VALUES, AFFINE), LPS_VALUES[None]),
    "mgh": ("a.mgh", lambda: nib.MGHImage(VALUES, AFFINE), LPS_VALUES[None]),
    "one of four axes": ("a.nii", lambda: nib.Nifti1Image(VALUES[..., None], AFFINE), LPS_VALUES[None]),
    "series": ("a.nii", lambda: nib.Nifti1Image(TWICE, AFFINE), np.stack([LPS_VALUES, LPS_VALUES + 1])),
    "vectors": ("a.nii", lambda: nib.Nifti1Image(TWICE[..., None, :], AFFINE), np.stack([LPS_VALUES, LPS_VALUES + 1])),
    "colours": ("a.nii", in_colours, np.stack([LPS_VALUES % 250, in_lps(LABELS, AFFINE)[0], 0 * LPS_VALUES])),
}  # fmt: skip


@pytest.mark.parametrize("name", NIFTIS)
def test_nifti(tmp_path: Path, name: str) -> None:
    file, make, expected = NIFTIS[name]
    nib.save(make(), tmp_path / file)
    check(tmp_path / file, expected)
    assert read_image(file, tmp_path).affine == pytest.approx(LPS_AFFINE, abs=1e-3)


def test_a_picture_as_nifti(tmp_path: Path) -> None:
    nib.save(nib.Nifti1Image(GREY.T, np.diag([-1, -1, 1, 1])), tmp_path / "a.nii")
    check(tmp_path / "a.nii", GREY[None])


@pytest.mark.parametrize("unit", ["meter", "micron"])
def test_units_of_nifti(tmp_path: Path, unit: str) -> None:
    factor = {"meter": 1000.0, "micron": 0.001}[unit]
    affine = AFFINE.copy()
    affine[:3] /= factor
    image: Any = nib.Nifti1Image(VALUES, affine)
    image.header.set_xyzt_units(unit)
    nib.save(image, tmp_path / "a.nii")
    assert read_image("a.nii", tmp_path).spacing == pytest.approx((0.9, 0.8, 2.4), rel=1e-3)


# --- DICOM --------------------------------------------------------------------------------------------------------


def colour_file(array: np.ndarray, photometric: str, planar: int = 0) -> pydicom.Dataset:
    return dicom_file(array, SamplesPerPixel=3, PhotometricInterpretation=photometric, PlanarConfiguration=planar, Rows=48,
                      Columns=64)  # fmt: skip


def encapsulated(data: pydicom.Dataset, content: bytes, syntax: str) -> pydicom.Dataset:
    data.PixelData = pydicom.encaps.encapsulate([content])
    data["PixelData"].is_undefined_length = True
    data.file_meta.TransferSyntaxUID = f"1.2.840.10008.1.2.4.{syntax}"
    return data


def jpeg_colours() -> pydicom.Dataset:
    stream = io.BytesIO()
    Pillow.fromarray(COLOURS).save(stream, "JPEG", quality=95)
    return encapsulated(colour_file(COLOURS, "YBR_FULL_422"), stream.getvalue(), "50")


def palette_colours() -> pydicom.Dataset:
    data = dicom_file(GREY, PhotometricInterpretation="PALETTE COLOR")
    for name, divisor in (("Red", 1), ("Green", 2), ("Blue", 4)):
        setattr(data, f"{name}PaletteColorLookupTableDescriptor", [256, 0, 16])
        table = (np.arange(256) // divisor).astype(np.uint16) * 257
        setattr(data, f"{name}PaletteColorLookupTableData", table.tobytes())
    return data


def twelve_bits(content: bytes, syntax: str) -> pydicom.Dataset:
    return encapsulated(dicom_file(GREY_12, BitsStored=12, HighBit=11), content, syntax)


SIGNED = GREY.astype(np.int16) - 100
DICOMS: dict[str, tuple[Callable[[], pydicom.Dataset], np.ndarray, float]] = {
    "signed": (lambda: dicom_file(SIGNED), SIGNED[None], 0),
    "32 bit": (lambda: dicom_file(GREY.astype(np.uint32) * 3000), GREY.astype(np.uint32)[None] * 3000, 0),
    "colours": (lambda: colour_file(COLOURS, "RGB"), CHANNELS, 0),
    "colour planes": (lambda: colour_file(np.ascontiguousarray(CHANNELS), "RGB", 1), CHANNELS, 0),
    "ybr": (lambda: colour_file(np.asarray(Pillow.fromarray(COLOURS).convert("YCbCr")), "YBR_FULL"), CHANNELS, 3),
    "jpeg colours": (jpeg_colours, CHANNELS, 3),
    "palette": (palette_colours, np.stack([GREY, GREY // 2, GREY // 4]), 0),
    "jpeg2000 12 bit": (lambda: twelve_bits(imagecodecs.jpeg2k_encode(GREY_12, level=0, codecformat="j2k", reversible=True,
                                                                      bitspersample=12), "90"), GREY_12[None], 0),
    "jpeg-ls 12 bit": (lambda: twelve_bits(imagecodecs.jpegls_encode(GREY_12), "80"), GREY_12[None], 0),
    "jpeg lossless 12 bit": (lambda: twelve_bits(imagecodecs.ljpeg_encode(GREY_12, bitspersample=12), "57"), GREY_12[None], 0),
    "jpeg2000 signed": (lambda: encapsulated(dicom_file(SIGNED), imagecodecs.jpeg2k_encode(
        SIGNED, level=0, codecformat="j2k", reversible=True), "90"), SIGNED[None], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", DICOMS)
def test_dicom(tmp_path: Path, name: str) -> None:
    make, expected, tolerance = DICOMS[name]
    make().save_as(tmp_path / "a.dcm", enforce_file_format=True)
    check(tmp_path / "a.dcm", expected, tolerance)


# --- pictures -----------------------------------------------------------------------------------------------------


def pillow(mode: str, array: np.ndarray = COLOURS, **options: Any) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        picture = Pillow.fromarray(array)
        (picture.quantize(64) if mode == "P" else picture.convert(mode)).save(file, **options)

    return write


def tiff(array: np.ndarray = COLOURS, **options: Any) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        kind = "rgb" if array.shape[-1] == 3 else "minisblack"
        tifffile.imwrite(file, array, photometric=kind, **options)

    return write


FRAMES = [COLOURS, COLOURS[::-1].copy()]
PICTURES: dict[str, tuple[str, Callable[[Path], None], np.ndarray, float]] = {
    "1-bit png": ("a.png", pillow("1", MASK), MASK[None], 0),
    "grey with alpha": ("a.png", pillow("LA", GREY), GREY[None], 0),
    "grey jpeg": ("a.jpg", pillow("L", GREY, quality=95), GREY[None], 3),
    "fax": ("a.tif", pillow("1", MASK, compression="group4"), MASK[None], 0),
    "packbits": ("a.tif", pillow("RGB", compression="packbits"), CHANNELS, 0),
    "cmyk tiff": ("a.tif", pillow("CMYK"), CHANNELS, 3),
    "rgba tiff": ("a.tif", pillow("RGBA"), CHANNELS, 0),
    "palette tiff": ("a.tif", pillow("P"), CHANNELS, 8),
    "ycbcr tiff": ("a.tif", pillow("RGB", compression="jpeg", quality=95), CHANNELS, 4),
    "predictor": ("a.tif", tiff(compression="zlib", predictor=True), CHANNELS, 0),
    "lzma": ("a.tif", tiff(compression="lzma"), CHANNELS, 0),
    "webp tiff": ("a.tif", tiff(compression="webp", compressionargs={"lossless": True}), CHANNELS, 0),
    "jpeg2000 tiff": ("a.tif", tiff(compression="jpeg2000", compressionargs={"reversible": True}), CHANNELS, 1),
    "half floats": ("a.tif", tiff((GREY / 255).astype(np.float16)), (GREY / 255).astype(np.float16)[None], 0),
    "pages in colour": ("a.tif", tiff(np.stack(FRAMES)), np.stack([np.moveaxis(frame, -1, 0) for frame in FRAMES], -1), 0),
    "five channels": ("a.tif", tiff(np.stack([GREY] * 5), metadata={"axes": "CYX"}), np.stack([GREY] * 5), 0),
    "animated webp": ("a.webp", pillow("RGB", save_all=True, lossless=True, append_images=[Pillow.fromarray(FRAMES[1])]),
                      np.stack([np.moveaxis(frame, -1, 0) for frame in FRAMES], -1), 0),
    "code stream": ("a.j2k", pillow("RGB", irreversible=False), CHANNELS, 0),
    "pbm": ("a.pbm", pillow("1", MASK), MASK[None], 0),
    "avif": ("a.avif", pillow("RGB", quality=100, subsampling="4:4:4"), CHANNELS, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(tmp_path: Path, name: str) -> None:
    file, write, expected, tolerance = PICTURES[name]
    if file.endswith(".avif"):
        from PIL import features

        if not features.check("avif"):
            pytest.skip("this build of Pillow has no AVIF")
    write(tmp_path / file)
    check(tmp_path / file, expected, tolerance)


def test_imagej_says_its_spacing(tmp_path: Path) -> None:
    array = np.moveaxis(VALUES, -1, 0).astype(np.uint16)
    tifffile.imwrite(
        tmp_path / "a.tif",
        array,
        imagej=True,
        resolution=(2, 2),
        metadata={"spacing": 3.0, "unit": "mm", "axes": "ZYX"},
    )
    check(tmp_path / "a.tif", VALUES[None].astype(np.uint16))
    assert read_image("a.tif", tmp_path).spacing == (0.5, 0.5, 3.0)


ARRAYS = {
    "fortran order": (np.asfortranarray(VALUES), VALUES[None]),
    "big endian": (VALUES.astype(">i2"), VALUES[None]),
    "channels first": (CHANNELS, CHANNELS),
    "true and false": (MASK > 0, (MASK > 0)[None]),
    "slices first": (np.moveaxis(VALUES, -1, 0), VALUES[None]),
    "slices in the middle": (np.moveaxis(VALUES, -1, 1), VALUES[None]),
    "equal sides": (np.zeros((30, 20, 20), np.uint8), np.zeros((1, 20, 20, 30), np.uint8)),
    "alike sides": (np.zeros((34, 52, 35), np.uint8), np.zeros((1, 34, 52, 35), np.uint8)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(tmp_path: Path, name: str) -> None:
    stored, expected = ARRAYS[name]
    np.save(tmp_path / "a.npy", stored)
    check(tmp_path / "a.npy", expected)
