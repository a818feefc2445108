"""Several images of one case as its channels: sequences and modalities, on one grid or put on that of the first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from m3b.data.spec.model import Channel
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.glossary import channels_told
from m3b.data.spec.proposals.group_files import pattern_of
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.language import shared, telling, words
from m3b.data.spec.proposals.rival_masks import FORMATS
from m3b.data.spec.proposals.twins import apart, has_own_masks
from m3b.data.spec.proposals.vocabulary import NOT_MR, PLANES, RESONANCE, SEQUENCES
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Pairing, Survey

FITS = 0.95
"""Share of the pairs that were looked at from which on two groups lie on one grid."""
MATCHED = 0.8
"""Share of the first group's cases that another must have to be a channel of it."""
_SLOTS = frozenset(words("number side date uid hash word text"))
"""Kinds of what varies, as templates write them."""
PLACED = ("nifti", "itk", "dicom")
"""Kinds whose headers say where an image lies, so that it can be put on another's grid."""


@dataclass(frozen=True)
class Together:
    """Channels of a set's cases, the first on whose grid all are put, with their groups and what is said of them."""

    channels: tuple[Channel, ...] = ()
    groups: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


def of_masks(survey: Survey, ask: Ask, pairing: Pairing, sets: Mapping[str, ImageSet]) -> Together:
    """The images of a case that pair with the same masks, or are sequences beside one that does; the masks' grid first."""
    others = [one for one in survey.pairings if one.role == "mask" and one.right == pairing.right and one.left in sets]
    near = {one.left for one in others if one.kind == pairing.kind and (one.fits or 0) >= FITS and
            one.left_matched >= MATCHED * pairing.left_matched}  # fmt: skip
    if pairing.left not in near:
        return Together()
    beside = _beside(survey, pairing.left, sets)
    kept = [id for id, pair in beside.items() if (id in near and _one_grid(pair)) or _sequences(survey, pair)]
    kept = [id for id in kept if not has_own_masks(survey, pairing.left, id) and not _formats(survey, pairing.left, id)]
    return _together(survey, ask, pairing.left, {id: beside[id] for id in kept})


def _formats(survey: Survey, one: str, other: str) -> bool:
    """Whether two groups are the same images in two formats."""
    return frozenset().union(*apart(survey.group(one), survey.group(other))) <= FORMATS


def of_cases(survey: Survey, ask: Ask, images: ImageSet, sets: Mapping[str, ImageSet]) -> Together:
    """The sequences of a case, where images have no masks that would say what lies on what."""
    if images.single is None or images.member is not None or _times(survey, ask, images):
        return Together()
    beside = _beside(survey, images.id, sets)
    return _together(survey, ask, images.id, {id: pair for id, pair in beside.items() if _sequences(survey, pair)})


def _times(survey: Survey, ask: Ask, images: ImageSet) -> bool:
    """Whether T1 and T2 are points in time: where the request speaks of CT, say, and not of magnetic resonance."""
    said = set(words(ask.request))
    numbered = set(words(survey.group(images.id).template)) & {"t1", "t2"}
    return bool(numbered and said & NOT_MR and not said & RESONANCE)


def with_channels(images: ImageSet, found: Together) -> ImageSet:
    """A set whose cases have these channels."""
    if not found.channels:
        return images
    return replace(images, images=images.images.model_copy(update={"channels": found.channels}))


def _beside(survey: Survey, first: str, sets: Mapping[str, ImageSet]) -> dict[str, Pairing]:
    """Other images of the same cases, one each."""
    found = {}
    for one in survey.pairings:
        if one.role != "image" or one.kind != "one_to_one" or first not in (one.left, one.right):
            continue
        cases = one.left_files if one.left == first else one.right_files
        other = one.right if one.left == first else one.left
        if other in sets and sets[other].single is not None and one.left_matched >= MATCHED * cases:
            found[other] = one
    return found


def _sequences(survey: Survey, pair: Pairing) -> bool:
    """Whether two groups differ by the name of a sequence, and lie on one grid or say in headers how they lie."""
    one, other = survey.group(pair.left), survey.group(pair.right)
    mine, its = set(words(one.template)), set(words(other.template))
    kinds = SEQUENCES - PLANES
    if not mine - its & kinds or not its - mine & kinds or (mine ^ its) & PLANES:
        return False
    return _one_grid(pair) or (_placed(one) and _placed(other))


def _one_grid(pair: Pairing) -> bool:
    """Whether images have as many voxels; masks may be finer by a whole number, images may not."""
    return pair.compared > 0 and pair.same_grid >= FITS * pair.compared


def _placed(group: FileGroup) -> bool:
    return group.kind in PLACED and group.content is not None and group.content.dims == 3


def _together(survey: Survey, ask: Ask, first: str, beside: Mapping[str, Pairing]) -> Together:
    ids = [first, *beside]
    if len(ids) < 2:
        return Together()
    names = _names([survey.group(one) for one in ids], channels_told(survey))
    asked = [one for one in ids if telling(names[one]) and shared(ask.words, names[one]) > 0.3]
    chosen = asked if len(asked) > 1 else ids
    if len(asked) == 1 or first not in chosen:
        return Together()
    made = tuple(
        Channel(name=names[one], files=pattern_of(survey, survey.group(one)),
                by=beside[one].left_slots if one in beside else ("folders", "stem"))
        for one in chosen
    )  # fmt: skip
    moved = [names[one] for one in chosen if one in beside and not _one_grid(beside[one])]
    listed = ", ".join(names[one] for one in chosen)
    told = f"{len(made)} images a case on one grid, as channels: {listed}"
    if moved:
        told = (f"{len(made)} images a case, as channels: {listed}; on the grid of {names[first]}, to which {', '.join(moved)} "
                f"{'is' if len(moved) == 1 else 'are'} resampled by the headers")  # fmt: skip
    return Together(made, tuple(chosen), (told,))


def _names(groups: Sequence[FileGroup], told: Mapping[int, str]) -> dict[str, str]:
    """What tells the names of channels apart: the first word of file names, else of folders, in which all differ, else
    what their templates do not share; for numbers the names that a document of the folder tells."""
    every = [(*words(group.template.rsplit("/", 1)[-1]), *words(group.template)) for group in groups]
    for at in range(min(map(len, every))):
        column = [one[at] for one in every]
        if len(set(column)) == len(column) and not set(column) & _SLOTS:
            if all(word.isdigit() and int(word) in told for word in column):
                column = [told[int(word)] for word in column]
            return {group.id: word for group, word in zip(groups, column, strict=True)}
    rests = _rests([group.template for group in groups])
    if all(rests) and len(set(rests)) == len(rests):
        return {group.id: rest for group, rest in zip(groups, rests, strict=True)}
    return {group.id: f"channel{at}" for at, group in enumerate(groups, 1)}


def _rests(templates: Sequence[str]) -> list[str]:
    """What each of several texts has between what all begin and end with, in whole words."""
    parts = [re.split(r"(?<=[/_.\s-])|(?=[/_.\s-])", text) for text in templates]
    head = _shared(parts)
    tail = _shared([one[head:][::-1] for one in parts])
    return ["".join(one[head : len(one) - tail]).strip("/_. -").casefold() for one in parts]


def _shared(lists: Sequence[Sequence[str]]) -> int:
    """How many items all lists begin with."""
    columns = zip(*lists, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
