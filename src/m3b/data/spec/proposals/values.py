"""Readings of a folder for regression: columns of numbers, and how well the request names one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from m3b.data.spec.model import IndexSpec, Number
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.channels import of_cases, with_channels
from m3b.data.spec.proposals.covariates import asked_covariates
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import framed, image_sets, other_views, told_clips, views_of
from m3b.data.spec.proposals.language import initialled, plain, telling, words
from m3b.data.spec.proposals.parted import Tables, joined_tables
from m3b.data.spec.proposals.study_views import asked_studies
from m3b.data.spec.proposals.surroundings import around, leave_out, with_patient
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Column

MIN_DISTINCT = 6
"""Fewer different numbers are grades or classes, unless a person or the request names the column."""
CODES = frozenset({-1.0, -9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0})
"""Numbers by which tables say that nothing is known."""
UNITS = {
    "months": "month months mo monate mois meses",
    "years": "year years yr yrs jahre ans anos",
    "weeks": "week weeks wk wks wochen semaines semanas",
    "days": "day days tage jours dias",
    "mm": "mm millimetre millimetres millimeter millimeters",
    "cm": "cm centimetre centimetres centimeter centimeters",
    "ml": "ml millilitre millilitres milliliter milliliters cc",
    "%": "% percent percentage pct prozent",
    "g": "g gram grams gramme grammes",
    "kg": "kg kilogram kilograms",
    "HU": "hu hounsfield",
    "mmHg": "mmhg",
}
_OF = {plain(word): unit for unit, spelled in UNITS.items() for word in spelled.split()}
_RUN = re.compile(r"[a-z0-9]+")
_RATIO = re.compile(r"([^\W\d_]+)[23]?\s*(?:/|\bper\b|\bpro\b)\s*(?:(?:square|cubic)\s+)?([^\W\d_]+)")
"""A unit divided by another, such as `g/cm2` or `mg per decilitre`."""


def _has_ratio(text: str) -> bool:
    """Whether a plain text names a unit divided by another: neither of the two is the unit."""
    return any(_OF.keys() & set(match.groups()) for match in _RATIO.finditer(text))


def unit_in(text: str) -> str:
    """The unit that the name of a column ends with, or that stands in brackets: `boneage_months`, `HC (mm)`.

    Empty for compound units, such as `g/cm2`.
    """
    if _has_ratio(plain(text)):
        return ""
    pieces = re.findall(r"%|[^\W\d_]+", plain(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)))
    return _OF.get(pieces[-1], "") if len(pieces) > 1 else ""


def unit_asked(request: str) -> str:
    """The unit of `... in months`, `as a percentage`, `(mm)`; empty where a request names none, or a compound one such as `g/cm2`."""
    text = plain(request)
    if _has_ratio(text):
        return ""
    found = re.findall(r"(?:\b(?:in|as)\s+(?:an?\s+)?|\()(%|[^\W\d_]+)", text)
    return next((_OF[word] for word in found if word in _OF), "")


def propose_values(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with a number a case."""
    known = image_sets(survey, ask.stacks)[:8]
    sets = asked_studies(survey, known, ask)
    everything = max((one.count for one in sets), default=1)
    single = {one.id: one for one in sets if one.single is not None and one.member is None}
    for bare in sets:
        together = of_cases(survey, ask, bare, single)
        images = framed(with_channels(bare, together))
        for tables in joined_tables(survey, images):
            for column in tables.first.columns:
                if _may_measure(column, tables, ask):
                    yield _reading(survey, ask, images, tables, column, everything)


_WEIGHTED = re.compile(r"\b[\w*]+[- ]weighted\b")
"""Names of sequences, which speak of nobody's weight."""


def _may_measure(column: Column, tables: Tables, ask: Ask) -> bool:
    """Whether a column may hold what is to be predicted: numbers that differ, and no running ones."""
    if ask.label_column:
        return column.name == ask.label_column
    if column.type not in ("integer", "number") or column.name == tables.join.left.name or column.low is None:
        return False
    few = column.distinct < MIN_DISTINCT and not called(column.name, ask)
    running = column.type == "integer" and column.distinct == column.filled and not called(column.name, ask)
    return not few and not running


def called(column: str, ask: Ask) -> float:
    """How well a request names a column, 0 to 1: by its words, run together (`boneage`), or by initials (`ef`)."""
    own = column.rsplit(".", 1)[-1]
    bare = [word for word in words(own) if word not in _OF]
    if not bare:
        return 0.0
    asked = _WEIGHTED.sub(" ", plain(ask.request))
    run, name = "".join(_RUN.findall(asked)), "".join(bare)
    if len(name) >= 4 and name in run:
        return 1.0
    low = _RUN.findall(asked)
    initials = {"".join(word[0] for word in low[at : at + len(name)]) for at in range(len(low) - len(name) + 1)}
    if 2 <= len(name) <= 5 and (name in initials or name in low or initialled(own, ask.request)):
        return 0.9
    mine = {word for word in bare if len(word) > 1}
    hit = sum(word in words(asked) for word in mine)
    return 0.8 * hit / len(mine) if mine else 0.0


