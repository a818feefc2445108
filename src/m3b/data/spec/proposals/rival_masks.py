"""Several groups of masks on the same images: one a class, or a second opinion, or something else than what is asked."""

from __future__ import annotations

from dataclasses import dataclass

from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.language import shared, telling, words
from m3b.data.spec.proposals.mask_classes import asks_for, kind_of
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Pairing, Survey

READERS = frozenset(words("first second third reader observer rater expert annotator consensus manual ho st nd rd th"))
"""Words of who drew a mask rather than of what it marks."""


ENOUGH = 0.8
"""Masks that nothing brings to images, for each that is, from which on they may be what is meant."""
FORMATS = frozenset(words("png jpg jpeg tif tiff bmp gif nii gz mha mhd nrrd dcm dicom npy original"))
"""Words of how files are stored."""


@dataclass(frozen=True)
class Rival:
    """Another group of masks of the same images: the words by which both differ."""

    group: FileGroup
    mine: str
    its: str


def rivals(survey: Survey, pairing: Pairing) -> list[Rival]:
    """Binary masks of other names that pair with the same images as well."""
    me = survey.group(pairing.right)
    found = []
    for one in survey.pairings:
        if one.role != "mask" or one.left != pairing.left or one.right == pairing.right or one.kind != pairing.kind:
            continue
        other = survey.group(one.right)
        mine, its = _apart(me.template, other.template)
        if set(words(f"{mine} {its}")) <= FORMATS:
            continue  # the same masks in another format
        body = (other.content.alike or 0) > 0.9 or (other.content.covers_border or 0) > 0.5 if other.content else True
        if one.left_matched >= 0.8 * pairing.left_matched and (mine or its) and not body:
            found.append(Rival(other, mine, its))
    return found


def _apart(mine: str, its: str) -> tuple[str, str]:
    own, other = words(mine), words(its)
    return " ".join(w for w in own if w not in other), " ".join(w for w in other if w not in own)


def doubt_of(survey: Survey, ask: Ask, pairing: Pairing) -> str:
    """What to ask where the request does not tell the masks of one group from those of another."""
    me = survey.group(pairing.right)
    if me.content is not None and me.content.values == "labels":
        return ""
    for rival in rivals(survey, pairing):
        if _readers(rival.mine) and _readers(rival.its):
            continue  # the same thing drawn twice
        asked = shared(ask.words, rival.mine), shared(ask.words, rival.its)
        if rival.group.content is not None and rival.group.content.values == "labels" and not asked[0]:
            return f"masks lie in {me.template} and with more values in {rival.group.template}: which are meant"
        both = [asks_for(ask, kind_of(one, [other])) for one, other in ((me, rival.group), (rival.group, me))]
        if both[1] or (asked[0] <= asked[1] and not both[0]):
            return f"masks lie in {me.template} and in {rival.group.template}: which are meant, or both as classes"
    return ""


def holds_more(survey: Survey, ask: Ask, pairing: Pairing) -> bool:
    """Whether masks are called after what is asked for and something more, where others are called after it alone
    (`Lung_and_Infection_Mask`, `Infection_Mask`)."""
    me = survey.group(pairing.right)
    for one in survey.pairings:
        other = survey.group(one.right)
        if one.role != "mask" or one.left != pairing.left or one.right == pairing.right or other.content is None:
            continue
        mine, its = _apart(me.template, other.template)
        more = telling(mine)
        alone = not telling(its) or shared(ask.words, its) > 0.0
        if other.content.values == "mask" and alone and more and not any(shared(ask.words, word) for word in more):
            return bool(telling(other.template) & ask.words)
    return False


def doubt_of_unpaired(survey: Survey, ask: Ask, pairing: Pairing) -> str:
    """What to ask where about as many masks more lie beside these, and nothing brings them to images."""
    me = survey.group(pairing.right)
    paired = {id for one in survey.pairings for id in (one.left, one.right)}
    for group in survey.groups:
        held = group.content.values if group.content is not None and not group.stray else ""
        own = group.template.rpartition("/")[0].split("/")
        beside = own[:1] == me.template.split("/")[:1] and len(own) > 1
        if (
            held in ("mask", "labels")
            and group.id not in paired
            and beside
            and group.count >= ENOUGH * pairing.right_matched
        ):
            mine, its = _apart(me.template, group.template)
            if shared(ask.words, mine) <= shared(ask.words, its):
                return f"masks lie in {me.template} and in {group.template}: which are meant"
    return ""


def _readers(text: str) -> bool:
    some = set(words(text))
    return bool(some) and all(word in READERS or any(letter.isdigit() for letter in word) for word in some)
