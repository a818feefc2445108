"""Small folders of pictures, volumes, series and tables, written by Pillow, nibabel, pydicom, h5py and scipy."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

RED, GREEN, BORDER = (128, 0, 0), (0, 128, 0), (224, 224, 192)


def grey(seed: int, shape: tuple[int, ...] = (40, 48)) -> np.ndarray:
    """Return a noisy grey picture."""
    return np.random.default_rng(seed).integers(20, 230, shape).astype(np.uint8)


def colour(seed: int, shape: tuple[int, int] = (40, 48)) -> np.ndarray:
    """Return a noisy colour picture."""
    return np.random.default_rng(seed).integers(0, 255, (*shape, 3)).astype(np.uint8)


def blocks(seed: int, values: Sequence[int] = (1,), shape: tuple[int, ...] = (40, 48)) -> np.ndarray:
    """Return a mask with one block of each value on zeros, at a place that depends on the seed."""
    mask = np.zeros(shape, np.uint8)
    for at, value in enumerate(values):
        start = 2 + (seed + 9 * at) % (shape[0] - 14)
        mask[start : start + 8, 4 + 11 * (at % 3) : 12 + 11 * (at % 3)] = value
    return mask


def instances(seed: int, count: int, shape: tuple[int, int] = (64, 64)) -> np.ndarray:
    """Return a mask in which `count` blocks are numbered from 1."""
    mask = np.zeros(shape, np.uint16)
    for number in range(count):
        row, column = divmod(number, 8)
        mask[row * 8 + 1 : row * 8 + 6, column * 8 + 1 + seed % 2 : column * 8 + 6] = number + 1
    return mask


def save(path: Path, array: np.ndarray, **options: object) -> Path:
    """Write a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def save_palette(path: Path, array: np.ndarray, colours: Mapping[int, tuple[int, int, int]]) -> Path:
    """Write an index picture with a palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(array, mode="P")
    palette = [0] * 768
    for index, rgb in colours.items():
        palette[3 * index : 3 * index + 3] = rgb
    picture.putpalette(palette)
    picture.save(path)
    return path


def save_turned(path: Path, array: np.ndarray, orientation: int) -> Path:
    """Write a JPEG with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return save(path, array, exif=exif)


def save_nifti(
    path: Path, array: np.ndarray, *, slope: float = 1.0, spacing: Sequence[float] = (1.0, 1.0, 2.0)
) -> Path:
    """Write a NIfTI volume whose stored numbers are `array`."""
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(array, np.diag([*spacing, 1.0]))
    nibabel.save(image, path)
    if slope != 1.0:  # nibabel scales on writing; the header alone is changed here
        data = bytearray(path.read_bytes())
        data[112:116] = np.float32(slope).tobytes()
        path.write_bytes(bytes(data))
    return path


def save_slice(path: Path, series: str, number: int, **tags: object) -> Path:
    """Write a CT slice of 16 x 16 at `number` mm, with further tags."""
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[series, str(number), path.name])
    header = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    header.SOPClassUID = meta.MediaStorageSOPClassUID
    header.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    header.Modality, header.PatientID, header.StudyInstanceUID = "CT", f"P{series}", f"1.2.{series}"
    header.SeriesInstanceUID, header.InstanceNumber = f"1.2.{series}.1", number
    header.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    header.ImagePositionPatient, header.ImageOrientationPatient = [0, 0, number], [1, 0, 0, 0, 1, 0]
    header.PixelSpacing, header.SliceThickness = [1, 1], 1
    header.Rows = header.Columns = 16
    header.BitsAllocated, header.BitsStored, header.HighBit, header.PixelRepresentation = 16, 12, 11, 0
    header.SamplesPerPixel, header.PhotometricInterpretation = 1, "MONOCHROME2"
    header.RescaleSlope, header.RescaleIntercept = 1, -1024
    for keyword, value in tags.items():
        setattr(header, keyword, value)
    header.PixelData = np.random.default_rng(number).integers(0, 4000, (16, 16)).astype(np.uint16).tobytes()
    pydicom.dcmwrite(path, header, enforce_file_format=True)
    return path


def write_table(path: Path, rows: Iterable[Sequence[object]], separator: str = ",") -> Path:
    """Write a delimited table; the first row is its header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def fill(root: Path, names: Iterable[str], make: Callable[[int], np.ndarray] = grey, **options: object) -> None:
    """Write one picture for each path."""
    for seed, name in enumerate(names):
        save(root / name, make(seed), **options)
