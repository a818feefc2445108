"""Three small data sets and the ways in which other programs store them; none of the writers is m3b's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import imagecodecs
import nibabel as nib
import numpy as np
import pydicom
import scipy.io
import SimpleITK as sitk
import tifffile
from PIL import Image as Pillow
from pydicom.dataset import FileMetaDataset
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    RLELossless,
    generate_uid,
)


@dataclass(frozen=True)
class Expected:
    """What a store must be read as; `tolerance` is the mean difference that its compression may leave."""

    image: str | list[str]
    labels: str
    array: np.ndarray
    label_array: np.ndarray
    spacing: tuple[float, ...] | None = None
    affine: np.ndarray | None = None
    tolerance: float = 0.0
    label_values: tuple[int, ...] | None = None


Writer = Callable[[Path], Expected]
VOLUMES: dict[str, Writer] = {}
PHOTOGRAPHS: dict[str, Writer] = {}
FILMS: dict[str, Writer] = {}


def store(table: dict[str, Writer], name: str) -> Callable[[Writer], Writer]:
    def add(writer: Writer) -> Writer:
        table[name] = writer
        return writer

    return add


# --- volumes ------------------------------------------------------------------------------------------------------

SHAPE = (22, 26, 9)


@lru_cache(maxsize=1)
def volume() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, labels and RAS affine of a small oblique volume whose first axis runs to the left."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 900, SHAPE).astype(np.int16)
    labels = np.zeros(SHAPE, np.uint8)
    labels[4:9, 6:12, 2:5], labels[10:16, 8:20, 3:7] = 1, 2
    turn = np.array([[1, 0, 0], [0, np.cos(0.2), -np.sin(0.2)], [0, np.sin(0.2), np.cos(0.2)]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.diag([-0.8, 0.9, 2.4])
    affine[:3, 3] = 30, -12, 5
    return values, labels, affine


def in_lps(array: np.ndarray, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows to the back, columns to the left, slices up, and the LPS affine, by nibabel."""
    canonical = nib.as_closest_canonical(nib.Nifti1Image(array, affine))
    turned = np.transpose(np.asarray(canonical.dataobj)[::-1, ::-1], (1, 0, 2))
    ends = np.array(canonical.shape) - 1
    flip = np.array([[0, -1, 0, ends[0]], [-1, 0, 0, ends[1]], [0, 0, 1, 0], [0, 0, 0, 1]], float)
    return turned, np.diag([-1, -1, 1, 1]) @ canonical.affine @ flip


def expected_volume(image: str, labels: str, *, geometry: bool = True, dtype: Any = None) -> Expected:
    values, marked, affine = volume()
    array, lps = in_lps(values, affine)
    spacing = tuple(float(step) for step in np.linalg.norm(lps[:3, :3], axis=0))
    return Expected(
        image,
        labels,
        array[None].astype(dtype or array.dtype),
        in_lps(marked, affine)[0],
        spacing if geometry else None,
        lps if geometry else None,
    )


def plain_axes(image: str, labels: str) -> Expected:
    """Of a store without geometry: the arrays as they were written, slices last."""
    values, marked, _ = volume()
    return Expected(image, labels, values[None], marked)


def nibabel_store(name: str, kind: Any, ending: str, dtype: Any = np.int16) -> None:
    def write(folder: Path) -> Expected:
        values, labels, affine = volume()
        for stem, array in (("image", values.astype(dtype)), ("labels", labels)):
            itk_pair = kind(array.astype(np.int16) if kind is nib.Spm99AnalyzeImage else array, affine)
            nib.save(itk_pair, folder / f"{stem}{ending}")
        return expected_volume(f"image{ending}", f"labels{ending}", dtype=dtype)

    VOLUMES[name] = write


nibabel_store("nii", nib.Nifti1Image, ".nii")
nibabel_store("nifti2", nib.Nifti2Image, ".nii.gz")
nibabel_store("float64", nib.Nifti1Image, ".nii.gz", np.float64)
nibabel_store("upper case", nib.Nifti1Image, ".NII.GZ")
nibabel_store("nifti pair", nib.Nifti1Pair, ".img")
nibabel_store("mgz", nib.MGHImage, ".mgz")


