"""Readings for anomalies by labels: a column, class folders or an array of which one value says normal."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.data.spec.model import IndexSpec, States
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.imagery import image_sets
from m3b.data.spec.proposals.label_sources import label_sources
from m3b.data.spec.proposals.language import negative, words
from m3b.data.spec.proposals.surroundings import around, leave_out, with_patient
from m3b.data.survey.relations import Survey

GOOD = frozenset({"good", "ok", "okay", "intact", "clean"})
"""Names of the folder of normal images, beside those that say that nothing is there."""


def says_normal(name: str) -> bool:
    """Whether a folder or label says that nothing is there."""
    some = set(words(name))
    return bool(some) and (some <= GOOD or negative(name))


def of_labels(survey: Survey, ask: Ask, layout: bool) -> Iterator[Proposal]:
    """Labels of which one means normal: whatever else they say is abnormal.

    Args:
        layout: whether folders of states say it already.
    """
    for images in image_sets(survey, ask.stacks)[:6]:
        own = around(survey, images)
        for source in label_sources(survey, images, ask.label_column):
            normal = tuple(value for value in source.values if says_normal(value))
            others = tuple(value for value in source.values if value not in normal)
            if source.one_hot or source.separator or not normal or not others or source.apart or source.weak:
                continue
            if layout and source.named.startswith("level"):
                continue  # said by the layout already
            surroundings = with_patient(own, source.patient)
            states = States(source=source.sources[0], normal=normal, abnormal=others)
            spec = IndexSpec(
                task=ask.task, images=images.images, states=states, patient=surroundings.patient,
                attributes=attributes(survey, images), together=(*surroundings.together, *source.together),
                split=source.split or surroundings.split, left_out=leave_out(survey, {one.id for one in images.groups}, {}),
            )  # fmt: skip
            counts = ", ".join(f"{value} {source.values[value]}" for value in (*normal, *others[:8]))
            told = (f"normal: {', '.join(normal)}; abnormal: whatever else {source.title} say: {counts}",
                    f"{source.covered:.0%} of {images.count:,} images have a label", *surroundings.evidence)  # fmt: skip
            doubts = tuple(one for one in (source.doubt, images.doubt, *surroundings.doubts) if one)
            score = (0.35 + source.strength / 2) * (0.4 + 0.6 * min(1.0, source.covered))
            yield Proposal(spec, f"{images.title}, states from {source.title}", score, told, doubts, images.doubt)
