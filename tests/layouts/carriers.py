"""Writers of images and arrays in each carrier, with the usual library of each format and nothing of m3b."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pydicom
import scipy.io
import SimpleITK
import tifffile
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

Array = NDArray[Any]
SPACING = (0.8, 0.8)
"""Row and column distance in mm."""
THICKNESS = 3.0
"""Distance of slices in mm."""
SUFFIXES = {
    "png": ".png",
    "jpeg": ".jpg",
    "jpeg_exif": ".jpg",
    "png16": ".png",
    "png_palette": ".png",
    "tiff": ".tif",
    "tiff16": ".tiff",
    "ome_tiff": ".ome.tif",
    "bmp": ".bmp",
    "webp": ".webp",
    "gif": ".gif",
    "jpeg2000": ".jp2",
    "dicom": ".dcm",
    "dicom_plain": "",
    "dicom_inverted": ".dcm",
    "dicom_frames": ".dcm",
    "nifti_2d": ".nii.gz",
    "nrrd_2d": ".nrrd",
    "npy_case": ".npy",
    "npz_case": ".npz",
    "hdf5_case": ".h5",
    "mat_case": ".mat",
    "zip": ".png",
    "tar_gz": ".png",
    "dicom_series": "",
    "slice_folder": "",
    "nifti_3d": ".nii.gz",
    "nifti_plain": ".nii",
    "nifti_pair": ".hdr",
    "nifti_slope": ".nii.gz",
    "nrrd": ".nrrd",
    "mha": ".mha",
    "mhd": ".mhd",
    "mgz": ".mgz",
    "tiff_stack": ".tif",
    "npy_volume": ".npy",
    "npz_volume": ".npz",
    "hdf5_volume": ".h5",
    "mat_volume": ".mat",
}
SOP_CLASSES = {
    "CT": "1.2.840.10008.5.1.4.1.1.2",
    "MR": "1.2.840.10008.5.1.4.1.1.4",
    "US": "1.2.840.10008.5.1.4.1.1.6.1",
}
ENHANCED_CT, ENHANCED_MR = "1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.4.1"
COMPUTED_RADIOGRAPHY = "1.2.840.10008.5.1.4.1.1.1"
MASK_CARRIERS = {
    **dict.fromkeys(
        (
            "jpeg",
            "jpeg_exif",
            "webp",
            "gif",
            "jpeg2000",
            "dicom",
            "dicom_plain",
            "dicom_inverted",
            "png16",
            "png_palette",
            "zip",
            "tar_gz",
        ),
        "png",
    ),
    "tiff16": "tiff",
    "ome_tiff": "tiff",
    "dicom_series": "nifti_3d",
    "dicom_frames": "nifti_3d",
    "nifti_slope": "nifti_3d",
}
"""The carrier of masks, where it is not that of the images."""


@dataclass
class Header:
    """What a file says of its image.

    Args:
        tags: of a DICOM file: keyword -> value.
        items: further arrays or texts of a container (NPZ, HDF5, MAT).
        orientation: EXIF orientation of a JPEG file.
        key: of the array in a container.
        uid_seed: text from which DICOM identifiers follow.
        is_localizer: whether a DICOM file is a scout image.
    """

    tags: Mapping[str, Any] = field(default_factory=dict)
    items: Mapping[str, Any] = field(default_factory=dict)
    orientation: int = 1
    uid_seed: str = ""
    key: str = "image"
    is_localizer: bool = False


def write_image(base: Path, pixels: Array, carrier: str, header: Header | None = None) -> list[Path]:
    """Write one image and return its files, the one that names the image first.

    Args:
        base: the path without suffix; of a series or slices, the folder.
        pixels: (rows, columns), (rows, columns, 3) or (slices, rows, columns), 8 bits.
    """
    header = header or Header()
    base.parent.mkdir(parents=True, exist_ok=True)
    file = base.parent / (base.name + SUFFIXES[carrier])
    return WRITERS[carrier](file, pixels, header)


def _write_picture(file: Path, pixels: Array, header: Header) -> list[Path]:
    Image.fromarray(pixels).save(file)
    return [file]


def _write_jpeg(file: Path, pixels: Array, header: Header) -> list[Path]:
    turns = {1: 0, 3: 2, 6: 1, 8: -1}[header.orientation]
    stored = np.ascontiguousarray(np.rot90(pixels, turns))
    exif = Image.Exif()
    if header.orientation != 1:
        exif[0x0112] = header.orientation
    Image.fromarray(stored).save(file, quality=93, subsampling=0, exif=exif)
    return [file]


def _write_png16(file: Path, pixels: Array, header: Header) -> list[Path]:
    Image.fromarray(pixels.astype(np.uint16) * 200).save(file)
    return [file]


def _write_palette(file: Path, pixels: Array, header: Header) -> list[Path]:
    Image.fromarray(pixels).convert("RGB").quantize(96).save(file)
    return [file]


def _write_gif(file: Path, pixels: Array, header: Header) -> list[Path]:
    picture = Image.fromarray(pixels)
    (picture if picture.mode == "L" else picture.quantize(128)).save(file)
    return [file]


def _write_tiff(file: Path, pixels: Array, header: Header) -> list[Path]:
    photometric = "rgb" if pixels.ndim == 3 and pixels.shape[-1] == 3 else "minisblack"
    tifffile.imwrite(file, pixels, photometric=photometric, metadata=None)
    return [file]


def _write_tiff16(file: Path, pixels: Array, header: Header) -> list[Path]:
    tifffile.imwrite(file, pixels.astype(np.uint16) * 16, photometric="minisblack", compression="zlib", metadata=None)
    return [file]


def _write_ome(file: Path, pixels: Array, header: Header) -> list[Path]:
    is_colour = pixels.ndim == 3
    tifffile.imwrite(
        file,
        pixels,
        ome=True,
        photometric="rgb" if is_colour else "minisblack",
        metadata={"axes": "YXS" if is_colour else "YX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5},
    )
    return [file]


def make_dicom(file: Path, plane: Array, header: Header, position: int = 0) -> FileDataset:
    """Return a DICOM image of one plane; identifiers follow from `header.uid_seed` and the position."""
    modality = str(header.tags.get("Modality", "CT"))
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SOP_CLASSES.get(modality, COMPUTED_RADIOGRAPHY)
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[header.uid_seed, "image", str(position)])
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image = FileDataset(str(file), {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    image.StudyInstanceUID = generate_uid(entropy_srcs=[header.uid_seed, "study"])
    image.SeriesInstanceUID = generate_uid(entropy_srcs=[header.uid_seed, "series", str(header.is_localizer)])
    image.FrameOfReferenceUID = generate_uid(entropy_srcs=[header.uid_seed, "frame"])
    image.SpecificCharacterSet = "ISO_IR 192"
    image.ImageType = ["ORIGINAL", "PRIMARY", "LOCALIZER" if header.is_localizer else "AXIAL"]
    image.PatientID, image.PatientName, image.PatientBirthDate, image.PatientSex = "", "", "", ""
    image.StudyDate, image.StudyTime, image.StudyID, image.AccessionNumber = "20200101", "120000", "1", ""
    image.ReferringPhysicianName, image.Manufacturer = "", "Example"
    image.SeriesNumber, image.InstanceNumber = 1, position + 1
    image.ImagePositionPatient = [0.0, 0.0, position * THICKNESS]
    image.ImageOrientationPatient = [0, 1, 0, 0, 0, -1] if header.is_localizer else [1, 0, 0, 0, 1, 0]
    image.PixelSpacing, image.SliceThickness = list(SPACING), THICKNESS
    image.SamplesPerPixel, image.PhotometricInterpretation = 1, "MONOCHROME2"
    image.Rows, image.Columns = plane.shape
    image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 12, 11, 0
    if modality == "CT":
        image.RescaleSlope, image.RescaleIntercept = 1, -1024
    for keyword, value in header.tags.items():
        setattr(image, keyword, value)
    image.PixelData = (plane.astype(np.uint16) * 14).tobytes()
    return image


def _write_dicom(file: Path, pixels: Array, header: Header) -> list[Path]:
    make_dicom(file, pixels, header).save_as(file, enforce_file_format=True)
    return [file]


def _write_inverted(file: Path, pixels: Array, header: Header) -> list[Path]:
    """Write an image whose highest value is black."""
    image = make_dicom(file, pixels, header)
    image.PhotometricInterpretation = "MONOCHROME1"
    image.PixelData = (4095 - pixels.astype(np.uint16) * 14).tobytes()
    image.save_as(file, enforce_file_format=True)
    return [file]


def _write_frames(file: Path, pixels: Array, header: Header) -> list[Path]:
    """Write a volume as one enhanced image, whose frames have their positions in sequences."""
    image = make_dicom(file, pixels[0], header)
    sop_class = ENHANCED_MR if image.Modality == "MR" else ENHANCED_CT
    image.SOPClassUID = image.file_meta.MediaStorageSOPClassUID = sop_class
    for keyword in (
        "ImagePositionPatient",
        "ImageOrientationPatient",
        "PixelSpacing",
        "SliceThickness",
        "RescaleSlope",
    ):
        if keyword in image:
            delattr(image, keyword)
    if "RescaleIntercept" in image:
        del image.RescaleIntercept
    measures, orientation, values = Dataset(), Dataset(), Dataset()
    measures.PixelSpacing, measures.SliceThickness = list(SPACING), THICKNESS
    measures.SpacingBetweenSlices = THICKNESS
    orientation.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    values.RescaleSlope, values.RescaleIntercept, values.RescaleType = 1, 0, "US"
    shared = Dataset()
    shared.PixelMeasuresSequence = [measures]
    shared.PlaneOrientationSequence = [orientation]
    shared.PixelValueTransformationSequence = [values]
    image.SharedFunctionalGroupsSequence = [shared]
    frames = []
    for number in range(len(pixels)):
        position, content, frame = Dataset(), Dataset(), Dataset()
        position.ImagePositionPatient = [0.0, 0.0, number * THICKNESS]
        content.StackID, content.InStackPositionNumber, content.DimensionIndexValues = "1", number + 1, [1, number + 1]
        frame.PlanePositionSequence, frame.FrameContentSequence = [position], [content]
        frames.append(frame)
    image.PerFrameFunctionalGroupsSequence = frames
    image.NumberOfFrames = len(pixels)
    image.PixelData = (pixels.astype(np.uint16) * 14).tobytes()
    image.save_as(file, enforce_file_format=True)
    return [file]


def _write_series(folder: Path, pixels: Array, header: Header) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for position, plane in enumerate(pixels):
        file = folder / f"IM{position + 1:05d}"
        make_dicom(file, plane, header, position).save_as(file, enforce_file_format=True)
        files.append(file)
    return files


def _write_slices(folder: Path, pixels: Array, header: Header) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for position, plane in enumerate(pixels):
        files.append(folder / f"{position:03d}.png")
        Image.fromarray(plane).save(files[-1])
    return files


def to_affine(dimensions: int) -> Array:
    """Return the affine matrix on which DICOM, NIfTI and ITK files of this module agree."""
    return np.diag([-SPACING[1], -SPACING[0], THICKNESS if dimensions == 3 else 1.0, 1.0])


def _write_nifti(file: Path, pixels: Array, header: Header) -> list[Path]:
    stored = pixels if pixels.max(initial=0) < 20 else pixels.astype(np.int16) * 4
    nibabel.save(nibabel.Nifti1Image(stored.T, to_affine(pixels.ndim)), file)
    return [file]


def _write_nifti_slope(file: Path, pixels: Array, header: Header) -> list[Path]:
    write_sloped(file, pixels.astype(np.int16) * 4, slope=0.25, intercept=-30.0)
    return [file]


def write_sloped(file: Path, stored: Array, slope: float, intercept: float) -> None:
    """Write integers with a slope and an intercept that readers are to apply."""
    image = nibabel.Nifti1Image(stored.T.astype(np.int16), to_affine(stored.ndim))
    image.header.set_slope_inter(slope, intercept)
    nibabel.save(image, file)


def _write_pair(file: Path, pixels: Array, header: Header) -> list[Path]:
    stored = pixels if pixels.max(initial=0) < 20 else pixels.astype(np.int16) * 4
    nibabel.save(nibabel.Nifti1Pair(stored.T, to_affine(pixels.ndim)), file)
    return [file, file.with_suffix(".img")]


def _write_mgh(file: Path, pixels: Array, header: Header) -> list[Path]:
    nibabel.save(nibabel.MGHImage(np.ascontiguousarray(pixels.T), to_affine(3).astype(np.float32)), file)
    return [file]


def _write_itk(file: Path, pixels: Array, header: Header) -> list[Path]:
    image = SimpleITK.GetImageFromArray(pixels if pixels.max(initial=0) < 20 else pixels.astype(np.int16) * 4)
    image.SetSpacing((*SPACING, THICKNESS)[: pixels.ndim])
    SimpleITK.WriteImage(image, str(file), file.suffix in (".mha", ".nrrd"))
    return [file, file.with_suffix(".raw")] if file.suffix == ".mhd" else [file]


def _write_npy(file: Path, pixels: Array, header: Header) -> list[Path]:
    np.save(file, pixels)
    return [file]


def _write_npz(file: Path, pixels: Array, header: Header) -> list[Path]:
    arrays: dict[str, Any] = {header.key: pixels, **header.items}
    np.savez_compressed(file, **arrays)
    return [file]


def _write_hdf5(file: Path, pixels: Array, header: Header) -> list[Path]:
    with h5py.File(file, "w") as store:
        store[header.key] = pixels
        for key, item in header.items.items():
            store[key] = item
    return [file]


def _write_mat(file: Path, pixels: Array, header: Header) -> list[Path]:
    scipy.io.savemat(file, {header.key: pixels, **header.items}, do_compression=True)
    return [file]


WRITERS: dict[str, Callable[[Path, Array, Header], list[Path]]] = {
    **dict.fromkeys(("png", "bmp", "webp", "jpeg2000", "zip", "tar_gz"), _write_picture),
    **dict.fromkeys(("jpeg", "jpeg_exif"), _write_jpeg),
    "png16": _write_png16,
    "png_palette": _write_palette,
    "gif": _write_gif,
    "tiff": _write_tiff,
    "tiff_stack": _write_tiff,
    "tiff16": _write_tiff16,
    "ome_tiff": _write_ome,
    "dicom": _write_dicom,
    "dicom_plain": _write_dicom,
    "dicom_inverted": _write_inverted,
    "dicom_frames": _write_frames,
    "dicom_series": _write_series,
    "slice_folder": _write_slices,
    "nifti_2d": _write_nifti,
    "nifti_3d": _write_nifti,
    "nifti_plain": _write_nifti,
    "nifti_pair": _write_pair,
    "nifti_slope": _write_nifti_slope,
    "mgz": _write_mgh,
    **dict.fromkeys(("nrrd", "nrrd_2d", "mha", "mhd"), _write_itk),
    **dict.fromkeys(("npy_case", "npy_volume"), _write_npy),
    **dict.fromkeys(("npz_case", "npz_volume"), _write_npz),
    **dict.fromkeys(("hdf5_case", "hdf5_volume"), _write_hdf5),
    **dict.fromkeys(("mat_case", "mat_volume"), _write_mat),
}


# --- all cases in one file -------------------------------------------------------------------------------------------


def write_set(folder: Path, name: str, carrier: str, arrays: Mapping[str, Any]) -> tuple[Path, str]:
    """Write arrays of all cases and return the file of the images and their key.

    Args:
        name: of the part (train, test), '' if there is one alone.
        arrays: key -> array of numbers, or list of texts; `images` is one of the keys.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = name or "dataset"
    if carrier == "npy_set":
        for key, item in arrays.items():
            np.save(folder / (f"{name}_{key}.npy" if name else f"{key}.npy"), np.asarray(item))
        return folder / (f"{name}_images.npy" if name else "images.npy"), ""
    if carrier in ("npz_set", "npz_volumes"):
        compressed: dict[str, Any] = {key: np.asarray(item) for key, item in arrays.items()}
        np.savez_compressed(folder / f"{stem}.npz", **compressed)
        return folder / f"{stem}.npz", "images"
    if carrier == "mat_set":
        texts = {key: np.asarray(item, dtype=object) if _is_text(item) else item for key, item in arrays.items()}
        scipy.io.savemat(folder / f"{stem}.mat", texts, do_compression=True)
        return folder / f"{stem}.mat", "images"
    with h5py.File(folder / f"{stem}.h5", "w") as store:
        for key, item in arrays.items():
            store[key] = item
    return folder / f"{stem}.h5", "images"


