"""Several groups of masks on the same images: one a class, or a second opinion, or something else than what is asked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from m3b.data.spec.model import Files
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.language import shared, words
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Pairing, Survey

READERS = frozenset(words("first second third reader observer rater expert annotator consensus manual ho st nd rd th"))
"""Words of who drew a mask rather than of what it marks."""


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
        if asked[0] <= asked[1]:
            return f"masks lie in {me.template} and in {rival.group.template}: which are meant, or both as classes"
    return ""


def _readers(text: str) -> bool:
    some = set(words(text))
    return bool(some) and all(word in READERS or any(letter.isdigit() for letter in word) for word in some)


def as_classes(survey: Survey, ask: Ask, pairing: Pairing) -> tuple[Files, dict[str, str], list[str]] | None:
    """The masks of several groups that differ in one word each as one group with a class each.

    Returns:
        The files with a slot `kind`, class -> its word, and the groups' ids; None where the request names fewer than two.
    """
    me = survey.group(pairing.right)
    named: dict[str, str] = {}
    bodies = {}
    for rival in rivals(survey, pairing):
        for word, group in ((rival.mine, me), (rival.its, rival.group)):
            if word.isalpha() and shared(ask.words, word) == 1.0:
                spelled = next((w for w in re.findall(r"[^\W\d_]+", group.template) if words(w) == (word,)), "")
                if spelled and group.pattern.count(spelled) == 1:
                    named[word], bodies[word] = spelled, (group.pattern.replace(spelled, "\0"), group.id)
    if len(named) < 2 or len({body for body, _ in bodies.values()}) != 1:
        return None
    kinds = "|".join(re.escape(text) for text in named.values())
    body = next(iter(bodies.values()))[0]
    pattern = body.replace("\0", f"(?P<kind>{kinds})")
    return Files(pattern="re:" + pattern), named, [group for _, group in bodies.values()]
