"""Readings of a folder for boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from m3b.data.spec.model import Boxes, Files, IndexSpec
from m3b.data.spec.proposals.annotated import AN_IMAGE, SHARED_NAME, annotated
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.classes import NO, YES
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import image_sets
from m3b.data.spec.proposals.language import named, shared
from m3b.data.spec.proposals.naming import called, objects
from m3b.data.spec.proposals.surroundings import around, leave_out
from m3b.data.survey.annotations.box_columns import FORMS
from m3b.data.survey.annotations.fits import AXES, EITHER, OUTSIDE, REPEATED, SIZE, UNMEASURED, WHERE
from m3b.data.survey.annotations.marks import UNNAMED
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Annotation
from m3b.data.survey.tables import FILE

RANK = {"voc": 0.08, "coco": 0.08, "labelme": 0.06, "yolo": 0.06, "aperio": 0.06, "cvat": 0.08, "via": 0.08, "csv_boxes": 0.04,
        "csv_lists": 0.03, "csv_circles": 0.02, "json_boxes": 0.04}  # fmt: skip
"""The formats of boxes; those that hold more (names, sizes) are preferred where two hold the same marks."""
TABLES = ("csv_boxes", "csv_circles", "csv_lists", "json_boxes")
SPACES = {"fractions": "coordinates are fractions of the sides of images",
          "percent": "coordinates are percent of the sides of images, as Label Studio exports them",
          "lps": "coordinates are mm of the patient, to the left, back and head, as they lie in the images so",
          "ras": "coordinates are mm of the patient, to the right, front and head, as they lie in the images so"}  # fmt: skip
OPEN = {EITHER: "whether the numbers of a box are two corners, or a corner or middle with width and height",
        WHERE: "whether the coordinates of boxes are voxels or mm of the patient: both lie in the images",
        AXES: "whether mm run to the patient's left and back (LPS) or right and front (RAS): both lie in the images",
        UNMEASURED: "what the coordinates of boxes count: none of the images that they name could be looked at",
        SIZE: "how large boxes are: their sizes are in mm, and the images do not say how large a pixel is"}  # fmt: skip
SAID = (*OPEN, SHARED_NAME, REPEATED, OUTSIDE)
FEW = 0.1
FINDING = "finding"
"""The class of marks that nothing names."""
_ABSENT = re.compile(r"(no|none|nil|nothing|background)\b(?!.*\d)", re.I)
UNLISTED_HEALTHY = "yolo"
"""The format in which an image without a file is one without a box."""


def propose_boxes(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with boxes."""
    sets = {one.id: one for one in image_sets(survey) if one.single is not None and one.member is None}
    for one, files in annotated(survey):
        if (
            one.format in RANK
            and one.images in sets
            and one.images_found
            and one.items
            and (one.format != "coco" or "box" in one.shapes)
        ):
            yield _proposal(survey, ask, sets[one.images], one, files)


def _proposal(survey: Survey, ask: Ask, images: ImageSet, one: Annotation, files: Files) -> Proposal:
    around_it = around(survey, images)
    names, nothing = _names(one, ask)
    wanted = _wanted(names, ask)
    own = called(wanted, ask)
    if len(wanted) == 1 and wanted[0].strip().casefold() in YES:  # a column that says of each box that it is one
        own = {wanted[0]: [*ask.classes, *objects(ask.request), FINDING][0]}
    own_file = (one.files > 1 and one.format in AN_IMAGE) or ("image", FILE) in one.columns
    healthy = one.format == UNLISTED_HEALTHY
    part = Boxes.model_validate(
        {"format": one.format, "files": files, "classes": {own[name]: _texts(one, name) for name in wanted}, "space": one.space,
         "sizes_mm": one.sizes_mm,
         "columns": dict(one.columns), "image": "{stem}" if own_file else "{name}", "rule": "stem",
         "empty": "healthy" if healthy else "leave_out"}
    )  # fmt: skip
    spec = IndexSpec(
        task="detection", images=images.images, boxes=part, patient=around_it.patient,
        attributes=attributes(survey, images), together=around_it.together,
        split=around_it.split, left_out=leave_out(survey, {one.images, one.group}, {}),
    )  # fmt: skip
    counts = ", ".join(f"{value.text} {value.count:,}" for value in one.classes[:12] if value.text)
    told = [f"{one.items:,} boxes on {one.images_found:,} images{': ' if counts else ''}{counts}"]
    told += [
        f"{count} rows without a box" if code == "unmarked_row" else f"{count} boxes: {code.replace('_', ' ')}"
        for code, count in one.faults if code not in SAID
    ]  # fmt: skip
    told += [f"{name} is {other}" for name, other in own.items() if name in YES]
    told += [SPACES[one.space]] if one.space in SPACES else []
    if unused := [value.text for value in one.classes if not value.count and value.text]:
        told.append(f"no class, as no box is of it: {', '.join(unused[:12])}")
    told += [f"no class, as nothing is marked: {', '.join(nothing)}"] if nothing else []
    if bare := max(images.count - one.images_found, 0):
        told.append(f"{bare:,} images that no annotation names: {'nothing on them' if healthy else 'left out'}")
    unclear = _unclear(one) or _unnamed(one, ask)
    score = 0.55 + RANK[one.format] + 0.2 * max(shared(ask.words, name) for name in names)
    score *= 0.5 + 0.5 * one.images_found / max(images.count, 1)
    title = f"{images.title}, boxes from {one.path} ({one.format})"
    doubts = (*([unclear] if unclear else []), *_doubts(one, 0 if healthy else bare), *around_it.doubts)
    return Proposal(spec, title, min(1.0, score), (*told, *around_it.evidence), doubts, unclear)


