"""Studies of several views under names of their own: `s012_frontal.png` and `s012_lateral.png` are one case of a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from m3b.data import kinds
from m3b.data.spec.model import Files
from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.vocabulary import SIDES, VIEWS
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Survey

MOST = 6
"""Views of a study."""
TOGETHER = (
    r"\b(?:both|all|several|multiple|the two|two|three|four)(?: \w+)? (?:views|projections)\b(?: together\b)?|"
    r"\bmulti-?view\b|\bfrontal and lateral\b|"
    r"\b(?:cc and mlo|ap and lateral|pa and lateral)\b|\bviews? of (?:a|the|each|one) (?:study|exam|patient)\b"
)
"""Words of a request that want the views of a study seen together."""
_SLOT = re.compile(r"\(\?P<(\w+)>")
_BARE = re.compile(r"\w+")
_LETTERS_FIRST, _LETTERS_LAST = re.compile(r"^[A-Za-z]+"), re.compile(r"[A-Za-z]+$")


def study_views(survey: Survey, sets: Sequence[ImageSet], asked: frozenset[str]) -> Iterator[ImageSet]:
    """The sets whose images are views of studies, with a study as their case.

    Args:
        asked: words of the request; where it names views, these sets are not what it means.
    """
    for one in sets:
        made = _within(one) if one.single is not None else _beside(survey, one)
        if made is not None and not made[1] & asked:
            yield made[0]


def told_together(ask: Ask) -> Ask:
    """The ask without the words that want the views of a study answered together, which are none of the classes; `studies` has it."""
    if not kinds.of(ask.task).takes_views or not re.search(TOGETHER, ask.request, re.IGNORECASE):
        return ask
    at_end = rf",?\s*\b(?:from|using|with|in|on|of)\s+(?:the\s+)?(?:{TOGETHER})(?=\s*(?:[.,;]|$))"
    return replace(ask, request=re.sub(rf"{at_end}|{TOGETHER}", "", ask.request, flags=re.IGNORECASE), studies=True)


def asked_studies(survey: Survey, sets: Sequence[ImageSet], ask: Ask) -> list[ImageSet]:
    """The sets as a request wants them: where it asks for the views of a study together, the studies in place of what takes each view
    for a case of its own."""
    found = list(study_views(survey, sets, frozenset())) if ask.studies else []
    taken = {group.id for one in found for group in one.groups}
    return [*found, *(one for one in sets if not taken & {group.id for group in one.groups})]


def _within(one: ImageSet) -> tuple[ImageSet, frozenset[str]] | None:
    """Of one group in whose names a part tells the view."""
    group = one.groups[0]
    told = {part.slot.replace(".", "_"): [value.text for value in part.values] for part in group.parts
            if 2 <= len(part.values) <= MOST and part.distinct == len(part.values)}  # fmt: skip
    views = {slot: values for slot, values in told.items() if all(map(_is_view, values))}
    # `W01_L_CC`: a breast is a study of two views, and the other breast is another one
    for slot in sorted(views, key=lambda slot: {word for text in views[slot] for word in words(text)} <= SIDES):
        named = frozenset(word for text in views[slot] for word in words(text))
        return _of_cases(one, one.images.files, slot, group.count // len(views[slot])), named
    return None


def _beside(survey: Survey, one: ImageSet) -> tuple[ImageSet, frozenset[str]] | None:
    """Of groups that pair one to one and whose names differ in the view alone."""
    first, *others = one.groups
    if not others or len(one.groups) > MOST or not all(_paired(survey, first, other) for other in others):
        return None
    patterns = [group.pattern for group in one.groups]
    head = _LETTERS_LAST.sub("", _shared(patterns))  # `left` and `lateral` begin alike
    rests = [text[len(head) :] for text in patterns]
    tail = _LETTERS_FIRST.sub("", _shared([text[::-1] for text in rests])[::-1])
    names = [text[: len(text) - len(tail)] for text in rests]
    if not all(map(_is_view, names)) or not all(map(_BARE.fullmatch, names)):
        return None
    files = Files(pattern=f"re:{head}(?P<view>{'|'.join(names)}){tail}")
    views = frozenset(word for text in names for word in words(text))
    return _of_cases(one, files, "view", first.count), views


def _of_cases(one: ImageSet, files: Files, view: str, count: int) -> ImageSet:
    slots = [name for name in _SLOT.findall(files.pattern) if name != view]
    case = "/".join(f"{{{name}}}" for name in slots)
    images = one.images.model_copy(update={"files": files, "case": case, "several": "views"})
    return replace(one, images=images, count=count)


def _shared(texts: Sequence[str]) -> str:
    """What texts begin with alike."""
    return "".join(some[0] for some in takewhile(lambda some: len(set(some)) == 1, zip(*texts, strict=False)))


def _paired(survey: Survey, first: FileGroup, other: FileGroup) -> bool:
    ends = {first.id, other.id}
    return any(pair.kind == "one_to_one" and {pair.left, pair.right} == ends for pair in survey.pairings)


def _is_view(text: str) -> bool:
    named = set(words(text))
    return bool(named) and named <= VIEWS
