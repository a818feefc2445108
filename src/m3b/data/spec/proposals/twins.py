"""Groups of images of which each has masks of its own: end of diastole and of systole, left and right, before and after."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from m3b.data.spec.model import Files
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.group_files import pattern_of
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import is_images
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.rival_masks import FORMATS
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Pairing, Survey

RECIPES = ("stem", "stem.bare")
"""How names are brought together that stay apart when groups are joined."""


@dataclass(frozen=True)
class Twin:
    """Another pairing, and the words that tell its images from those of the first."""

    pairing: Pairing
    mine: frozenset[str]
    its: frozenset[str]


def twins(survey: Survey, pairing: Pairing) -> list[Twin]:
    """Pairings of other images with other masks, where the same words tell images and masks of the two apart."""
    found = []
    for one in _others(survey, pairing.left):
        if one.kind != "one_to_one" or one.right == pairing.right:
            continue
        mine, its = apart(survey.group(pairing.left), survey.group(one.left))
        marks, others = (set(words(survey.group(id).template)) for id in (pairing.right, one.right))
        if mine and its and mine <= marks - others and its <= others - marks and one.left_slots == pairing.left_slots:
            found.append(Twin(one, mine, its))
    return _called_alike(survey, pairing, found)


def _called_alike(survey: Survey, pairing: Pairing, found: list[Twin]) -> list[Twin]:
    """Of several masks of the same other images those alone that are called as the first ones are, but for the images' own words."""
    me = survey.group(pairing.right)
    kept = []
    for one in found:
        rest = [word for word in words(me.template) if word not in one.mine]
        its = [word for word in words(survey.group(one.pairing.right).template) if word not in one.its]
        if rest == its or sum(other.pairing.left == one.pairing.left for other in found) == 1:
            kept.append(one)
    return kept


def _others(survey: Survey, left: str) -> list[Pairing]:
    """Pairings of other images with masks; not of masks with masks, nor of the same images in another format."""
    return [
        one for one in survey.pairings
        if one.role == "mask" and one.left != left and is_images(survey, survey.group(one.left))
        and not frozenset().union(*apart(survey.group(left), survey.group(one.left))) <= FORMATS
    ]  # fmt: skip


def apart(one: FileGroup, other: FileGroup) -> tuple[frozenset[str], frozenset[str]]:
    """The words of each template that the other lacks."""
    mine, its = frozenset(words(one.template)), frozenset(words(other.template))
    return mine - its, its - mine


def has_own_masks(survey: Survey, left: str, other: str) -> bool:
    """Whether masks are called after images of another group, so that these are cases of their own and no channels."""
    mine, its = apart(survey.group(left), survey.group(other))
    masks = [set(words(survey.group(one.right).template)) for one in survey.pairings
             if one.role == "mask" and one.left == other]  # fmt: skip
    return bool(its) and any(its <= some and not mine & some for some in masks)


def doubt_of_twins(survey: Survey, ask: Ask, pairing: Pairing) -> str:
    """What to ask where masks are called after other images, or where other images have masks of their own."""
    mine = survey.group(pairing.left)
    marks = set(words(survey.group(pairing.right).template))
    for one in _others(survey, pairing.left):
        if not has_own_masks(survey, pairing.left, one.left):
            continue
        own, its = apart(mine, survey.group(one.left))
        if its <= marks and not own <= marks:
            return f"the masks of {survey.group(pairing.right).template} are called after those of {survey.group(one.left).template}"
        if not own & ask.words:
            return f"the images of {survey.group(one.left).template} have masks of their own: which are meant, or both"
    return ""


def joined(
    survey: Survey, ask: Ask, pairing: Pairing, sets: Sequence[ImageSet]
) -> tuple[ImageSet, Files, list[Pairing]] | None:
    """All groups with masks of their own as one set of images and one of masks; None where the request names some of them."""
    others = twins(survey, pairing)
    if not others or pairing.left_slots[-1:] not in [(one,) for one in RECIPES] or _named(ask, others):
        return None
    every = [pairing, *(one.pairing for one in others)]
    groups = {one.left for one in every}
    whole = next((one for one in sets if {group.id for group in one.groups} == groups), None)
    if whole is None or pairing.left != min(groups) or len({one.right for one in every}) != len(every):
        return None
    patterns = [pattern_of(survey, survey.group(one.right)) for one in every]
    text = "|".join(f"(?:{_bare(one.pattern)})" for one in patterns)
    return whole, Files(pattern=f"re:{text}"), every


def _named(ask: Ask, others: Sequence[Twin]) -> bool:
    return bool(ask.words & frozenset().union(*(one.mine | one.its for one in others)))


def _bare(pattern: str) -> str:
    """Without the names of groups, which may stand once in an expression alone."""
    return re.sub(r"\(\?P<\w+>", "(?:", pattern.removeprefix("re:"))