def _is_text(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and isinstance(item[0], str)


def to_png_bytes(pixels: Array) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write_parquet(
    file: Path, names: Sequence[str], images: Sequence[Array], columns: Mapping[str, Sequence[Any]]
) -> None:
    """Write the usual layout of hub data sets: images as bytes with their names, and columns."""
    import pyarrow
    import pyarrow.parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    pictures = [
        {"bytes": to_png_bytes(image), "path": f"{name}.png"} for name, image in zip(names, images, strict=True)
    ]
    pyarrow.parquet.write_table(
        pyarrow.table({"image": pictures, **{key: list(item) for key, item in columns.items()}}), file
    )


def write_webdataset(
    file: Path, names: Sequence[str], images: Sequence[Array], members: Sequence[Mapping[str, str]]
) -> None:
    """Write a tar archive with files of one key a case.

    Args:
        members: of each case, suffix -> text.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for name, image, texts in zip(names, images, members, strict=True):
            contents = {"png": to_png_bytes(image), **{suffix: text.encode() for suffix, text in texts.items()}}
            for suffix, content in contents.items():
                entry = tarfile.TarInfo(f"{name}.{suffix}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def pack_folder(folder: Path, archive: Path) -> list[str]:
    """Move all files of a folder into an archive there, and return their names in it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("README"))
    names = [file.relative_to(folder).as_posix() for file in files]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as store:
            for file, name in zip(files, names, strict=True):
                store.write(file, name)
    else:
        with tarfile.open(archive, "w:gz", compresslevel=1) as store:
            for file, name in zip(files, names, strict=True):
                store.add(file, name)
    for file in files:
        file.unlink()
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        path.rmdir()
    return names


def read_dicom(file: Path) -> pydicom.Dataset:
    return pydicom.dcmread(file)


def to_json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False)
