"""Readings of a folder for masks that are no images: outlines of LabelMe, COCO, CVAT and others, DICOM RTSTRUCT and SEG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from m3b.data import kinds
from m3b.data.spec.model import Files, IndexSpec, Masks
from m3b.data.spec.proposals.annotated import IN_DICOM, annotated
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.language import shared, words
from m3b.data.spec.proposals.naming import called, objects, other_organs, wanted
from m3b.data.spec.proposals.surroundings import around, leave_out
from m3b.data.survey.annotations.marks import UNNAMED
from m3b.data.survey.annotations.run_lengths import ORDER, SIZES
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Annotation

WORD = {"rtstruct": "contours", "dicom_seg": "segments", "labelme": "outlines", "coco": "outlines",
        "aperio": "outlines", "yolo": "outlines", "cvat": "outlines", "via": "outlines",
        "csv_runs": "run lengths"}  # fmt: skip
AREAS = frozenset(("polygon", "circle", "rle", "contour", "mask"))
"""Shapes that bound what is meant; a box bounds more."""
FINDING = "finding"
"""The class of marks that neither the files nor the request name."""
HALF = 0.5
"""Share of the images that must have marks for a reading to be taken without asking."""


def propose_outlines(survey: Survey, ask: Ask, sets: Mapping[str, ImageSet]) -> Iterator[Proposal]:
    """Every reading whose masks are drawn from outlines or segments."""
    boxes_too = "boxes" in kinds.of(ask.task).targets and ask.boxes is not False
    for one, files in annotated(survey):
        images = sets.get(one.images)
        if (
            one.format not in WORD
            or images is None
            or not one.images_found
            or (one.format == "csv_runs" and one.runs is None)
        ):
            continue
        if one.format in IN_DICOM:
            if one.group and images.series is not None and not images.series.per_file:
                yield _reading(survey, ask, (one, files), images)
        elif not boxes_too and set(one.shapes) & (AREAS | {"box"}):  # the same marks are boxes already
            yield _reading(survey, ask, (one, files), images)


def _reading(survey: Survey, ask: Ask, annotation: tuple[Annotation, Files], images: ImageSet) -> Proposal:
    one, files = annotation
    spelled = _spelled(one, ask)
    chosen = wanted(list(spelled), ask)
    own = called(chosen, ask)
    spelled, classes = {own.get(name, name): texts for name, texts in spelled.items()}, [own[name] for name in chosen]
    several = len(classes) > 1 and one.format != "rtstruct"
    part = Masks.model_validate({
        "files": files, "format": one.format, "combine": "classes" if several else "one",
        "classes": {name: at for at, name in enumerate(classes, 1)},
        "names": {name: spelled[name] for name in classes if spelled[name] != (name,)},
        **_counted(one),
    })  # fmt: skip
    around_it = around(survey, images)
    spec = IndexSpec(
        task=ask.task, images=images.images, masks=part, patient=around_it.patient,
        attributes=attributes(survey, images), together=around_it.together,
        split=around_it.split, left_out=leave_out(survey, {one.images, one.group}, {}),
    )  # fmt: skip
    unclear = _unclear(ask, one, images, classes)
    told = (*_told(one, images, several, spelled, classes), *around_it.evidence)
    place = one.path if one.files == 1 or not one.group or one.format == "coco" else survey.group(one.group).template
    title = f"{images.title}, {WORD[one.format]} from {place} ({one.format})"
    doubts = (*([unclear] if unclear else []), *around_it.doubts)
    return Proposal(spec, title, _score(ask, one, images, classes), told, doubts, unclear)


def _counted(one: Annotation) -> dict[str, Any]:
    """Of run lengths the columns, and how they are counted."""
    if one.format != "csv_runs" or one.runs is None:
        return {}
    order, first, relative = one.runs
    return {
        "columns": dict(one.columns),
        "image": "{name}",
        "rule": "stem",
        "order": order,
        "first": first,
        "relative": relative,
    }


def _spelled(one: Annotation, ask: Ask) -> dict[str, tuple[str, ...]]:
    """Class -> how the files write it: `Polyp` and `polyp ` are one."""
    found: dict[str, list[str]] = {}
    for value in sorted(one.classes, key=lambda value: -value.count):
        if value.text != UNNAMED and value.count:
            found.setdefault(value.text.strip().casefold(), []).append(value.text)
    written = {called: number for number, called in one.numbers}  # of YOLO
    if written:
        return {texts[0].strip(): tuple(written.get(text, text) for text in texts) for texts in found.values()}
    return {texts[0].strip(): tuple(texts) for texts in found.values()} or {
        [*objects(ask.request), FINDING][0]: (UNNAMED,)
    }


def _told(
    one: Annotation, images: ImageSet, several: bool, spelled: Mapping[str, tuple[str, ...]], classes: list[str]
) -> list[str]:
    counts = ", ".join(f"{value.text} {value.count:,}" for value in one.classes[:12])
    on = (
        f"{one.images_found:,} series" if one.format in IN_DICOM else f"{one.images_found:,} of {images.count:,} images"
    )
    told = [f"{one.items:,} {WORD[one.format]} on {on}: {counts}"]
    told += [
        f"{spelled[name][0]} is {name}"
        for name in classes
        if not {name, UNNAMED} & set(spelled[name]) and not one.numbers
    ]
    if several:
        told.append(f"a mask a class, which may overlap: {', '.join(classes[:12])}")
    if left := [name for name in spelled if name not in classes]:
        told.append(f"not asked for, so background: {', '.join(left[:12])}")
    return [*told, *(f"{count} marks: {code.replace('_', ' ')}" for code, count in one.faults)]


def _unclear(ask: Ask, one: Annotation, images: ImageSet, classes: list[str]) -> str:
    """What a person should say before these marks are taken as masks."""
    if not set(one.shapes) & AREAS:
        return "the marks are rectangles alone, which bound more than what they mark: masks or boxes"
    if count := dict(one.faults).get(SIZES, 0):
        return (
            f"what size the masks of {one.path} were drawn at: {count:,} of those looked at reach beyond their images"
        )
    if dict(one.faults).get(ORDER):
        return f"whether the runs of {one.path} go down the columns of an image or along its rows: both give outlines that fit"
    if one.images_found < HALF * images.count:
        return f"only {one.images_found:,} of {images.count:,} images have marks"
    return other_organs(ask.request, " ".join(classes))


def _score(ask: Ask, one: Annotation, images: ImageSet, classes: list[str]) -> float:
    score = 0.6 + 0.15 * max(shared(ask.words, name) for name in classes)
    if one.format in IN_DICOM:
        modality = images.series.modality if images.series else ""
        return score + 0.15 * (modality.casefold() in {word.casefold() for word in words(ask.request)})
    return score * (0.5 + 0.5 * min(1.0, one.images_found / max(images.count, 1)))