def _codes(column: Column) -> tuple[float, ...]:
    """Numbers of a column that say that nothing is known: at its end, and of the kind that tables use for it."""
    ends = [one for one in (column.low, column.high) if one in CODES]
    others = column.high if column.low in CODES else column.low
    return tuple(one for one in ends if others is not None and (one < 0 <= others or one > 90))


def _reading(survey: Survey, ask: Ask, images: ImageSet, tables: Tables, column: Column, everything: int) -> Proposal:
    own = with_patient(around(survey, images), tables.patient(survey, images))
    split = tables.split(survey, images) or own.split
    unit = unit_in(column.name.rsplit(".", 1)[-1])
    codes = tuple(one for one in _codes(column) if one < 0)
    number = Number(source=tables.column(survey, images, column.name), name=_name(column.name, ask),
                    unit=unit or unit_asked(ask.request), codes=codes)  # fmt: skip
    spec = IndexSpec(
        task="regression", images=images.images, value=number, patient=own.patient, split=split,
        attributes=attributes(survey, images), covariates=asked_covariates(survey, images, ask),
        together=(*own.together, *tables.together(survey, images)),
        left_out=leave_out(survey, {group.id for group in images.groups}, {}),
    )  # fmt: skip
    total = max(sum(group.count for group in images.groups), 1)
    covered = tables.files / total
    evidence = [f"numbers from the column {column.name!r} of {tables.title}: {column.low:g} to {column.high:g}"
                if column.low is not None and column.high is not None else f"numbers from the column {column.name!r}",
                f"{column.filled:,} of {tables.rows:,} rows have a value, {column.distinct:,} of them different",
                f"{covered:.0%} of {total:,} images have a row"]  # fmt: skip
    evidence += [f"{code:g} is taken for 'not known', and left out" for code in codes]
    evidence += [one for one in (views_of(images), told_clips(images), *tables.told, *own.evidence) if one]
    doubts = list(own.doubts)
    if other := unit_asked(ask.request):
        if unit and unit != other:
            doubts.insert(0, f"the request asks for {other}, and the column {column.name!r} is in {unit}")
    elif not unit:
        doubts.insert(0, f"nothing says in which unit {column.name!r} is")
    if suspect := [one for one in _codes(column) if one > 90]:
        doubts.insert(0, f"{suspect[0]:g} may stand for 'not known' in {column.name!r}")
    if doubt := images.doubt or other_views(survey, images, ask.words):
        doubts.insert(0, doubt)
    score = _score(column, tables, images, ask, covered, everything)
    unclear = tables.unclear if score >= 0.5 else f"which column is meant: the request does not name {column.name!r}"
    if unit and other and unit != other:
        unclear = f"the request asks for {other}, and {column.name!r} is in {unit}; ask for {unit}, or add a column in {other}"
    return Proposal(
        spec, f"{images.title}, {number.title} from {tables.title}", score, tuple(evidence), tuple(doubts), unclear
    )


def _name(column: str, ask: Ask) -> str:
    """What people call it: the words of the request that the column runs together, else the column without its unit."""
    own = column.rsplit(".", 1)[-1]
    parts = [part for part in re.split(r"[\W_]+", own) if part]
    bare = [part for part in parts if plain(part) not in _OF] or parts
    name = "".join(plain(part) for part in bare)
    low = _RUN.findall(plain(ask.request))
    for size in (2, 3, 4):
        for at in range(len(low) - size + 1):
            if "".join(low[at : at + size]) == name or "".join(word[0] for word in low[at : at + size]) == name:
                return " ".join(low[at : at + size])
    return " ".join(bare)


def _score(column: Column, tables: Tables, images: ImageSet, ask: Ask, covered: float, everything: int) -> float:
    score = 0.9 if ask.label_column else 0.3 + 0.5 * called(column.name, ask)
    if telling(column.name) & telling("predicted estimate probability weight id index fold"):
        score -= 0.1
    if tables.join.right.kind != "path":
        score -= 0.1
    score *= 0.4 + 0.6 * min(1.0, covered)
    score *= 0.5 + 0.5 * min(1.0, images.count * max(1, len(images.images.channels)) / everything)
    return max(0.0, min(1.0, score))
