"""Readings of a folder for boxes."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.data.spec.model import Boxes, IndexSpec
from m3b.data.spec.proposals.annotated import annotated
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.imagery import image_sets
from m3b.data.spec.proposals.language import named, shared
from m3b.data.spec.proposals.surroundings import around, leave_out
from m3b.data.survey.relations import Survey

READ = ("coco", "yolo", "voc", "labelme", "csv_boxes", "csv_circles")
RANK = {"voc": 0.08, "coco": 0.08, "labelme": 0.06, "yolo": 0.06, "csv_boxes": 0.04, "csv_circles": 0.02}
"""Formats that hold more (names, sizes) are preferred where two hold the same marks."""


def propose_boxes(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with boxes."""
    sets = {one.id: one for one in image_sets(survey) if one.single is not None and one.member is None}
    for one, files in annotated(survey):
        if one.format not in READ or one.images not in sets or not one.images_found:
            continue
        images = sets[one.images]
        around_it = around(survey, images)
        names = [value.text for value in one.classes if value.text != "(none)"] or ["finding"]
        wanted = _wanted(names, ask)
        image, rule = ("{stem}", "stem") if one.files > 1 and one.format != "coco" else ("{name}", "stem")
        part = Boxes.model_validate(
            {"format": one.format, "files": files, "classes": {name: (name,) for name in wanted},
             "columns": dict(one.columns), "image": image, "rule": rule,
             "empty": "leave_out" if one.format == "coco" else "healthy"}  # COCO lists the healthy
        )  # fmt: skip
        spec = IndexSpec(
            task="detection", images=images.images, boxes=part, patient=around_it.patient, together=around_it.together,
            split=around_it.split, left_out=leave_out(survey, {one.images, one.group}, {}),
        )  # fmt: skip
        counts = ", ".join(f"{value.text} {value.count:,}" for value in one.classes[:12])
        faults = tuple(f"{count} boxes: {code.replace('_', ' ')}" for code, count in one.faults)
        told = (f"{one.items:,} boxes on {one.images_found:,} images: {counts}", *faults, *around_it.evidence)
        score = 0.55 + RANK[one.format] + 0.2 * max(shared(ask.words, name) for name in names)
        score *= 0.5 + 0.5 * one.images_found / max(images.count, 1)
        yield Proposal(spec, f"{images.title}, boxes from {one.path} ({one.format})", min(1.0, score), told,
                       tuple(around_it.doubts))  # fmt: skip


def _wanted(names: list[str], ask: Ask) -> list[str]:
    """The classes that were chosen, or that the request names two and more of; else all."""
    chosen = [name for name in names if name.casefold() in {one.casefold() for one in ask.classes}]
    if chosen:
        return chosen
    hits = named(names, ask.request)
    return hits if len(hits) > 1 else names