def _unclear(one: Annotation) -> str:
    """What a person should say before these boxes are taken."""
    faults = dict(one.faults)
    for code, what in OPEN.items():
        if faults.get(code):
            return what
    if one.volumes and one.format in TABLES and not {"zmax", "depth", "z", "cz", *FORMS} & dict(one.columns).keys():
        return "how deep the boxes are: they have two axes, and the images are volumes"
    if (count := faults.get(OUTSIDE, 0)) > FEW * one.items:
        return f"what the coordinates count: about {count:,} of {one.items:,} boxes would lie beside their images"
    if one.format in TABLES and (none := sorted(_flags(one) & NO)):
        return f"whether {none[0]!r} is a class of what boxes mark, or says that nothing is there"
    if count := faults.get(SHARED_NAME, 0):
        return f"which images {one.path} speaks of: {count:,} more images than it names are called so"
    return ""


def _unnamed(one: Annotation, ask: Ask) -> str:
    """What to ask where no box has a class, and several things, or those of a file with classes elsewhere, are looked for."""
    asked = objects(ask.request)
    if {value.text for value in one.classes} == {UNNAMED} and (len(asked) > 1 or one.format == "coco"):
        return (
            f"what the boxes of {one.path} mark: none has a class, and {' and '.join(asked) or 'several'} may be meant"
        )
    return ""


def _doubts(one: Annotation, bare: int) -> list[str]:
    """What is taken without asking, and may be meant otherwise."""
    told = []
    if count := dict(one.faults).get(REPEATED, 0):
        told.append(f"{count:,} of {one.items:,} boxes lie on another one of their class on the same image, as where several readers "
                    "mark one finding: each is taken for a finding of its own")  # fmt: skip
    if bare:
        told.append(
            f"whether {bare:,} images that no annotation names are healthy or were not looked at: they are left out"
        )
    return told


def _texts(one: Annotation, name: str) -> tuple[str, ...]:
    """How the files write a class: of YOLO the numbers that it is called by; of unnamed marks what stands for no name."""
    if {"", UNNAMED} >= {value.text for value in one.classes} >= {UNNAMED}:
        return (UNNAMED,)
    return tuple(number for number, called in one.numbers if called == name) or (name,)


def _flags(one: Annotation) -> frozenset[str]:
    """The classes where all of them say yes or no; none where they do not."""
    found = frozenset(value.text.strip().casefold() for value in one.classes if value.text.strip() and value.count)
    return found if found <= (YES | NO) - {"n", "y"} else frozenset()


def _names(one: Annotation, ask: Ask) -> tuple[list[str], list[str]]:
    """The classes of what is marked, and those that say that nothing is (`No finding`, 0 beside 1)."""
    names = [value.text for value in one.classes if value.text not in ("", UNNAMED) and value.count]
    flags = one.format in TABLES and bool(_flags(one) & YES)
    nothing = [name for name in names if (flags and name.casefold() in NO) or _ABSENT.match(name.strip())]
    return [name for name in names if name not in nothing] or [*objects(ask.request), FINDING][:1], nothing


def _wanted(names: list[str], ask: Ask) -> list[str]:
    """The classes that were chosen, or that the request names two and more of; else all."""
    chosen = [name for name in names if name.casefold() in {one.casefold() for one in ask.classes}]
    if chosen:
        return chosen
    hits = named(names, ask.request)
    return hits if len(hits) > 1 else names
