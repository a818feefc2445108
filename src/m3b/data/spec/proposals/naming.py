"""Names of what masks mark: from the request, the notes, or the files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.language import telling, words
from m3b.data.survey.facts import Group

_FILLER = telling(
    "retinal colonoscopy endoscopy microscopy ct mri mr ultrasound fundus photograph photographs brain chest abdominal cardiac "
    "3d 2d box boxes blood smear smears outline mark draw annotate locate localise localize"
)
_MARKED = re.compile(
    r"\b(?:segment|outline|delineate|find|detect|mark|locate|draw|contour)\w*\s+(.+?)"
    r"(?:\b(?:on|in|from|at|with|of)\b|[.,;]|$)",
    re.IGNORECASE,
)
_NO_NAME = frozenset(
    [
        "mask",
        "masks",
        "label",
        "labels",
        "seg",
        "segmentation",
        "gt",
        "groundtruth",
        "truth",
        "annotation",
        "annotations",
    ]
)


def class_name(ask: Ask, masks: Group) -> str:
    """The name of the only class: as chosen before, as asked for, as the files are called, else `finding`."""
    if len(ask.classes) == 1:
        return ask.classes[0]
    asked = _objects(ask.request)
    if asked:
        return asked[0]
    own = [
        word
        for word in words(masks.template.rsplit("/", 1)[-1])
        if word.isalpha() and word not in _NO_NAME and len(word) > 2
    ]
    return own[0] if own else "finding"


def _objects(request: str) -> list[str]:
    """What a request wants marked: the words after its verb up to a preposition."""
    found = _MARKED.search(request)
    if not found:
        return []
    names = [name.strip() for name in re.split(r",|\band\b", found[1]) if name.strip()]
    cleaned = [re.sub(r"^(?:the|all|every|each|a|an)\s+", "", name, flags=re.IGNORECASE) for name in names]
    return [name for name in cleaned if telling(name) - _FILLER]


def names_of_values(values: Sequence[int], ask: Ask) -> dict[str, int]:
    """Class -> value: the chosen classes, names that the notes give, the request's in its order, else `label_N`."""
    told = told_names(ask.notes) | told_names(ask.request)
    named = {told.get(value, ""): value for value in values}
    if "" not in named and len(named) == len(values):
        return named
    for names in (list(ask.classes), _objects(ask.request)):
        if len(names) == len(values):
            return dict(zip(names, sorted(values), strict=True))
    return {told.get(value) or f"label_{value}": value for value in sorted(values)}


def told_names(text: str) -> dict[int, str]:
    """Values named in words: `1 liver, 2 spleen`, `0: background; 1: anterior`, `1 = edema`."""
    pairs = re.findall(
        r"(?<![\w.])(\d{1,3})\s*(?:[:=]|=>|is|are|-)?\s+?([A-Za-z][A-Za-z _-]{2,40}?)(?=\s*(?:[,;.()\n]|$|\band\b))",
        text,
    )
    found = {int(value): name.strip() for value, name in pairs if int(value) > 0}
    return (
        found
        if sorted(found) == list(range(min(found, default=1), max(found, default=0) + 1)) and len(found) > 1
        else {}
    )