@store(VOLUMES, "spm analyze")
def write_analyze(folder: Path) -> Expected:
    values, labels, affine = volume()
    for stem, array in (("image", values), ("labels", labels)):
        nib.save(nib.Spm99AnalyzeImage(array.astype(np.int16), affine), folder / f"{stem}.img")
    assert (folder / "image.mat").exists()
    return expected_volume("image.hdr", "labels.img")


def itk_images() -> tuple[sitk.Image, sitk.Image]:
    """The volume as SimpleITK images that know nothing of NIfTI."""
    values, labels, affine = volume()
    itk_pair = []
    for array in (values, labels):
        image = sitk.GetImageFromArray(np.ascontiguousarray(array.transpose(2, 1, 0)))
        lps = np.diag([-1, -1, 1, 1]) @ affine
        steps = np.linalg.norm(lps[:3, :3], axis=0)
        image.SetSpacing(steps.tolist())
        image.SetDirection((lps[:3, :3] / steps).ravel().tolist())
        image.SetOrigin(lps[:3, 3].tolist())
        itk_pair.append(image)
    return itk_pair[0], itk_pair[1]


def itk_store(name: str, ending: str, *, packed: bool, from_nifti: bool = False) -> None:
    def write(folder: Path) -> Expected:
        image, labels = itk_images()
        if from_nifti:
            sitk.WriteImage(image, str(folder / "source.nii.gz"))
            image = sitk.ReadImage(str(folder / "source.nii.gz"))
        sitk.WriteImage(image, str(folder / f"image{ending}"), packed)
        sitk.WriteImage(labels, str(folder / f"labels{ending}"), packed)
        return expected_volume(f"image{ending}", f"labels{ending}")

    VOLUMES[name] = write


for _ending in (".mha", ".nrrd", ".mhd"):
    itk_store(f"{_ending} raw", _ending, packed=False)
for _ending in (".mha", ".nrrd"):
    itk_store(f"{_ending} compressed", _ending, packed=True)
for _ending in (".mha", ".mhd", ".nhdr"):
    itk_store(f"{_ending} from nifti", _ending, packed=False, from_nifti=True)


@store(VOLUMES, "tiff stack")
def write_tiff_stack(folder: Path) -> Expected:
    values, labels, _ = volume()
    tifffile.imwrite(folder / "image.tif", np.moveaxis(values, -1, 0).astype(np.uint16), photometric="minisblack")
    tifffile.imwrite(folder / "labels.tif", np.moveaxis(labels, -1, 0), photometric="minisblack", compression="zlib")
    return plain_axes("image.tif", "labels.tif")


@store(VOLUMES, "ome tiff")
def write_ome_tiff(folder: Path) -> Expected:
    values, labels, _ = volume()
    metadata = {
        "axes": "ZYX", "PhysicalSizeX": 0.8, "PhysicalSizeXUnit": "mm", "PhysicalSizeY": 900.0, "PhysicalSizeYUnit": "µm",
        "PhysicalSizeZ": 2.4, "PhysicalSizeZUnit": "mm",
    }  # fmt: skip
    for stem, array in (("image", values.astype(np.uint16)), ("labels", labels)):
        tifffile.imwrite(
            folder / f"{stem}.ome.tif", np.moveaxis(array, -1, 0), metadata=metadata, photometric="minisblack"
        )
    expected = plain_axes("image.ome.tif", "labels.ome.tif")
    return Expected(expected.image, expected.labels, expected.array, expected.label_array, (0.9, 0.8, 2.4))


@store(VOLUMES, "dicom series")
def write_dicom_series(folder: Path) -> Expected:
    values, labels, affine = volume()
    write_series(folder / "series", values, affine)
    nib.save(nib.Nifti1Image(labels, affine), folder / "labels.nii.gz")
    return expected_volume("series", "labels.nii.gz")


@store(VOLUMES, "npy")
def write_npy(folder: Path) -> Expected:
    values, labels, _ = volume()
    np.save(folder / "image.npy", values)
    np.save(folder / "labels.npy", labels)
    return plain_axes("image.npy", "labels.npy")


@store(VOLUMES, "npz")
def write_npz(folder: Path) -> Expected:
    values, labels, _ = volume()
    np.savez_compressed(folder / "image.npz", data=values)
    np.savez_compressed(folder / "labels.npz", data=labels)
    return plain_axes("image.npz", "labels.npz")


