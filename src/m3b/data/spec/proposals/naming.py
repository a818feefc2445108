"""Names of what masks mark: from the request, the notes, or the files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.glossary import exactly, legend_of_masks, told_in_parentheses, told_names, told_ranges
from m3b.data.spec.proposals.language import named, shared, telling, words
from m3b.data.spec.proposals.vocabulary import NO_NAME
from m3b.data.survey.facts import FileGroup
from m3b.data.survey.relations import Survey

_FILLER = telling(
    "retinal colonoscopy endoscopy microscopy ct mri mr ultrasound fundus photograph photographs brain chest abdominal cardiac "
    "3d 2d box boxes blood smear smears outline mark draw annotate locate localise localize"
)
_MARKED = re.compile(
    r"\b(?:(?:segment|outline|delineate|find|detect|mark|locate|draw|contour)s?(?:\s+and\s+)?)+\s*\b(.+?)"
    r"(?:\b(?:on|in|from|at|with|of)\b|[.,;]|$)",
    re.IGNORECASE,
)


def class_name(ask: Ask, masks: FileGroup) -> str:
    """The name of the only class: as chosen before, as asked for, as the files are called, else `finding`."""
    if len(ask.classes) == 1:
        return ask.classes[0]
    asked = objects(ask.request)
    mine = [name for name in asked if shared(telling(masks.template), name) == 1.0]
    if mine or asked:
        return (mine or asked)[0]
    own = [
        word
        for word in words(masks.template.rsplit("/", 1)[-1])
        if word.isalpha() and word not in NO_NAME and len(word) > 2
    ]
    return own[0] if own else "finding"


def wanted(names: Sequence[str], ask: Ask) -> list[str]:
    """The classes that were chosen, or that the request names; else all."""
    chosen = [name for name in names if name.casefold() in {one.casefold() for one in ask.classes}]
    return (
        chosen or named(names, ask.request) or [name for name in names if shared(ask.words, name) > 0.3] or list(names)
    )


def called(names: Sequence[str], ask: Ask) -> dict[str, str]:
    """Class of the files -> what the index calls it: the one class that was chosen, where the files have one alone."""
    if len(names) == 1 and len(ask.classes) == 1:
        return {names[0]: ask.classes[0]}
    return {name: name for name in names}


def objects(request: str) -> list[str]:
    """What a request wants marked: the words after its verb up to a preposition."""
    found = _MARKED.search(request)
    if not found:
        return []
    names = [name.strip() for name in re.split(r",|\band\b", found[1]) if name.strip()]
    cleaned = [re.sub(r"^(?:the|all|every|each|a|an)\s+", "", name, flags=re.IGNORECASE) for name in names]
    return [name for name in cleaned if telling(name) - _FILLER]


GREYS = 255
"""The highest value of masks that are no colours."""
NOTHING_SAYS = "nothing says what the values mean"
"""What is told of values that are numbers alone."""


@dataclass(frozen=True)
class Named:
    """Mask classes: name -> value, where the names come from, and what a person should say."""

    classes: dict[str, int]
    told: str = ""
    unclear: str = ""


def names_of_values(survey: Survey, values: Sequence[int], ask: Ask) -> Named:
    """Names of mask values: from a document of the folder, the notes, or the request where it numbers them.

    Names without numbers are never dealt out in the order in which somebody happened to list them: values that nothing
    names are called `label_N`.
    """
    legend, path = legend_of_masks(survey, values)
    told = (
        (told_ranges(ask.notes), "names from the notes"),  # before a document, which may list names without numbers
        (legend, f"names from {path}"),
        (told_names(ask.notes), "names from the notes"),
        (told_names(ask.request), "names from the request"),
        (exactly(told_in_parentheses(ask.request), values), "names from the request"),
        (exactly(told_in_parentheses(ask.notes), values), "names from the notes"),
    )
    for names, source in told:
        names = {value: name for value, name in names.items() if value > 0}
        if names and set(values) <= set(names) and len(set(names.values())) == len(names):
            kept = {name: value for value, name in sorted(names.items())}
            return Named(kept, source, other_organs(ask.request, " ".join(kept)))
    every = range(1, max(values) + 1)
    full = list(every) if len(values) > 3 and len(values) >= 0.5 * max(values) else sorted(values)
    numbers, own = ", ".join(map(str, full[:12])), [f"label_{value}" for value in full]
    unclear = ""
    asked = list(ask.classes) or objects(ask.request)
    if len(asked) > 1 and full[-1] <= GREYS and {name.casefold() for name in asked} != set(own):
        unclear = f"which of the values {numbers} of the masks are {' and '.join(asked)}: nothing says what they mean"
    if len(ask.classes) > 1 and len(ask.classes) != len(full):
        unclear = f"{len(ask.classes)} classes are asked for, the masks hold the values {numbers}"
    return Named(dict(zip(own, full, strict=True)), NOTHING_SAYS, unclear)


def of_values(
    survey: Survey, ask: Ask, masks: FileGroup, levels: Sequence[int], counted: tuple[int, int] | None
) -> tuple[Named, float | None, list[str]]:
    """Class -> value for values of masks, the cut where they are united, and what was found.

    Args:
        counted: least and most objects a picture, where the values number them.
    """
    if len(levels) <= 1:
        name, value = class_name(ask, masks), levels[0] if levels else 1
        return Named({name: value}), None, [f"one value in the masks: {value} is {name}"]
    named = names_of_values(survey, levels, ask)
    if counted and named.told == NOTHING_SAYS and len(objects(ask.request)) == 1 and len(ask.classes) <= 1:
        least, most = counted
        told = f"values count the objects of an image, {least} to {most} of them, each in one piece"
        name = class_name(ask, masks)
        return Named({name: 1}), 0.5, [f"{told}: all are {name}"]
    listed = ", ".join(f"{value} {name}" for name, value in named.classes.items())
    return named, None, [f"values in the masks: {listed} ({named.told})"]


ORGANS = tuple(
    frozenset(line.split())
    for line in (
        "liver hepatic", "kidney renal nephro", "lung pulmonary", "heart cardiac atrium ventricle myocardium", "spleen splenic",
        "pancreas pancreatic", "prostate prostatic", "brain cerebral hippocampus intracranial", "breast mammary", "bladder",
        "stomach gastric", "colon colorectal bowel rectum", "skin", "eye retinal retina fundus", "knee", "hip femur",
        "spine vertebra vertebral", "thyroid", "uterus cervix ovary", "tooth teeth dental", "aorta", "bone",
    )
)  # fmt: skip
"""Organs, each with the words for it."""


def other_organs(request: str, text: str) -> str:
    """What to ask where a request and the names of masks both speak of organs, and of none together; else empty."""

    def of(words_of: frozenset[str]) -> set[int]:
        return {at for at, some in enumerate(ORGANS) if words_of & some}

    asked, here = of(telling(request)), of(telling(text))
    return (
        ""
        if not asked or not here or asked & here
        else f"the masks are of {text[:60]!r}, the request is of another organ"
    )
