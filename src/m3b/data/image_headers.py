"""What an image's header says beside its pixels: short coded fields of DICOM, and whether a fourth axis is time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from m3b.data.opening import Unreadable, attempt
from m3b.data.reading import shared

MAX_VALUE = 40
"""Characters of a header field that may be a code; longer ones are prose."""
_CODES = frozenset({"CS", "SH", "LO", "IS", "DS", "US", "SS", "UL", "FD", "FL", "ST"})
"""Kinds of DICOM values that can hold a code; dates, times, persons and UIDs differ from image to image anyway."""
_OWN = frozenset(
    (
        "PatientID", "StudyID", "AccessionNumber", "SeriesNumber", "InstanceNumber", "AcquisitionNumber", "SliceLocation", "Rows",
        "Columns", "SmallestImagePixelValue", "LargestImagePixelValue", "WindowCenter", "WindowWidth",
    )
)  # fmt: skip
"""Fields that number images or follow from their pixels."""


def codes_of(image: str | tuple[str, ...], work: Path) -> dict[str, str]:
    """Keyword -> value of the coded header fields of a DICOM image's first file; empty for other formats.

    A file that cannot be read gives nothing: the image's own reader says what is wrong with it.
    """
    file = _first_file(image, work)
    if file is None or shared().kind_of(str(file)) != "dicom":
        return {}
    try:
        return attempt(lambda: _codes(file), file)
    except Unreadable:
        return {}


def _codes(file: Path) -> dict[str, str]:
    import pydicom

    header = pydicom.dcmread(file, stop_before_pixels=True, force=True)
    return {
        one.keyword: text
        for one in header
        if one.VR in _CODES and one.keyword and one.keyword not in _OWN and len(text := str(one.value)) <= MAX_VALUE
    }


def burnt_in(header: Mapping[str, str]) -> Literal["said", "likely", ""]:
    """Whether text may stand in the pixels of a DICOM image, where no mask of names reaches it.

    Returns:
        `said` where the header says so; `likely` for kinds of images that often have it (ultrasound, secondary captures,
        photographs, endoscopy) and do not deny it; empty otherwise.
    """
    told = header.get("BurnedInAnnotation", "").upper()
    if told == "YES":
        return "said"
    return "likely" if told != "NO" and header.get("Modality") in ("US", "SC", "XC", "ES") else ""


def frames_over_time(image: str | tuple[str, ...], work: Path) -> tuple[int, float]:
    """Volumes along a fourth axis that the header calls time, and seconds between them; (0, 0) where it does not."""
    file = _first_file(image, work)
    if file is None or shared().kind_of(str(file)) != "nifti":
        return 0, 0.0
    try:
        return attempt(lambda: _frames(file), file)
    except Unreadable:
        return 0, 0.0


def _frames(file: Path) -> tuple[int, float]:
    import nibabel as nib

    header = nib.load(file).header
    shape, zooms, unit = header.get_data_shape(), header.get_zooms(), header.get_xyzt_units()[1]
    scale = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}.get(unit, 0.0)
    if len(shape) != 4 or shape[3] < 2 or scale == 0.0 or not zooms[3] > 0:
        return 0, 0.0
    return int(shape[3]), float(zooms[3]) * scale


def _first_file(image: str | tuple[str, ...], work: Path) -> Path | None:
    path = image if isinstance(image, str) else image[0]
    file = work / path.split("#", 1)[0]
    if file.is_dir():
        file = next((one for one in sorted(file.iterdir()) if one.is_file() and not one.name.startswith(".")), file)
    return file if file.is_file() else None