@store(VOLUMES, "h5")
def write_h5(folder: Path) -> Expected:
    values, labels, _ = volume()
    for stem, array in (("image", values), ("labels", labels)):
        with h5py.File(folder / f"{stem}.h5", "w") as file:
            file.create_dataset("volume", data=array, compression="gzip")
    return plain_axes("image.h5", "labels.h5")


@store(VOLUMES, "mat")
def write_mat(folder: Path) -> Expected:
    values, labels, _ = volume()
    scipy.io.savemat(folder / "image.mat", {"volume": values}, do_compression=True)
    scipy.io.savemat(folder / "labels.mat", {"volume": labels})
    return plain_axes("image.mat", "labels.mat")


# --- photographs --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def photograph() -> tuple[np.ndarray, np.ndarray]:
    """(H, W, 3) smooth colours, and a mask of 0 and 255."""
    rows, columns = np.mgrid[0:48, 0:64]
    colours = np.stack([rows * 4, columns * 3, (rows + columns) * 2], axis=-1).astype(np.uint8)
    disc = (rows - 20) ** 2 + (columns - 30) ** 2 < 150
    colours[disc] = colours[disc] // 2 + 100
    return colours, (disc * 255).astype(np.uint8)


def expected_photograph(image: str, labels: str = "mask.png", tolerance: float = 0.0, **changes: Any) -> Expected:
    colours, disc = photograph()
    array = changes.get("array", np.moveaxis(colours, -1, 0))
    return Expected(image, labels, array, changes.get("label_array", disc), tolerance=tolerance,
                    label_values=changes.get("label_values"))  # fmt: skip


def save_mask(folder: Path) -> None:
    Pillow.fromarray(photograph()[1]).save(folder / "mask.png")


def pillow_store(name: str, file: str, tolerance: float = 0.0, mode: str = "RGB", **options: Any) -> None:
    def write(folder: Path) -> Expected:
        picture = Pillow.fromarray(photograph()[0])
        if mode == "P":
            picture = picture.quantize(64)
        elif mode != "RGB":
            picture = picture.convert(mode)
        picture.save(folder / file, **options)
        save_mask(folder)
        return expected_photograph(file, tolerance=tolerance)

    PHOTOGRAPHS[name] = write


pillow_store("png", "a.png")
pillow_store("png palette", "a.png", 8.0, "P")
pillow_store("png alpha", "a.png", 0.0, "RGBA")
pillow_store("bmp", "a.bmp")
pillow_store("webp", "a.webp", lossless=True)
pillow_store("gif", "a.gif", 8.0, "P")
pillow_store("ppm", "a.ppm")
pillow_store("jpeg", "a.jpg", 3.0, quality=95)
pillow_store("jpeg progressive", "a.jpeg", 3.0, quality=95, progressive=True)
pillow_store("jpeg cmyk", "a.jpg", 4.0, "CMYK", quality=95)
pillow_store("jpeg upper case", "a.JPG", 3.0, quality=95)
pillow_store("jpeg2000", "a.jp2", irreversible=False)


def tiff_store(name: str, tolerance: float = 0.0, **options: Any) -> None:
    def write(folder: Path) -> Expected:
        colours = photograph()[0]
        array = np.moveaxis(colours, -1, 0) if options.get("planarconfig") == "separate" else colours
        tifffile.imwrite(folder / "a.tif", array, photometric="rgb", **options)
        save_mask(folder)
        return expected_photograph("a.tif", tolerance=tolerance)

    PHOTOGRAPHS[name] = write


tiff_store("tiff lzw", compression="lzw")
tiff_store("tiff jpeg", 4.0, compression="jpeg", compressionargs={"level": 95})
tiff_store("tiff planar", planarconfig="separate")
tiff_store("tiff tiled zstd", tile=(16, 32), compression="zstd")
tiff_store("bigtiff", bigtiff=True)


@store(PHOTOGRAPHS, "tiff 16 bit")
def write_tiff_16(folder: Path) -> Expected:
    colours = photograph()[0].astype(np.uint16) * 257
    tifffile.imwrite(folder / "a.tif", colours, photometric="rgb")
    save_mask(folder)
    return expected_photograph("a.tif", array=np.moveaxis(colours, -1, 0))


