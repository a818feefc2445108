"""DICOM headers of a group: series, studies, patients and tags. Pixels are not read here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.phi import PROSE_WORDS
from m3b.data.survey.facts import Sensitive, Series, Tag, Value
from m3b.data.survey.templates import MAX_VALUES

IDENTITY = frozenset({
    "PatientID", "PatientName", "PatientBirthDate", "AccessionNumber", "StudyID", "OtherPatientIDs", "InstitutionName",
    "ReferringPhysicianName", "StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID",
})  # fmt: skip
"""Tags that name a person or one examination."""
FREE_TEXT = frozenset({"StudyDescription", "SeriesDescription", "ImageComments", "ProtocolName", "PatientComments"})
KEYWORDS = (
    "Modality", "PatientID", "PatientName", "PatientSex", "PatientAge", "StudyInstanceUID", "SeriesInstanceUID",
    "SOPInstanceUID", "FrameOfReferenceUID", "AccessionNumber", "StudyID", "SeriesNumber", "InstanceNumber",
    "SeriesDescription", "StudyDescription", "ProtocolName", "BodyPartExamined", "Laterality", "ImageLaterality",
    "ViewPosition", "ContrastBolusAgent", "Manufacturer", "Rows", "Columns", "NumberOfFrames", "SOPClassUID",
    "PhotometricInterpretation", "SliceThickness", "StudyDate", "ImageType",
)  # fmt: skip
"""What is read of a header: what groups, joins or labels a file."""
_STRUCTURES = ("StructureSetROISequence", "ROIContourSequence", "ReferencedFrameOfReferenceSequence", "SegmentSequence",
               "ReferencedSeriesSequence")  # fmt: skip


@dataclass(frozen=True)
class Header:
    """The tags of one file as texts, and of structure sets and segmentations what they mark."""

    path: str
    tags: dict[str, str]
    rois: tuple[tuple[str, int], ...] = ()
    """(name, contours) of a structure set, (label, 1) of a segmentation."""
    refers: tuple[str, ...] = ()
    """Series that it refers to."""

    @property
    def modality(self) -> str:
        """The tag, or "" ."""
        return self.tags.get("Modality", "")


@dataclass
class Headers:
    """The headers of one group that were read."""

    group: str
    files: int
    found: list[Header] = field(default_factory=list)
    failed: int = 0


def read_header(root: Path, path: str) -> Header | None:
    """One file's tags; None where it is no DICOM file."""
    try:
        return attempt(lambda: _header(root, path), root, path)
    except Unreadable:
        return None


def _header(root: Path, path: str) -> Header | None:
    import pydicom

    data = pydicom.dcmread(root / path, force=True, stop_before_pixels=True, specific_tags=[*KEYWORDS, *_STRUCTURES])
    tags = {key: text for key in KEYWORDS if (text := _text(data.get(key)))}
    return Header(path, tags, _rois(data), _refers(data)) if tags else None


def _text(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, str | int | float):
        return str(value).strip()[:400]
    try:
        return "\\".join(str(one) for one in value)[:400]
    except TypeError:
        return str(value)[:400]


def _rois(data: Any) -> tuple[tuple[str, int], ...]:
    names = {int(one.ROINumber): str(one.get("ROIName", "")) for one in data.get("StructureSetROISequence") or []}
    contours = {
        int(one.ReferencedROINumber): len(one.get("ContourSequence") or []) for one in data.get("ROIContourSequence") or []
    }  # fmt: skip
    segments = [(str(one.get("SegmentLabel", "")), 1) for one in data.get("SegmentSequence") or []]
    return tuple((name, contours.get(number, 0)) for number, name in sorted(names.items())) + tuple(segments)


def _refers(data: Any) -> tuple[str, ...]:
    found = {
        str(one.SeriesInstanceUID) for one in data.get("ReferencedSeriesSequence") or [] if "SeriesInstanceUID" in one
    }
    for frame in data.get("ReferencedFrameOfReferenceSequence") or []:
        for study in frame.get("RTReferencedStudySequence") or []:
            for series in study.get("RTReferencedSeriesSequence") or []:
                found.add(str(series.get("SeriesInstanceUID", "")))
    return tuple(sorted(found - {""}))


def series_of(headers: Headers) -> list[Series]:
    """The facts of a group's headers, one for each modality."""
    by_modality: dict[str, list[Header]] = defaultdict(list)
    for header in headers.found:
        by_modality[header.modality].append(header)
    return [_series(headers, modality, found) for modality, found in sorted(by_modality.items())]


def _series(headers: Headers, modality: str, found: list[Header]) -> Series:
    series = Counter(one.tags.get("SeriesInstanceUID", one.path) for one in found)
    folders: dict[str, set[str]] = defaultdict(set)
    places: dict[str, set[str]] = defaultdict(set)
    for one in found:
        folder, uid = one.path.rpartition("/")[0], one.tags.get("SeriesInstanceUID", one.path)
        folders[folder].add(uid)
        places[uid].add(folder)
    return Series(
        group=headers.group,
        modality=modality,
        files=len(found) if len(found) + headers.failed == headers.files else headers.files,
        series=len(series),
        studies=_distinct(found, "StudyInstanceUID"),
        patients=_distinct(found, "PatientID"),
        slices=(min(series.values()), max(series.values())),
        folders_are_series=all(len(one) == 1 for one in (*folders.values(), *places.values())),
        per_file=max(series.values()) == 1,
        read=len(found),
        tags=tuple(_tags(found)),
    )


def _distinct(found: Iterable[Header], keyword: str) -> int:
    return len({one.tags[keyword] for one in found if keyword in one.tags})


def _tags(found: list[Header]) -> list[Tag]:
    facts = []
    for keyword in KEYWORDS:
        counts = Counter(one.tags[keyword] for one in found if keyword in one.tags)
        if not counts or keyword in ("Rows", "Columns", "SOPClassUID"):
            continue
        shown = sorted(counts.items()) if len(counts) <= MAX_VALUES else []
        facts.append(
            Tag(
                keyword=keyword, files=counts.total(), distinct=len(counts),
                values=tuple(Value(text=text, count=count) for text, count in shown), sensitive=_sensitive(keyword, counts),
            )
        )  # fmt: skip
    return facts


def _sensitive(keyword: str, counts: Counter[str]) -> Sensitive:
    if keyword in IDENTITY:
        return "identity"
    if keyword in FREE_TEXT or any(len(text.split()) >= PROSE_WORDS for text in counts):
        return "free_text"
    return ""
