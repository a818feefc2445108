"""Readings for masks of items of arrays in files of their own: a label map an item, or a layer a class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from m3b.data.spec.model import Files, IndexSpec, Masks
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.circumstances import with_asked_part
from m3b.data.spec.proposals.glossary import told_names
from m3b.data.spec.proposals.image_set import ImageSet, literal
from m3b.data.spec.proposals.item_images import beside
from m3b.data.spec.proposals.language import shared, words
from m3b.data.spec.proposals.naming import class_name, objects, of_values, wanted
from m3b.data.spec.proposals.surroundings import around, leave_out
from m3b.data.survey.item_facts import ItemSet, SiblingArray
from m3b.data.survey.relations import Survey

BACKGROUND = frozenset(words("background bg unlabeled unlabelled hintergrund fond none"))
ALIKE, FIELD = 0.9, 0.5
"""Overlap of masks with each other, and the share of them that look like a field of view, from which on they mark nothing."""


@dataclass(frozen=True)
class _Layers:
    """Classes and the places of their layers, how they are written, what is told and what a person should say."""

    places: dict[str, tuple[int, ...]]
    combine: Literal["one", "classes"]
    told: str
    unclear: str = ""


def propose_item_masks(survey: Survey, ask: Ask, images: ImageSet) -> Iterator[Proposal]:
    """A reading for each sibling array of masks."""
    items = images.items
    for one in items.arrays if items is not None else ():
        if items is not None and one.role == "mask":
            yield _reading(survey, ask, images, items, one)


def _reading(survey: Survey, ask: Ask, images: ImageSet, items: ItemSet, one: SiblingArray) -> Proposal:
    around_it = with_asked_part(around(survey, images), images, ask.request)
    key = "".join(f"{{{slot.name}}}/" for slot in items.slots) + "{index}"
    files = Files(pattern="re:" + one.pattern, member=f"{literal(one.key)}[#]")
    group = survey.group(one.groups[0])
    if one.layers > 1:
        found = _layers(ask, one, class_name(ask, group))
        classes = {name: at for at, name in enumerate(found.places, 1)}
        part = Masks(files=files, case=key, image=key, combine=found.combine, classes=classes, layers=found.places)
        told, unclear = [found.told], found.unclear
    else:
        content = one.content
        levels = [int(value.text) for value in one.values if value.text != "0"]
        counted = content.counted if content is not None else None
        named, cut, told = of_values(survey, ask, group, levels, counted)
        if content is not None and content.values == "lossy_mask":
            cut = content.cut
        part = Masks(files=files, case=key, image=key, classes=named.classes, cut=cut)
        unclear = named.unclear
    itemised, unused = beside(survey, images, around_it.values, (one.file,))
    used = {*(group.id for group in images.groups), *itemised}
    spec = IndexSpec(
        task=ask.task, images=images.images, masks=part, patient=around_it.patient, attributes=attributes(survey, images),
        together=around_it.together, split=around_it.split, left_out=(*unused, *leave_out(survey, used, {})),
    )  # fmt: skip
    matched = f"{one.rows:,} of {items.rows:,} images have a mask at their place in {one.file}"
    score, doubts = _score(ask, items, one)
    doubts = (*([unclear] if unclear else []), *doubts, *around_it.doubts)
    return Proposal(
        spec, f"{images.title}, masks from {one.file}", score, (matched, *told, *around_it.evidence), doubts, unclear
    )


def _layers(ask: Ask, one: SiblingArray, finding: str) -> _Layers:
    """What the layers of masks are, by names that notes or request give to their places, or where one thing alone is asked for
    and a layer holds what all others leave."""
    names = _told(ask, one.layers)
    combine: Literal["one", "classes"] = "one" if one.exclusive else "classes"
    if names:
        kept = {
            name: (place,) for place, name in names.items() if not set(words(name)) & BACKGROUND and place != one.rest
        }
        asked: dict[str, tuple[int, ...]] = {name: kept[name] for name in wanted(list(kept), ask)}
        listed = ", ".join(f"{places[0]} {name}" for name, places in asked.items())
        return _Layers(asked, combine, f"a layer a class, counted from 0: {listed}")
    marked = tuple(place for place in range(one.layers) if place != one.rest)
    if one.rest is not None and (len(marked) == 1 or (len(objects(ask.request)) == 1 and len(ask.classes) <= 1)):
        told = f"layer {one.rest} of {one.layers}, counted from 0, holds what the others leave; these are united"
        return _Layers({finding: marked}, "one", told)
    unclear = f"what the {one.layers} layers of {one.file} are: name them by their places in the request or in a README (`0 = ...`)"
    return _Layers(
        {f"layer_{place}": (place,) for place in marked}, combine, "nothing names the layers of the masks", unclear
    )


def _told(ask: Ask, layers: int) -> dict[int, str]:
    """Names of the layers by their places from 0; counted from 1 where as many are. None where notes and request name others."""
    said = (ask.notes, ask.request, *re.findall(r"\(([^()]+)\)", ask.notes))
    for text in said:
        names = told_names(text)
        if sorted(names) == list(range(layers)) or (sorted(names) == list(range(layers - 1)) and layers > 2):
            return names
        if sorted(names) == list(range(1, layers + 1)):
            return {number - 1: name for number, name in names.items()}
    return {}


def _score(ask: Ask, items: ItemSet, one: SiblingArray) -> tuple[float, tuple[str, ...]]:
    score, doubts, content = 0.7 + 0.1 * shared(ask.words, one.word), [], one.content
    if content is not None and content.alike is not None and content.alike > ALIKE:
        score -= 0.35
        doubts.append(f"the masks are nearly the same in every case (mean Dice with each other {content.alike:.2f})")
    if content is not None and content.covers_border is not None and content.covers_border > FIELD:
        score -= 0.35
        doubts.append("the masks look like a field of view")
    return score * (0.6 + 0.4 * one.rows / items.rows), tuple(doubts)
