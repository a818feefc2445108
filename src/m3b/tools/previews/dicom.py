"""DICOM files and series. Tags that name a person are masked; the patient's id as a stable short hash."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.phi import Phi, mask, scrub
from m3b.dataset.audit.probes import find_burnt_in_text
from m3b.dataset.formats import describe_file
from m3b.dataset.formats.base import describe_info
from m3b.dataset.formats.dicom import probe_series
from m3b.errors import DataError, ToolError
from m3b.tools.paths import open_for_reading
from m3b.tools.text import pluralize, shorten

_MAX_READ, _MAX_SERIES = 2000, 12
MAX_REGIONS = 30
"""Names of regions that are told."""
MAX_AGE = 89
"""The highest age that is told in years (the limit of HIPAA's safe harbor, 45 CFR 164.514)."""
_SHOWN_TAGS = (
    "Modality", "BodyPartExamined", "StudyDescription", "SeriesDescription", "ProtocolName", "Manufacturer",
    "ManufacturerModelName", "PatientSex", "PatientAge", "ViewPosition", "ImageLaterality", "PresentationIntentType",
    "PhotometricInterpretation", "RescaleSlope", "RescaleIntercept", "WindowCenter", "WindowWidth", "KVP", "ImageType",
    "PatientPosition", "BurnedInAnnotation", "NumberOfFrames",
)  # fmt: skip
_PERSONAL = (
    "PatientID", "PatientName", "PatientBirthDate", "PatientAddress", "PatientTelephoneNumbers", "OtherPatientIDs",
    "OtherPatientNames", "PatientMotherBirthName", "MedicalRecordLocator", "AccessionNumber", "ReferringPhysicianName",
    "PerformingPhysicianName", "OperatorsName", "PhysiciansOfRecord", "NameOfPhysiciansReadingStudy", "InstitutionName",
    "InstitutionAddress", "RequestingPhysician", "MilitaryRank", "Occupation", "PatientComments", "StudyID",
)  # fmt: skip
"""The direct identifiers among the attributes of the basic confidentiality profile, DICOM PS3.15 table E.1-1."""


def is_dicom(path: Path) -> bool:
    """Whether a file has the DICOM mark, or the name of one."""
    if path.suffix.lower() in (".dcm", ".dicom", ".ima"):
        return True
    try:
        with open_for_reading(path, path.name) as file:
            return file.read(132)[128:] == b"DICM"
    except (OSError, ToolError):
        return False


def preview(path: Path, phi: Phi) -> list[str]:
    """Return lines about one DICOM file."""
    import pydicom

    with open_for_reading(path, path.name) as file:
        data = pydicom.dcmread(BufferedReader(file), force=path.suffix.lower() != "", stop_before_pixels=True)
    if "SOPClassUID" not in data and "Rows" not in data:
        return ["not a DICOM image: neither a SOP class nor rows in its header"]
    kind = getattr(data.get("SOPClassUID"), "name", "unknown class")
    described = [f"DICOM, {kind}", *_tags(data, phi), *_regions(data, phi)]
    try:
        return [*described, *describe_file(path).splitlines()]
    except DataError as error:
        return [*described, f"no image: {shorten(str(error).removeprefix(f'{path}: '), 120)}"]


def preview_series(files: Sequence[Path], phi: Phi) -> list[str]:
    """Return lines about all series in a list of files; of more than 2,000 files, that many spread evenly are read."""
    step = max(-(-len(files) // _MAX_READ), 1)
    series: dict[str, list[Path]] = {}
    first_headers: dict[str, Any] = {}
    patients: set[str] = set()
    bad = 0
    for file in files[::step]:
        try:
            data = attempt(partial(_slice_header, file))
        except Unreadable:
            bad += 1
            continue
        uid = str(data.SeriesInstanceUID)
        series.setdefault(uid, []).append(file)
        first_headers.setdefault(uid, data)
        patients.add(str(data.get("PatientID", "")))
    of = f" (headers of every {step}th file read)" if step > 1 else ""
    lines = [f"DICOM folder, {pluralize(len(files), 'file')}{of}, {pluralize(len(series), 'series', 'series')}, "
             f"{pluralize(len(patients), 'patient')}"]  # fmt: skip
    for uid in sorted(series, key=lambda uid: -len(series[uid]))[:_MAX_SERIES]:
        lines.append(_series(series[uid], first_headers[uid], phi, is_whole=step == 1))
    if len(series) > _MAX_SERIES:
        lines.append(f"... {len(series) - _MAX_SERIES} more series")
    if bad:
        lines.append(f"{pluralize(bad, 'file')} of {len(files[::step]):,} not readable as DICOM")
    return lines


def _slice_header(file: Path) -> Any:
    """The header of a file of a series."""
    import pydicom

    with open_for_reading(file, file.name) as raw:
        data = pydicom.dcmread(BufferedReader(raw), stop_before_pixels=True, force=file.suffix.lower() == ".dcm")
    if "SeriesInstanceUID" not in data:
        raise ValueError("it names no series that it is part of")
    return data


def _series(files: Sequence[Path], first: Any, phi: Phi, *, is_whole: bool) -> str:
    """Return the modality, description and patient of a series, and its volume if all files were looked at."""
    text = f"series of {pluralize(len(files), 'file')}: {first.get('Modality', '?')}"
    if description := first.get("SeriesDescription"):
        text += f", {shorten(_unnamed(_hidden(str(description), phi), first, phi), 60)!r}"
    text += f", patient {_hidden(str(first.get('PatientID', '')), phi, is_identity=True) or 'not stated'}"
    if not is_whole:
        return text
    folder = files[0].parent
    try:
        return f"{text}; {describe_info(probe_series(folder, files))}"
    except DataError as error:
        return f"{text}; no volume: {shorten(str(error).removeprefix(f'{folder}: ').replace(f'{folder}/', ''), 200)}"


def _regions(data: Any, phi: Phi) -> list[str]:
    """Names of what contours (RTSTRUCT) or segments (SEG) outline."""
    for sequence, name in (("StructureSetROISequence", "ROIName"), ("SegmentSequence", "SegmentLabel")):
        names = Counter(str(item.get(name, "")) for item in data.get(sequence) or ())
        if names:
            shown_names = ", ".join(
                _unnamed(_hidden(shorten(region, 60), phi), data, phi) for region in list(names)[:MAX_REGIONS]
            )
            rest_note = f", {len(names) - MAX_REGIONS} more" if len(names) > MAX_REGIONS else ""
            return [f"outlines {pluralize(names.total(), 'region')}: {shown_names}{rest_note}"]
    return []


def _tags(data: Any, phi: Phi) -> list[str]:
    tags = [
        f"{name}={shorten(_unnamed(_hidden(_aged(name, str(data.get(name)), phi), phi), data, phi), 60)}"
        for name in _SHOWN_TAGS
        if data.get(name) not in (None, "")
    ]
    present = [name for name in _PERSONAL if data.get(name) not in (None, "")]
    lines = [", ".join(tags)] if tags else []
    lines += _burnt_in(data)
    if present and phi == "mask":
        identity = [f"{name}={mask(str(data.get(name)))}" for name in present if name in ("PatientID", "PatientName")]
        lines.append(f"masked: {', '.join([*identity, *(name for name in present if name not in _PERSONAL[:2])])}")
    elif present:
        lines.append(", ".join(f"{name}={shorten(str(data.get(name)), 60)}" for name in present))
    return lines


def _aged(name: str, value: str, phi: Phi) -> str:
    """A value as it is, but an age of which there are so few people that it is half a name."""
    years = re.fullmatch(r"\s*0*(\d+)Y\s*", value) if name == "PatientAge" and phi == "mask" else None
    return f"over {MAX_AGE} years" if years and int(years.group(1)) > MAX_AGE else value


def _unnamed(text: str, data: Any, phi: Phi) -> str:
    """A description without the parts of the patient's name and the record number that technicians type into it."""
    if phi == "allow":
        return text
    identity = f"{data.get('PatientName', '')} {data.get('PatientID', '')}"
    for part in re.findall(r"[^\W_]{3,}", identity):
        text = re.sub(rf"(?<![^\W_]){re.escape(part)}(?![^\W_])", "[masked]", text, flags=re.IGNORECASE)
    return text


def _burnt_in(data: Any) -> list[str]:
    """A warning where identity may stand in the pixels, by the header or by the kind of image."""
    header = {name: str(data.get(name, "")) for name in ("BurnedInAnnotation", "Modality")}
    risk = find_burnt_in_text(header)
    if risk == "stated":
        return ["warning: the header says that text is burnt into the pixels; it may name the patient"]
    kind = getattr(data.get("SOPClassUID"), "name", "")
    scanned = "SECONDARY" in str(data.get("ImageType", "")).upper() and "Secondary Capture" in kind
    if risk or (scanned and header["BurnedInAnnotation"].upper() != "NO"):
        return ["warning: images of this kind often have text burnt into the pixels, and the header does not deny it"]
    return []


def _hidden(text: str, phi: Phi, *, is_identity: bool = False) -> str:
    if phi == "allow":
        return text
    return mask(text) if is_identity else scrub(text)