@store(PHOTOGRAPHS, "tiff float grey")
def write_tiff_float(folder: Path) -> Expected:
    grey = (photograph()[0][..., 0] / 255).astype(np.float32)
    tifffile.imwrite(folder / "a.tif", grey)
    save_mask(folder)
    return expected_photograph("a.tif", array=grey[None])


@store(PHOTOGRAPHS, "mask 1-bit bmp")
def write_bmp_mask(folder: Path) -> Expected:
    colours, disc = photograph()
    Pillow.fromarray(colours).save(folder / "a.png")
    Pillow.fromarray(disc).convert("1").save(folder / "mask.bmp")
    return expected_photograph("a.png", "mask.bmp")


@store(PHOTOGRAPHS, "mask jpeg")
def write_jpeg_mask(folder: Path) -> Expected:
    colours, disc = photograph()
    Pillow.fromarray(colours).save(folder / "a.png")
    Pillow.fromarray(disc).save(folder / "mask.jpg", quality=90)
    return expected_photograph("a.png", "mask.jpg", label_values=(0, 255))


@store(PHOTOGRAPHS, "mask rgba")
def write_rgba_mask(folder: Path) -> Expected:
    colours, disc = photograph()
    Pillow.fromarray(colours).save(folder / "a.png")
    Pillow.fromarray(disc).convert("RGBA").save(folder / "mask.png")
    return expected_photograph("a.png")


@store(PHOTOGRAPHS, "mask nifti")
def write_nifti_mask(folder: Path) -> Expected:
    colours, disc = photograph()
    Pillow.fromarray(colours).save(folder / "a.png")
    nib.save(nib.Nifti1Image(disc.T[..., None], np.diag([-1.0, -1, 1, 1])), folder / "mask.nii.gz")
    return expected_photograph("a.png", "mask.nii.gz")


@store(PHOTOGRAPHS, "npy")
def write_photo_npy(folder: Path) -> Expected:
    colours, disc = photograph()
    np.save(folder / "a.npy", colours)
    np.save(folder / "mask.npy", disc)
    return expected_photograph("a.npy", "mask.npy")


@store(PHOTOGRAPHS, "jpeg turned by exif")
def write_exif(folder: Path) -> Expected:
    picture = Pillow.fromarray(photograph()[0])
    turned = picture.transpose(Pillow.Transpose.ROTATE_90)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned clockwise for display
    turned.save(folder / "a.jpg", quality=95, exif=exif)
    save_mask(folder)
    return expected_photograph("a.jpg", tolerance=3.0)


# --- films --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def film() -> np.ndarray:
    """(H, W) 8-bit grey."""
    rows, columns = np.mgrid[0:40, 0:56]
    return np.asarray((rows * 3 + columns * 2 + 10 * np.sin(rows / 3)) % 256, np.uint8)


def dicom_file(array: np.ndarray, **fields: Any) -> pydicom.Dataset:
    """A minimal image of computed radiography."""
    data = pydicom.Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1"
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid()
    data.StudyInstanceUID, data.SeriesInstanceUID = generate_uid(), generate_uid()
    data.PatientID, data.PatientName, data.Modality = "p1", "A^B", "CR"
    data.StudyID, data.AccessionNumber, data.StudyDate, data.StudyTime = "1", "", "20260101", "120000"
    data.PatientBirthDate, data.PatientSex, data.ReferringPhysicianName = "", "O", ""
    data.SeriesNumber, data.InstanceNumber, data.ImageType = 1, 1, ["ORIGINAL", "PRIMARY"]
    data.Rows, data.Columns = array.shape[-2:]
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = 8 * array.dtype.itemsize
    data.BitsStored, data.HighBit = data.BitsAllocated, data.BitsAllocated - 1
    data.PixelRepresentation = int(array.dtype.kind == "i")
    data.PixelSpacing = [0.2, 0.3]
    data.PixelData = array.tobytes()
    data["PixelData"].VR = "OB" if array.dtype.itemsize == 1 else "OW"
    for name, value in fields.items():
        setattr(data, name, value)
    return data


