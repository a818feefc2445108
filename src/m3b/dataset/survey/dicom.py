"""DICOM headers: series, localizers, doubles, gaps, tilt, phases, rescaling, and the tags that tables or classes may go with."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from m3b.data.opening import Unreadable, attempt
from m3b.data.phi import mask
from m3b.dataset.archives import local_file
from m3b.dataset.survey.facts import DicomFacts, Sensitive, SurveyLimits, Tag, ValueCount
from m3b.dataset.survey.groups import Group
from m3b.dataset.survey.names import to_int

KEY_TAGS = (
    "PatientID",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "SOPInstanceUID",
    "AccessionNumber",
    "StudyID",
    "SeriesNumber",
    "InstanceNumber",
)
"""Tags that name things, which tables may name too."""
FACT_TAGS = (
    "Modality",
    "SeriesDescription",
    "StudyDescription",
    "ProtocolName",
    "BodyPartExamined",
    "ViewPosition",
    "Laterality",
    "ImageLaterality",
    "PatientSex",
    "PatientAge",
    "Manufacturer",
    "ContrastBolusAgent",
    "PhotometricInterpretation",
    "ImageType",
    "RescaleIntercept",
    "RescaleSlope",
    "AcquisitionNumber",
    "TemporalPositionIdentifier",
    "EchoNumbers",
    "StudyDate",
    "ImageComments",
    "PatientComments",
    "AdmittingDiagnosesDescription",
    "RequestedProcedureDescription",
    "ReasonForTheRequestedProcedure",
    "ReasonForStudy",
)
_GEOMETRY_TAGS = (
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "GantryDetectorTilt",
    "SliceThickness",
    "SOPClassUID",
    "NumberOfFrames",
)
_NUMBER_TAGS = ("RescaleIntercept", "RescaleSlope")
NO_IMAGES = frozenset(
    {"SEG", "RTSTRUCT", "RTPLAN", "RTDOSE", "RTRECORD", "SR", "PR", "KO", "REG", "FID", "RWV", "DOC", "AU", "ANN"}
)
"""Modalities (DICOM PS3.3 C.7.3.1.1.1) of objects that are made from images, as exports of annotated series have them, too."""
_IDENTITIES = frozenset({"PatientID", "AccessionNumber", "StudyID"})
_PROSE = frozenset({"SeriesDescription", "StudyDescription", "ProtocolName", "ContrastBolusAgent"})
_MAX_VALUES = 60


@dataclass(frozen=True)
class Headers:
    """Headers of the files of one group: column `path` and one for each tag, as texts."""

    frame: pl.DataFrame
    complete: bool


def read_headers(group: Group, root: Path, limit: int, is_late: Callable[[], bool]) -> Headers:
    """Read headers of whole folders until the limit is reached."""
    rows: list[dict[str, Any]] = []
    tags = [*KEY_TAGS, *FACT_TAGS, *_GEOMETRY_TAGS]
    complete = True
    for path in group.paths:
        if len(rows) >= limit or is_late():
            complete = False
            break
        try:
            rows.append({"path": path, **attempt(partial(_read_tags, local_file(root, path), tags), root, path)})
        except Unreadable:
            continue
    schema = {"path": pl.String, **dict.fromkeys(tags, pl.String)}
    return Headers(pl.DataFrame(rows, schema=schema), complete)


def _read_tags(path: Path, tags: list[str]) -> dict[str, str | None]:
    import pydicom

    header = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=tags, force=True)
    texts = {tag: _write(header.get(tag)) for tag in tags}
    return {**texts, **{tag: _write_number(texts[tag]) for tag in _NUMBER_TAGS}}


def _write_number(text: str | None) -> str | None:
    """One spelling of a number: -1024, -1024.0 and -1.024E+03 are equal."""
    try:
        return f"{float(text):g}" if text else None
    except ValueError:
        return text


def _write(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return str(value).strip() or None
    return "\\".join(str(part) for part in value)


def describe_series(group: Group, headers: Headers) -> list[DicomFacts]:
    """Return the facts of each modality of a group."""
    facts = []
    for (modality,), part in sorted(headers.frame.group_by("Modality"), key=lambda item: str(item[0])):
        facts.append(_describe(group, str(modality or ""), part, headers))
    return facts


def _describe(group: Group, modality: str, part: pl.DataFrame, headers: Headers) -> DicomFacts:
    part = part.with_columns(folder=pl.col("path").str.extract(r"^(.*)/", 1).fill_null(""))
    series = part.group_by("SeriesInstanceUID").agg(
        pl.len(), pl.col("folder").n_unique(), pl.col("folder").first().alias("first")
    )
    folders = part.group_by("folder").agg(pl.col("SeriesInstanceUID").n_unique())
    rescales = part.select(pl.concat_str("RescaleSlope", "RescaleIntercept", separator="/").drop_nulls()).to_series()
    gaps, phases, tilted = [], 0, 0
    for (uid,), slices in part.group_by("SeriesInstanceUID"):
        if uid is None or len(slices) < 3:
            continue
        positions = _positions(slices)
        if positions is None:
            continue
        distances, is_tilted = positions
        tilted += is_tilted
        phases += len(set(distances)) < 0.75 * len(set(slices["SOPInstanceUID"].to_list()))
        if _has_gap(sorted(set(distances))):
            gaps.append(slices["folder"][0] or str(uid))
    instances = part["SOPInstanceUID"].drop_nulls()
    image_types = part["ImageType"].drop_nulls()
    return DicomFacts(
        group=group.id,
        modality=modality,
        files=len(part) if headers.complete else round(len(group.frame) * len(part) / max(len(headers.frame), 1)),
        read=len(part),
        series=part["SeriesInstanceUID"].n_unique(),
        studies=part["StudyInstanceUID"].n_unique(),
        patients=part["PatientID"].n_unique(),
        slices=(to_int(series["len"].min()), to_int(series["len"].max())),
        folders_are_series=bool((series["folder"] == 1).all() and (folders["SeriesInstanceUID"] == 1).all()),
        single=bool((series["len"] == 1).all()),
        localizers=int(image_types.str.to_uppercase().str.contains("LOCALIZER").sum()),
        duplicates=len(instances) - instances.n_unique(),
        gaps=len(gaps),
        gap_examples=tuple(sorted(gaps)[:5]),
        tilted=tilted,
        phases=phases,
        rescales=_count(rescales),
        tags=_tag_facts(part),
    )


def _positions(slices: pl.DataFrame) -> tuple[list[float], bool] | None:
    """The distance of each slice along the normal, and whether the gantry was tilted."""
    import numpy as np

    distances: list[float] = []
    origins = []
    normal = None
    for position, orientation in slices.select("ImagePositionPatient", "ImageOrientationPatient").iter_rows():
        try:
            origin = np.array([float(value) for value in position.split("\\")])
            axes = np.array([float(value) for value in orientation.split("\\")])
        except (AttributeError, ValueError):
            return None
        if origin.shape != (3,) or axes.shape != (6,):
            return None
        normal = np.cross(axes[:3], axes[3:]) if normal is None else normal
        distances.append(round(float(origin @ normal), 3))
        origins.append(origin)
    order = np.argsort(distances)
    along = origins[order[-1]] - origins[order[0]]
    length = float(np.linalg.norm(along))
    tilted = bool(length > 1 and normal is not None and abs(float(along @ normal)) / length < math.cos(math.radians(2)))
    return distances, tilted


def _has_gap(distances: list[float]) -> bool:
    """Whether one step between slices is at least 1.5 times the usual step."""
    steps = [after - before for before, after in itertools.pairwise(distances)]
    if len(steps) < 2:
        return False
    usual = sorted(steps)[len(steps) // 2]
    return usual > 0 and max(steps) > 1.5 * usual


def _count(values: pl.Series) -> tuple[ValueCount, ...]:
    counts = Counter(values.to_list())
    return tuple(
        ValueCount(text=text, count=count)
        for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:20]
    )


def _tag_facts(part: pl.DataFrame) -> tuple[Tag, ...]:
    tags = []
    for keyword in (*KEY_TAGS, *FACT_TAGS):
        values = part[keyword].drop_nulls()
        if values.is_empty():
            continue
        distinct = values.n_unique()
        counts = _count(values) if distinct <= _MAX_VALUES and not keyword.endswith("UID") else ()
        if keyword in _IDENTITIES:
            counts = tuple(ValueCount(text=mask(value.text), count=value.count) for value in counts)
        sensitive: Sensitive = "identity" if keyword in _IDENTITIES else "free_text" if keyword in _PROSE else ""
        tags.append(Tag(keyword=keyword, files=len(values), distinct=distinct, values=counts, sensitive=sensitive))
    return tuple(tags)


def read_all_headers(
    groups: Sequence[Group], root: Path, limits: SurveyLimits, is_late: Callable[[], bool]
) -> dict[str, Headers]:
    """Return id of each DICOM group -> its headers."""
    headers: dict[str, Headers] = defaultdict()
    room = limits.headers
    for group in groups:
        if group.format == "dicom" and room > 0:
            headers[group.id] = read_headers(group, root, room, is_late)
            room -= len(headers[group.id].frame)
    return headers
