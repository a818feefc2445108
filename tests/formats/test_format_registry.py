"""Which format a file has, formats of other packages, and images that are composed of several files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from PIL import Image as Pillow

from formats.store_kit import FILMS, VOLUMES, dicom_file, film, volume, write_series
from m3b.dataset import formats
from m3b.dataset.formats import (
    FORMATS,
    DataError,
    Format,
    Image,
    ImageInfo,
    all_suffixes,
    describe_file,
    find_file_format,
    find_format,
    get_format,
    probe_image,
    read_image,
    read_labels,
    register_format,
    strip_suffix,
    unregister_format,
)


@pytest.mark.parametrize(
    ("name", "head", "expected_name"),
    [
        ("a.nii.gz", b"\x1f\x8b", "nifti"),
        ("a.tar.gz", b"\x1f\x8b", "tar"),
        ("a.mgz", b"\x1f\x8b", "mgh"),
        ("a.npz", b"PK\x03\x04", "npz"),
        ("a.seg.nrrd", b"NRRD0004", "nrrd"),
        ("a.PNG", b"\x89PNG\r\n\x1a\n", "png"),
        ("a.png", b"\xff\xd8\xff\xe0", "jpeg"),
        ("IM0001", bytes(128) + b"DICM", "dicom"),
        ("a.img", bytes(128) + b"DICM", "dicom"),
        ("a.dcm", b"\x08\x00\x05\x00CS", "dicom"),
        ("notes.txt", b"hello", None),
        ("notes.txt", b"P5 is the fifth patient", None),
        ("scan", b"P5\n# made by hand\n4 3\n255\n", "pnm"),
        ("table.xlsx", b"PK\x03\x04", None),
        ("archive", b"PK\x03\x04", "zip"),
        ("a.png", b"PK\x03\x04", "zip"),
        ("table.csv", b"a,b\n1,2\n", None),
    ],
)
def test_name_and_content(name: str, head: bytes, expected_name: str | None) -> None:
    file_format = find_format(head, name)
    assert (file_format.name if file_format else None) == expected_name


def test_suffixes() -> None:
    assert strip_suffix("case_1.nii.gz") == "case_1"
    assert strip_suffix("a.seg.nrrd") == "a.seg"
    assert strip_suffix("report.txt") == "report"
    assert {".png", ".nii.gz", ".dcm", ".npz", ".zarr"} < set(all_suffixes())
    for file_format in FORMATS.values():
        assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in file_format.suffixes)


class Raster(Format):
    """Two bytes of size, then the values."""

    name = "raster"
    suffixes = (".rst",)
    magic = ((0, b"RST1"),)

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        height, width = path.read_bytes()[4:6]
        return ImageInfo(self.name, (height, width), 1, "uint8", 2)

    def read(self, path: Path, item: str = "") -> Image:
        content = path.read_bytes()
        return Image(np.frombuffer(content, np.uint8, offset=6).reshape(1, *content[4:6]), None, 2)


def test_a_format_of_another_package(tmp_path: Path) -> None:
    (tmp_path / "a.rst").write_bytes(b"RST1\x02\x03" + bytes(range(6)))
    with pytest.raises(DataError, match="unknown format"):
        read_image("a.rst", tmp_path)
    raster = Raster()
    register_format(raster)
    try:
        register_format(raster)
        assert read_image("a.rst", tmp_path).array.tolist() == [[[0, 1, 2], [3, 4, 5]]]
        assert probe_image("a.rst", tmp_path).shape == (2, 3)
        assert read_labels("a.rst", tmp_path).array.max() == 5
        assert "raster picture, 2 x 3" in describe_file(tmp_path / "a.rst")
        assert ".rst" in all_suffixes()
        with pytest.raises(ValueError, match="raster"):
            register_format(Raster())
    finally:
        unregister_format("raster")


@pytest.mark.parametrize("name", ["absent.png", "absent.npz#x[0]", "absent", "", "."])
def test_what_is_not_there(tmp_path: Path, name: str) -> None:
    for read in (read_image, probe_image):
        with pytest.raises(DataError):
            read(name, tmp_path)


def test_pipes_and_links_to_voxels(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match="pipe"):
        read_image("a.png", tmp_path)
    VOLUMES[".mhd raw"](tmp_path)
    (tmp_path / "image.raw").rename(tmp_path / "elsewhere.raw")
    (tmp_path / "image.raw").symlink_to(tmp_path / "elsewhere.raw")
    with pytest.raises(DataError, match="link"):
        read_image("image.mhd", tmp_path)


def test_a_file_whose_name_has_a_hash(tmp_path: Path) -> None:
    Pillow.fromarray(film()).save(tmp_path / "slide#3.png")
    assert read_image("slide#3.png", tmp_path).array.shape == (1, 40, 56)


def test_slices_as_a_folder_and_as_a_list(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in (1, 2, 10)]
    for number, name in enumerate(names):
        Pillow.fromarray(film() // (number + 1)).save(tmp_path / name)
    folder, from_list = read_image(".", tmp_path), read_image(names, tmp_path)
    assert np.array_equal(folder.array, from_list.array)
    assert folder.array.shape == (1, 40, 56, 3)
    assert folder.array[0, 20, 20, 2] == film()[20, 20] // 3
    assert probe_image(names, tmp_path).shape == probe_image(".", tmp_path).shape == (40, 56, 3)
    assert read_labels(names, tmp_path).array.shape == (40, 56, 3)
    assert np.array_equal(read_image(names[::-1], tmp_path).array, from_list.array[..., ::-1])
    Pillow.fromarray(film()[:-1]).save(tmp_path / "3.png")
    with pytest.raises(DataError, match=r"3\.png"):
        read_image(".", tmp_path)


def test_a_list_of_dicom_slices_lies_where_it_says(tmp_path: Path) -> None:
    values, _, affine = volume()
    files = write_series(tmp_path / "s", values, affine)
    from_folder, from_list = read_image("s", tmp_path), read_image([str(file) for file in reversed(files)], tmp_path)
    assert np.array_equal(from_folder.array, from_list.array)
    assert from_folder.affine == pytest.approx(from_list.affine)


def test_volumes_in_a_folder_are_no_slices(tmp_path: Path) -> None:
    for name in ("a.nii", "b.nii"):
        nib.save(nib.Nifti1Image(volume()[0], np.eye(4)), tmp_path / name)
    with pytest.raises(DataError, match="not one volume"):
        read_image(".", tmp_path)


def test_named_channels_on_the_grid_of_the_first(tmp_path: Path) -> None:
    values, _, affine = volume()
    nib.save(nib.Nifti1Image(values, affine), tmp_path / "a.nii")
    finer = affine.copy()
    finer[:3, :3] /= 2
    nib.save(nib.Nifti1Image(np.kron(values, np.ones((2, 2, 2), np.int16)), finer), tmp_path / "b.nii")
    image = read_image({"flair": "a.nii", "t1": "b.nii", "t2": "a.nii"}, tmp_path)
    assert image.array.shape == (3, 26, 22, 9)
    assert np.array_equal(image.array[0], image.array[2])
    assert image.channels == (("", False),) * 3
    assert probe_image({"flair": "a.nii", "t1": "b.nii"}, tmp_path).shape == (26, 22, 9)
    far = affine.copy()
    far[:3, 3] += 900
    nib.save(nib.Nifti1Image(values, far), tmp_path / "far.nii")
    with pytest.raises(DataError, match="outside the first channel"):
        read_image({"flair": "a.nii", "t1": "far.nii"}, tmp_path)
    with pytest.raises(DataError, match="without any channel"):
        read_image({}, tmp_path)


def test_descriptions_name_no_person(tmp_path: Path) -> None:
    dicom_file(film(), PatientName="Doe^Jane", PatientID="4711").save_as(tmp_path / "a.dcm", enforce_file_format=True)
    text = describe_file(tmp_path / "a.dcm")
    assert "40 x 56" in text
    assert "xray" in text
    assert "Doe" not in text
    assert "4711" not in text


def test_every_store_can_be_described(tmp_path: Path) -> None:
    for number, name in enumerate(["nii", ".mha raw", "ome tiff", "dicom series", "npz", "h5", "explicit"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        image = str({**VOLUMES, **FILMS}[name](folder).image)
        assert describe_file(folder / image)


def test_a_copy_of_the_package_works_without_m3b(tmp_path: Path) -> None:
    """As in a project and a delivered model: relative imports, NumPy, and the library of the format that is read."""
    shutil.copytree(Path(formats.__file__).parent, tmp_path / "copied")
    for file in (tmp_path / "copied").rglob("*.py"):
        assert not re.search(r"^\s*(?:from|import)\s+m3b\b", file.read_text(), re.MULTILINE), file
    Pillow.fromarray(film()).save(tmp_path / "a.png")
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "m3b" or name.startswith("m3b."):
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
from copied import DataError, read_image
loaded = set(sys.modules)
assert not {"PIL", "nibabel", "pydicom", "SimpleITK", "tifffile", "h5py", "scipy", "torch", "pyarrow", "zarr"} & loaded
print(read_image("a.png").array.shape)
try:
    read_image("b.png")
except DataError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines() == ["(1, 40, 56)", "b.png: no such file or folder"], run.stderr


def test_dicom_without_suffix_or_preamble_is_found_in_a_folder(tmp_path: Path) -> None:
    values, _, affine = volume()
    files = write_series(tmp_path / "s", values, affine)
    import pydicom

    for file in files:
        data = pydicom.dcmread(file)
        data.save_as(file, enforce_file_format=False)
        content = file.read_bytes()
        del data.file_meta
        data.save_as(file, implicit_vr=True, little_endian=True, enforce_file_format=False)
        assert len(file.read_bytes()) < len(content)
        assert isinstance(find_file_format(file), type(get_format(file)))
    (tmp_path / "s/README").write_text("slices of a phantom")
    assert read_image("s", tmp_path).array.shape == (1, 26, 22, 9)


@pytest.mark.parametrize(("name", "content"), [("bad.png", b"no picture"), ("empty.png", b""), ("bad.nii", b"x" * 400)])
def test_a_damaged_file_is_named_once_and_without_classes_of_python(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        read_image(name, tmp_path)
    assert str(raised.value).count(name) == 1
    assert "Error" not in str(raised.value)
