"""The DICOM instances that an image was read from, and a mask resampled to their planes. Runs in the reader."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data.records import paths_of
from m3b.errors import DataError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.untrusted import announce_opening

if TYPE_CHECKING:
    from numpy.typing import NDArray

REQUIRED_ATTRIBUTES = ("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "Rows", "Columns")
OPTIONAL_ATTRIBUTES = (
    "PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID", "StudyDate", "StudyTime",
    "ReferringPhysicianName",
)  # fmt: skip
"""Attributes of patient and study that every object has, empty if the source does not have them."""


def read_source_headers(image: Any) -> list[Any]:
    """Return the headers of the instances of a file, folder or list of slices.

    They are ordered along the normal of their planes.

    Raises:
        DataError: it is no DICOM, has several series, or has several frames in one file.
    """
    files = _list_dicom_files(paths_of(image))
    headers = [_read_header(file) for file in files]
    if len({str(header.SeriesInstanceUID) for header in headers}) > 1:
        raise DataError(f"{files[0].parent}: holds several DICOM series; name the folder of one, or its files.")
    if any(int(header.get("NumberOfFrames") or 1) > 1 for header in headers):
        raise DataError(f"{files[0]}: has several frames in one instance, which DICOM output does not support yet.")
    return sorted(headers, key=_position_key) if len(headers) > 1 else headers


def _list_dicom_files(paths: Sequence[str]) -> list[Path]:
    """Return the files; for a folder, those that DICOM readers take: not hidden, and no DICOMDIR."""
    first = Path(paths[0])
    if len(paths) == 1 and first.is_dir():
        with os.scandir(first) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file() and not entry.name.startswith("."))
        files = [first / name for name in names if name.upper() != "DICOMDIR" and _is_dicom_file(first / name)]
        if not files:
            raise DataError(f"{first}: holds no DICOM file.")
        return files
    return [Path(path) for path in paths]


def _is_dicom_file(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(132)[128:] == b"DICM" or file.suffix.lower() in ("", ".dcm", ".dicom", ".ima")


def _read_header(file: Path) -> Any:
    import pydicom
    from pydicom.errors import InvalidDicomError

    announce_opening(file)
    try:
        header = pydicom.dcmread(file, stop_before_pixels=True)
    except (InvalidDicomError, OSError, ValueError) as error:
        raise DataError(
            f"{file} is no DICOM file ({type(error).__name__}); DICOM output refers to DICOM sources."
        ) from None
    missing = [name for name in REQUIRED_ATTRIBUTES if name not in header]
    if missing:
        raise DataError(f"{file}: has no {', '.join(missing)}; DICOM output refers to DICOM images.")
    for name in OPTIONAL_ATTRIBUTES:
        if name not in header:
            setattr(header, name, "")
    return header


def _position_key(header: Any) -> tuple[float, int]:
    import numpy as np

    number = int(header.get("InstanceNumber") or 0)
    if "ImagePositionPatient" not in header or "ImageOrientationPatient" not in header:
        return 0.0, number
    orientation = np.array(header.ImageOrientationPatient, float)
    return float(np.cross(orientation[:3], orientation[3:]) @ np.array(header.ImagePositionPatient, float)), number


def resample_to_planes(mask: Any, sources: Sequence[Any]) -> NDArray[Any]:
    """Return (N, rows, columns) labels of a mask on the pixels of each instance, by their positions in the patient.

    Args:
        mask: as `read_mask` gives it.

    Raises:
        DataError: the shape of a picture differs, or the position of a volume's mask or instances is unknown.
    """
    import numpy as np

    array = np.asarray(mask.array)
    sizes = {(int(header.Rows), int(header.Columns)) for header in sources}
    if array.ndim == 2 or mask.affine is None:
        if len(sources) != 1 or array.squeeze().shape != next(iter(sizes)):
            raise DataError(f"The mask is {array.shape}, its {len(sources)} DICOM instances are {sorted(sizes)}.")
        return array.reshape(1, *next(iter(sizes)))
    return np.stack([_sample_plane(array, np.asarray(mask.affine, float), header) for header in sources])


def _sample_plane(array: NDArray[Any], affine: NDArray[Any], header: Any) -> NDArray[Any]:
    """Return the nearest voxel of the mask for every pixel of an instance; 0 outside."""
    import numpy as np

    if "ImagePositionPatient" not in header or "ImageOrientationPatient" not in header or "PixelSpacing" not in header:
        raise DataError(f"The instance {header.SOPInstanceUID} does not say where it lies in the patient.")
    orientation, spacing = np.array(header.ImageOrientationPatient, float), np.array(header.PixelSpacing, float)
    rows, columns = np.mgrid[0 : int(header.Rows), 0 : int(header.Columns)]
    world = (
        np.array(header.ImagePositionPatient, float)
        + columns[..., None] * orientation[:3] * spacing[1]
        + rows[..., None] * orientation[3:] * spacing[0]
    )
    world_to_voxel = np.linalg.inv(affine)
    voxels = np.rint(world @ world_to_voxel[:3, :3].T + world_to_voxel[:3, 3]).astype(int)
    is_inside = ((voxels >= 0) & (voxels < np.array(array.shape))).all(axis=-1)
    clipped = voxels.clip(0, np.array(array.shape) - 1)
    values: NDArray[Any] = np.where(is_inside, array[clipped[..., 0], clipped[..., 1], clipped[..., 2]], 0)
    return values


@dataclass(frozen=True)
class InstanceRequest:
    """A file that was received."""

    file: Path


@dataclass(frozen=True)
class InstanceFacts:
    """What tells to which series an instance belongs, or a problem for which it is refused."""

    series: str = ""
    modality: str = ""
    frames: int = 1
    problem: str = ""


INSPECT_INSTANCE_JOB = WorkerJob("m3b.models.dicom.sources:inspect_instance", InstanceRequest, InstanceFacts)


def inspect_instance(request: InstanceRequest) -> InstanceFacts:
    """Worker job: return what the header of an instance says."""
    try:
        header = _read_header(request.file)
        frames = int(header.get("NumberOfFrames") or 1)
        return InstanceFacts(str(header.SeriesInstanceUID), str(header.get("Modality", "")), frames)
    except (DataError, AttributeError, TypeError, ValueError) as error:
        return InstanceFacts(problem=type(error).__name__)
