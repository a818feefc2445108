"""Tiny folders of every kind of layout, drawn here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)


def picture(path: Path, *, seed: int = 0, size: tuple[int, int] = (24, 32), colour: bool = False) -> Path:
    """A noisy picture of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed + 1)
    low = rng.integers(40, 200, (4, 4, 3) if colour else (4, 4), dtype=np.uint8)
    image = Image.fromarray(low).resize((size[1], size[0]), Image.Resampling.BILINEAR)
    noise = rng.integers(0, 30, (*size, 3) if colour else size, dtype=np.uint8)
    Image.fromarray((np.asarray(image) // 2 + noise).astype(np.uint8)).save(path)
    return path


def blob(seed: int, size: tuple[int, int] = (24, 32)) -> Any:
    """A disc somewhere."""
    rng = np.random.default_rng(seed + 7)
    rows, columns = np.mgrid[: size[0], : size[1]]
    at = rng.integers(6, size[0] - 6), rng.integers(6, size[1] - 6)
    return (rows - at[0]) ** 2 + (columns - at[1]) ** 2 < 20


def mask(path: Path, *, seed: int = 0, size: tuple[int, int] = (24, 32), value: int = 255, quality: int = 80) -> Path:
    """A mask of one disc; a JPEG one is noisy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray((blob(seed, size) * value).astype(np.uint8))
    image.save(path, quality=quality) if path.suffix in (".jpg", ".jpeg") else image.save(path)
    return path


def volume(path: Path, *, seed: int = 0, labels: int = 0, shape: tuple[int, int, int] = (12, 10, 8)) -> Path:
    """A NIfTI volume; with `labels` a label map of so many."""
    import nibabel as nib

    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed + 3)
    data = rng.normal(100, 20, shape).astype(np.float32)
    if labels:
        data = np.zeros(shape, np.uint8)
        for value in range(1, labels + 1):
            data[value : value + 3, 2:6, 2:5] = value
    nib.save(nib.Nifti1Image(data, np.diag([1, 1, 2, 1])), path)
    return path


def dicom(path: Path, **tags: Any) -> Path:
    """A small DICOM file with the tags given."""
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.Modality = "CT"
    for name, value in tags.items():
        setattr(data, name, value)
    if "Rows" not in data and data.Modality not in ("RTSTRUCT",):
        rng = np.random.default_rng(len(str(path)))
        pixels = rng.integers(0, 1000, (16, 16), dtype=np.int16)
        data.Rows, data.Columns, data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 16, 16, 15
        data.PixelRepresentation, data.SamplesPerPixel, data.PhotometricInterpretation = 1, 1, "MONOCHROME2"
        data.PixelSpacing, data.PixelData = [1.0, 1.0], pixels.tobytes()
    data.save_as(path)
    return path


def structure_set(path: Path, roi: str, series: str, **tags: Any) -> Path:
    """A structure set of one ROI that refers to a series."""
    from pydicom.dataset import Dataset

    region = Dataset()
    region.ROINumber, region.ROIName = 1, roi
    contour = Dataset()
    contour.ContourData = [0, 0, 0, 1, 0, 0, 1, 1, 0]
    contours = Dataset()
    contours.ReferencedROINumber, contours.ContourSequence = 1, [contour]
    referred = Dataset()
    referred.SeriesInstanceUID = series
    study = Dataset()
    study.RTReferencedSeriesSequence = [referred]
    frame = Dataset()
    frame.RTReferencedStudySequence = [study]
    return dicom(path, Modality="RTSTRUCT", StructureSetROISequence=[region], ROIContourSequence=[contours],
                 ReferencedFrameOfReferenceSequence=[frame], **tags)  # fmt: skip


def write(path: Path, text: str | bytes) -> Path:
    """A file of text or bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
