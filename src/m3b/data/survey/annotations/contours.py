"""DICOM structure sets (RTSTRUCT) and segmentations: what they mark, and the series that they refer to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from m3b.data.survey.annotations.marks import Format, Marks
from m3b.data.survey.dicom import Header
from m3b.data.survey.gathering import Gathered, Gathering

_FORMATS: dict[str, Format] = {"RTSTRUCT": "rtstruct", "SEG": "dicom_seg"}


def find(found: Gathering) -> Iterator[Marks]:
    """Groups of DICOM files that are structure sets or segmentations."""
    for group in found.groups:
        for modality, form in _FORMATS.items():
            some = [one for one in (group.headers.found if group.headers else ()) if one.modality == modality]
            if some:
                yield _marks(found, group, form, some)


def _marks(found: Gathering, group: Gathered, form: Format, some: list[Header]) -> Marks:
    marks = Marks(form, some[0].path, len(some), group=group.id, class_source="ROIName" if form == "rtstruct" else "SegmentLabel",
                  shapes={"contour" if form == "rtstruct" else "mask"})  # fmt: skip
    for one in some:
        marks.classes.update(name for name, _ in one.rois)
        marks.items += len(one.rois)
        marks.marked += bool(one.rois)
        marks.faults["no_contours"] += sum(1 for _, contours in one.rois if not contours) if form == "rtstruct" else 0
        marks.named += one.refers
    owners = Counter[str]()
    named = set(marks.named)
    for other in found.groups:
        series = {one.tags.get("SeriesInstanceUID", "") for one in (other.headers.found if other.headers else ())}
        if other.is_images and (common := len(series & named)):
            owners[other.id] = common
    if owners:
        marks.images, marks.images_found = sorted(owners.items(), key=lambda item: (-item[1], item[0]))[0]
    else:
        _by_folder(found, group, marks, some)
    return marks


def _by_folder(found: Gathering, group: Gathered, marks: Marks, some: list[Header]) -> None:
    """Where the series are not named rightly: the images of the same study, by their frame of reference."""
    frames = {one.tags.get("FrameOfReferenceUID") or one.tags.get("StudyInstanceUID") for one in some} - {None, ""}
    for other in found.groups:
        theirs = {
            one.tags.get(tag)
            for one in (other.headers.found if other.headers else ())
            for tag in ("FrameOfReferenceUID", "StudyInstanceUID")
        }
        if other.is_images and frames & theirs:
            marks.faults["series_not_named"] = len(some)
            return
