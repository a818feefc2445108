"""Text headers as the guard reads them, held against what SimpleITK really opens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from m3b.dataset.formats import DataError, get_format, grid_of, read_image

META = b"ObjectType = Image\nNDims = 3\nDimSize = 4 2 2\nElementType = MET_UCHAR\n"
NRRD = b"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 2 2\nencoding: raw\n"
NAMES = (
    b"a.raw",
    b"b.raw",
    b"= b.raw",
    b": b.raw",
    b"b.raw ",
    b"LISTx",
    b"LoCaL",
    b"-",
    b"~b.raw",
    b"b",
    b"\x0bb.raw",
    b"b.raw x",
)
"""Data files beside the header; the voxels of the file at place n are all n + 1."""
FOLLOWING = 99
"""Voxels that follow in the header's own file."""


def lay_out(folder: Path) -> None:
    for value, name in enumerate(NAMES, 1):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(bytes([value]) * 64)


def opened_by_simpleitk(file: Path) -> str | None:
    """The data file that SimpleITK reads: its name, empty for the header's own file, None if it refuses."""
    reader = "MetaImageIO" if file.suffix in (".mha", ".mhd") else "NrrdImageIO"
    try:
        values = set(sitk.GetArrayViewFromImage(image := sitk.ReadImage(str(file), imageIO=reader)).ravel().tolist())
        assert image is not None
    except (RuntimeError, UnicodeDecodeError):
        return None
    value = max(values)
    return os.fsdecode(NAMES[value - 1]) if len(values) == 1 and value <= len(NAMES) else ""


def seen_by_guard(file: Path) -> str | None:
    """The data file that the guard sees; None if it refuses the header."""
    try:
        sidecars = get_format(file).sidecars(file)
    except DataError:
        return None
    if any(sidecar.is_symlink() or not sidecar.is_file() for sidecar in sidecars):
        return None
    return next((sidecar.name for sidecar in sidecars), "")


KEYS = (
    b"ElementDataFile",
    b"elementdatafile",
    b"Comment",
    b"foo",
    b"toffset",
    b"Offset",
    b"HeaderSize",
    b"data file",
    b"DataFile",
)
VALUES = (b"LOCAL", b"local", b"LIST", b"content", b"# x", b"0 0 0", b"7", b"-1", b"%c")
MARKS = (b"=", b":", b": ", b":=", b" = ", b" ", b"\t", b"\x0b", b"\n", b"\r", b"\r\n")
WORDS = st.sampled_from([*KEYS, *VALUES, *MARKS, *NAMES])
TEXTS = st.lists(WORDS, max_size=9).map(b"".join)
LINES = st.lists(
    st.tuples(st.sampled_from([b"", b" ", b"x"]), WORDS, st.sampled_from([b" = ", b": ", b":=", b"=", b" "]), TEXTS).map(b"".join),
    max_size=4,
).map(b"\n".join)  # fmt: skip


LAST = st.tuples(
    st.sampled_from([b"", b" ", b"x"]),
    st.sampled_from([b"ElementDataFile", b"data file", b"DataFile"]),
    st.sampled_from([b" = ", b": ", b"=", b" == ", b" = : ", b" =\n", b": \t"]),
    st.sampled_from([b"a.raw", b"b.raw", b"LOCAL", b"local", b"LIST", *NAMES]),
    st.sampled_from([b"\n", b"\r\n", b"\r", b" \n", b"\x0b\n", b""]),
).map(b"".join)


@pytest.mark.parametrize(("suffix", "start"), [(".mhd", META), (".mha", META), (".nhdr", NRRD), (".nrrd", NRRD)])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(middle=st.one_of(st.just(b""), TEXTS, LINES), last=LAST)
def test_the_guard_sees_the_file_that_simpleitk_opens(
    tmp_path: Path, suffix: str, start: bytes, middle: bytes, last: bytes
) -> None:
    if not (tmp_path / "a.raw").exists():
        lay_out(tmp_path)
    file = tmp_path / f"image{suffix}"
    file.write_bytes(start + middle + (b"\n" if middle else b"") + last + b"\n" + bytes([FOLLOWING]) * 64)
    data_file = seen_by_guard(file)
    if data_file is not None:  # whatever the guard lets through, SimpleITK opens the same file or none
        assert opened_by_simpleitk(file) in (data_file, None)


@pytest.mark.parametrize("ending", ["mha", "mhd", "nrrd", "nhdr"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("frames", [1, 3])
def test_simpleitk_writes_a_nifti_in_another_format(tmp_path: Path, ending: str, packed: bool, frames: int) -> None:
    """SimpleITK copies every NIfTI field (`toffset`, `dim[0]`) into the header; voxels and grid stay the same."""
    affine = np.diag([-0.8, 0.9, 2.4, 1.0])  # turned by 0.3 about the first axis
    affine[:3, :3] = (
        np.array([[1, 0, 0], [0, np.cos(0.3), -np.sin(0.3)], [0, np.sin(0.3), np.cos(0.3)]]) @ affine[:3, :3]
    )
    affine[:3, 3] = 20, -31, 7
    shape = (6, 5, 4) if frames == 1 else (6, 5, 4, frames)
    stored: Any = nib.Nifti1Image(np.random.default_rng(0).integers(-500, 900, shape).astype(np.int16), affine)
    stored.header["toffset"], stored.header["descrip"] = 3.5, b"made by a scanner: key = value"
    nib.save(stored, tmp_path / "a.nii.gz")
    sitk.WriteImage(sitk.ReadImage(str(tmp_path / "a.nii.gz")), str(tmp_path / f"b.{ending}"), packed)
    if ending in ("mha", "mhd"):
        assert b"toffset = 3.5" in (tmp_path / f"b.{ending}").read_bytes()
    first, second = (read_image(name, str(tmp_path)) for name in ("a.nii.gz", f"b.{ending}"))
    assert sorted(first.array.ravel().tolist()) == sorted(second.array.ravel().tolist())
    if frames == 1:
        assert np.array_equal(first.array, second.array)
        grids = [grid_of(name, str(tmp_path)) for name in ("a.nii.gz", f"b.{ending}")]
        assert np.allclose(grids[0].affine, grids[1].affine, atol=1e-4)
        assert grids[0].shape == grids[1].shape


@pytest.mark.parametrize("value", ["1 2", "1e12 0 0", "nan 0 0", "0 0 x"])
def test_the_key_itself_is_still_held_against_the_axes(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.mha").write_bytes(META + f"Offset = {value}\nElementDataFile = LOCAL\n".encode() + bytes(16))
    with pytest.raises(DataError, match="Offset"):
        read_image("a.mha", str(tmp_path))
    (tmp_path / "a.mha").write_bytes(META + f"my Offset = {value}\nElementDataFile = LOCAL\n".encode() + bytes(16))
    assert read_image("a.mha", str(tmp_path)).array.shape == (1, 2, 4, 2)
