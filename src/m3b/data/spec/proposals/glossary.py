"""What notes and documents of a folder say of numbers and short names: `1 = oedema`, `CP (common pneumonia)`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from m3b.data.spec.proposals.language import telling, words
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Legend

_NAME = r"[A-Za-z][A-Za-z _/-]{2,40}?"
_STOPS = r"(?=\s*(?:[,;.()\n|]|$|\band\b|\bor\b))"
_NUMBERED = re.compile(
    rf"(?<![\w.-])(\d{{1,3}})(?!\w)\s*(?:[:=|]|=>|->|is\b|are\b|means\b|for\b|-)?\s*({_NAME}){_STOPS}"
)
_REVERSED = re.compile(rf"(?<![\w])({_NAME})\s*(?:=|=>|->|:)\s*(\d{{1,3}})(?![\w.])")
_IN_PARENTHESES = re.compile(rf"({_NAME})\s*\((?:value\s+|label\s+|class\s+)?(\d{{1,3}})\)")
_BEFORE = re.compile(
    r"^.*\b(?:and|or|the|an?|from|between|tell|distinguish|classify|versus|vs|segment|outline|delineate|find|detect|mark|locate|draw|"
    r"contour)\b\s*",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"label|class|grade|value|stage|score|categor|diagnos", re.IGNORECASE)


def told_names(text: str) -> dict[int, str]:
    """Values named in words: `1 liver, 2 spleen`, `0: background; 1: anterior`, `edema = 1`.

    Only numbers without a gap, from 0 or 1, of which none has two names: anything else may count something else.
    """
    for part in (text, *_passages(text)):
        for pairs in (_NUMBERED.findall(part), [(b, a) for a, b in _REVERSED.findall(part)]):
            found: dict[int, str] = {}
            twice = False
            for value, name in pairs:
                cleaned = name.strip(" -_/")
                if not telling(cleaned) and not words(cleaned):
                    continue
                twice = twice or (int(value) in found and found[int(value)].casefold() != cleaned.casefold())
                found.setdefault(int(value), cleaned)
            low, high = min(found, default=0), max(found, default=-1)
            if not twice and len(found) > 1 and low in (0, 1) and sorted(found) == list(range(low, high + 1)):
                return found
    return {}


def told_in_parentheses(text: str) -> dict[int, str]:
    """Values named by what stands before them: `edema (2) and enhancing tumor (4)`; nothing where one is named twice."""
    pairs = [(int(value), _BEFORE.sub("", name).strip(" -_/")) for name, value in _IN_PARENTHESES.findall(text)]
    found = {value: name for value, name in pairs if telling(name)}
    return found if len(found) == len(pairs) == len({name.casefold() for name in found.values()}) else {}


def exactly(names: dict[int, str], values: Iterable[int]) -> dict[int, str]:
    """Names where they are of these values and of no other, background aside: other numbers count something else."""
    return names if set(names) - {0} == set(values) - {0} else {}


_TO = r"\s*(?:-|\u2013|\bto\b)\s*"
_IS = r"\s*(?:[:=]|=>|->|\bis\b|\bare\b)?\s*"
_RANGE = re.compile(
    rf"(?<![\w.-])(\d{{1,3}}){_TO}(\d{{1,3}}){_IS}([A-Za-z][A-Za-z_ ]*?)(\d{{1,3}}){_TO}(?:\3)?(\d{{1,3}})(?!\w)"
)
_ONE = re.compile(r"(?<![\w.-])(\d{1,3})\s*(?:[:=]|=>|->|\bis\b)\s*([A-Za-z]+\d{1,3})(?!\w)")


def told_ranges(text: str) -> dict[int, str]:
    """Values named by ranges of as many numbered names, and single ones beside: `1-7 are C1-C7, 8-19 T1-T12, and 28 is T13`.

    Nothing where a value or a name is told twice, or no range is.
    """
    told = [
        (value, f"{name}{number}")
        for low, high, name, first, last in _RANGE.findall(text)
        if int(high) - int(low) == int(last) - int(first) > 0
        for value, number in zip(range(int(low), int(high) + 1), range(int(first), int(last) + 1), strict=True)
    ]
    if told:
        told += [(int(value), name) for value, name in _ONE.findall(text)]
    found = dict(told)
    return found if len(found) == len(told) == len(set(found.values())) else {}


def _passages(text: str) -> Iterable[str]:
    """Sentences that speak of labels or classes, alone."""
    return [one for one in re.split(r"(?<=[.!?])\s+|\n+", text) if _LABELLED.search(one)]


def channels_told(survey: Survey) -> dict[int, str]:
    """Channel number -> name, as the `dataset.json` of the Medical Segmentation Decathlon and of nnU-Net gives them."""
    found = {legend.names for legend in survey.legends if legend.numbered and _of_channels(legend)}
    return dict(found.pop()) if len(found) == 1 else {}


def _of_channels(legend: Legend) -> bool:
    return legend.place.rpartition(".")[2] in ("channel_names", "modality")


def legend_of_masks(survey: Survey, values: Iterable[int]) -> tuple[dict[int, str], str]:
    """Names of mask values and the document that gives them; 0 is background. Nothing where several disagree."""
    wanted = set(values)
    made: dict[tuple[tuple[int, str], ...], str] = {}
    most = max(wanted, default=0)
    for legend in survey.legends:
        if _of_channels(legend):
            continue
        names = dict(legend.names)
        if not legend.numbered:
            first = words(names[0])
            start = 0 if first and first[0] in ("background", "bg", "unlabeled", "hintergrund") else 1
            names = {at + start: name for at, name in names.items()}
        names.pop(0, None)
        if not legend.numbered and len(names) > max(most + 3, 1.4 * most):
            continue  # a list of other things
        if wanted and wanted <= set(names):
            made[tuple(sorted(names.items()))] = legend.path
    if len(made) != 1:
        return {}, ""
    ((pairs, path),) = made.items()
    return dict(pairs), path


def legend_of_labels(survey: Survey, values: Iterable[int]) -> dict[int, str]:
    """Names of numbered classes that a document gives: exactly these numbers, or a list of as many names."""
    wanted = sorted(set(values))
    found: set[tuple[tuple[int, str], ...]] = set()
    for legend in survey.legends:
        pairs = legend.names if not _of_channels(legend) else ()
        if not legend.numbered and wanted and wanted[0] in (0, 1):
            pairs = tuple((at + wanted[0], name) for at, name in pairs)
        if [number for number, _ in pairs] == wanted:
            found.add(pairs)
    return dict(found.pop()) if len(found) == 1 else {}


def glosses(values: Iterable[str], notes: str) -> Mapping[str, str]:
    """What notes say of short values: `CP (common pneumonia)`, `common pneumonia (CP)`, `CP: common pneumonia`."""
    found = {}
    for value in values:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,7}", value):
            continue
        name = re.escape(value)
        after = re.search(
            rf"(?<!\w){name}\s*(?:\(|:|=|\bis\b|\bmeans\b|\bfor\b)\s*({_NAME}(?:\d+{_NAME})?){_STOPS}", notes
        )
        before = re.search(rf"((?:[A-Za-z-]+\s+){{1,4}})\(\s*{name}\s*\)", notes)
        if after or before:
            found[value] = (after[1] if after else before[1] if before else "").strip()
    return found
