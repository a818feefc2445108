"""Readings of a folder for boxes."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.data.spec.model import Boxes, Files, IndexSpec
from m3b.data.spec.proposals.annotated import SHARED_NAME, annotated
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.imagery import ImageSet, image_sets
from m3b.data.spec.proposals.language import named, shared
from m3b.data.spec.proposals.naming import objects
from m3b.data.spec.proposals.surroundings import around, leave_out
from m3b.data.survey.annotations.in_lists import EITHER
from m3b.data.survey.annotations.marks import FRACTIONS
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Annotation
from m3b.data.survey.tables import FILE

READ = ("coco", "yolo", "voc", "labelme", "csv_boxes", "csv_circles", "json_boxes")
RANK = {"voc": 0.08, "coco": 0.08, "labelme": 0.06, "yolo": 0.06, "csv_boxes": 0.04, "csv_circles": 0.02,
        "json_boxes": 0.04}  # fmt: skip
"""Formats that hold more (names, sizes) are preferred where two hold the same marks."""
SAID = (EITHER, SHARED_NAME, FRACTIONS)
"""Faults that are said in other words."""
AN_IMAGE = ("yolo", "voc", "labelme")
"""Formats of a file an image."""
UNLISTED_HEALTHY = "yolo"
"""The format in which an image without a file is one without a box."""


def propose_boxes(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with boxes."""
    sets = {one.id: one for one in image_sets(survey) if one.single is not None and one.member is None}
    for one, files in annotated(survey):
        if one.format in READ and one.images in sets and one.images_found and one.items:
            yield _proposal(survey, ask, sets[one.images], one, files)


def _proposal(survey: Survey, ask: Ask, images: ImageSet, one: Annotation, files: Files) -> Proposal:
    around_it = around(survey, images)
    names = _names(one, ask)
    wanted = _wanted(names, ask)
    own_file = (one.files > 1 and one.format in AN_IMAGE) or ("image", FILE) in one.columns
    healthy = one.format == UNLISTED_HEALTHY
    part = Boxes.model_validate(
        {"format": one.format, "files": files, "classes": {name: _texts(one, name) for name in wanted},
         "columns": dict(one.columns), "relative": bool(dict(one.faults).get(FRACTIONS)),
         "image": "{stem}" if own_file else "{name}", "rule": "stem",
         "empty": "healthy" if healthy else "leave_out"}
    )  # fmt: skip
    spec = IndexSpec(
        task="detection", images=images.images, boxes=part, patient=around_it.patient,
        attributes=attributes(survey, images), together=around_it.together,
        split=around_it.split, left_out=leave_out(survey, {one.images, one.group}, {}),
    )  # fmt: skip
    counts = ", ".join(f"{value.text} {value.count:,}" for value in one.classes[:12])
    told = [f"{one.items:,} boxes on {one.images_found:,} images: {counts}"]
    told += [f"{count} boxes: {code.replace('_', ' ')}" for code, count in one.faults if code not in SAID]
    told += ["the numbers of boxes are shares of width and height: none is above 1"] if part.relative else []
    if bare := max(images.count - one.images_found, 0):
        told.append(f"{bare:,} images that no annotation names: {'nothing on them' if healthy else 'left out'}")
    unclear = _unclear(one, images)
    score = 0.55 + RANK[one.format] + 0.2 * max(shared(ask.words, name) for name in names)
    score *= 0.5 + 0.5 * one.images_found / max(images.count, 1)
    title = f"{images.title}, boxes from {one.path} ({one.format})"
    doubts = (*([unclear] if unclear else []), *around_it.doubts)
    return Proposal(spec, title, min(1.0, score), (*told, *around_it.evidence), doubts, unclear)


def _texts(one: Annotation, name: str) -> tuple[str, ...]:
    """How the files write a class: of YOLO the number that it has."""
    return tuple(number for number, called in one.numbers if called == name) or (name,)


def _names(one: Annotation, ask: Ask) -> list[str]:
    """The classes that are marked; of marks without any what the request looks for."""
    found = [value for value in one.classes if value.text not in ("(none)", "")]
    marked = [value.text for value in found if value.count] or [value.text for value in found]
    return marked or [*objects(ask.request), "finding"][:1]


def _unclear(one: Annotation, images: ImageSet) -> str:
    """What a person should say before these boxes are taken."""
    faults, roles = dict(one.faults), dict(one.columns)
    content = images.groups[0].content
    if one.format in ("csv_boxes", "csv_circles", "json_boxes") and content is not None and content.dims == 3:
        return (f"how the columns {', '.join(list(roles.values())[:6])} of {one.path} mark places in volumes: they are read as boxes "
                "of pictures; write an index with boxes (x0, y0, z0, x1, y1, z1) in voxels of the file")  # fmt: skip
    if "mm" in roles.get("diameter", "").lower():
        return f"whether {roles['diameter']!r} of {one.path} counts pixels"
    if faults.get(EITHER):
        return "whether the four numbers of a box are two corners, or a corner with width and height"
    if count := faults.get(SHARED_NAME):
        return f"which images {one.path} speaks of: {count:,} more images than it names are called so"
    return ""


def _wanted(names: list[str], ask: Ask) -> list[str]:
    """The classes that were chosen, or that the request names two and more of; else all."""
    chosen = [name for name in names if name.casefold() in {one.casefold() for one in ask.classes}]
    if chosen:
        return chosen
    hits = named(names, ask.request)
    return hits if len(hits) > 1 else names