def write_series(folder: Path, values: np.ndarray, affine: np.ndarray, **fields: Any) -> list[Path]:
    """The slices of (x, y, z) values with a RAS affine as CT files without suffix, from the last to the first."""
    folder.mkdir()
    lps = np.diag([-1, -1, 1, 1]) @ affine
    steps = np.linalg.norm(lps[:3, :3], axis=0)
    series, files = generate_uid(), []
    for number in range(values.shape[2]):
        position = lps @ [0, 0, number, 1]
        data = dicom_file(
            np.ascontiguousarray(values[:, :, number].T),
            Modality="CT",
            SeriesInstanceUID=series,
            InstanceNumber=values.shape[2] - number,
            PixelSpacing=[steps[1], steps[0]],
            ImagePositionPatient=[f"{value:.6f}" for value in position[:3]],
            ImageOrientationPatient=[f"{v:.10f}" for v in (*lps[:3, 0] / steps[0], *lps[:3, 1] / steps[1])],
            **fields,
        )
        files.append(folder / f"IM{values.shape[2] - number:04d}")
        data.save_as(files[-1], enforce_file_format=True)
    return files


def expected_film(name: str, array: np.ndarray | None = None, tolerance: float = 0.0) -> Expected:
    values = film() if array is None else array
    return Expected(name, "", values[None], values, (0.2, 0.3), tolerance=tolerance)


def dicom_store(name: str, syntax: Any, file: str = "a.dcm", **fields: Any) -> None:
    def write(folder: Path) -> Expected:
        data = dicom_file(film(), **fields)
        data.file_meta.TransferSyntaxUID = syntax
        if syntax == RLELossless:
            data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            data.compress(RLELossless)
        elif syntax == JPEG2000Lossless:
            content = imagecodecs.jpeg2k_encode(film(), level=0, codecformat="j2k", reversible=True)
            data.PixelData = pydicom.encaps.encapsulate([content])
            data["PixelData"].is_undefined_length = True
        data.save_as(folder / file, implicit_vr=syntax == ImplicitVRLittleEndian, little_endian=syntax != ExplicitVRBigEndian,
                     enforce_file_format=True)  # fmt: skip
        return expected_film(file)

    FILMS[name] = write


dicom_store("explicit", ExplicitVRLittleEndian)
dicom_store("implicit", ImplicitVRLittleEndian)
dicom_store("big endian", ExplicitVRBigEndian)
dicom_store("deflated", DeflatedExplicitVRLittleEndian)
dicom_store("rle", RLELossless)
dicom_store("jpeg2000", JPEG2000Lossless)
dicom_store("without suffix", ExplicitVRLittleEndian, "IM0001")


def dcmtk_store(name: str, *command: str, tolerance: float = 0.0) -> None:
    def write(folder: Path) -> Expected:
        if shutil.which(command[0]) is None:
            import pytest

            pytest.skip(f"{command[0]} of dcmtk is not installed (apt-get install dcmtk)")
        dicom_file(film()).save_as(folder / "source.dcm", enforce_file_format=True)
        subprocess.run([*command, str(folder / "source.dcm"), str(folder / "a.dcm")], check=True, timeout=60)
        return expected_film("a.dcm", tolerance=tolerance)

    FILMS[name] = write


dcmtk_store("jpeg baseline", "dcmcjpeg", "+eb", "+q", "95", tolerance=3.0)
dcmtk_store("jpeg lossless", "dcmcjpeg", "+e1")
dcmtk_store("jpeg-ls", "dcmcjpls")


@store(FILMS, "12 bit")
def write_12_bit(folder: Path) -> Expected:
    values = film().astype(np.uint16) * 16
    dicom_file(values, BitsStored=12, HighBit=11).save_as(folder / "a.dcm", enforce_file_format=True)
    return expected_film("a.dcm", values)


@store(FILMS, "monochrome1")
def write_monochrome1(folder: Path) -> Expected:
    inverted = 255 - film()
    dicom_file(inverted, PhotometricInterpretation="MONOCHROME1").save_as(folder / "a.dcm", enforce_file_format=True)
    return expected_film("a.dcm")


@store(FILMS, "without preamble")
def write_without_preamble(folder: Path) -> Expected:
    data = dicom_file(film())
    del data.file_meta
    data.save_as(folder / "IM0001", implicit_vr=True, little_endian=True, enforce_file_format=False)
    return expected_film("IM0001")
