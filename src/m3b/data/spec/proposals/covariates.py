"""What a request wants a model to be given beside the image: "... using age and sex", out of tables and headers.

Nothing is proposed that a request does not ask for: a column may hold the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from m3b.data import kinds
from m3b.data.kinds.covariates import RESERVED
from m3b.data.spec.model import Covariate, FromTag, IndexSpec, Value
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import ATTRIBUTES, TAGS, attribute
from m3b.data.spec.proposals.image_joins import best_join
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.language import plain, words
from m3b.data.spec.proposals.surroundings import from_column
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Column

LEAST_NAMED = 0.5
"""Share of the images that a table must name."""
FEW, MOST = 5, 40
"""Whole numbers of so few kinds are categories; texts of more kinds than that are none."""
CODES = (-1.0, -9.0, -99.0, -999.0, -9999.0)
"""Negative numbers by which tables say that nothing is known, where all others are not negative."""
_IMAGE = r"(?:images?|scans?|x-?rays?|radiographs?|films?|photographs?|cts?|mris?|ultrasounds?|mammograms?|pictures?)"
_BEGIN = (
    r"\b(?:using|given|(?:together|along|combined) with|in addition to|besides?|adjust(?:ed|ing) for|considering|"
    rf"taking (?:into account)?|from [^.;]{{0,60}}?\b{_IMAGE}(?:\s*,|\s+and|\s+plus|\s*\+))\s+"
)
_CLAUSE = re.compile(rf"{_BEGIN}([^.;\n]+)", re.IGNORECASE)
_AS_INPUTS = re.compile(
    r"([^.;\n]+?)\bas (?:(?:an|additional|further|extra|clinical)\s+){0,3}(?:inputs?|covariates?|features?)\b",
    re.IGNORECASE,
)
_OF_DATA = frozenset(words("column columns label labels annotation annotations mask masks folder split"))
"""Words of clauses that speak of the data and not of what a model is given."""
Kind = Literal["number", "category"]
_UNITS = frozenset(words("months month years year yrs weeks days mm cm ml mg dl l kg g percent pct"))
_SAID = {name: frozenset(words(ATTRIBUTES[name])) for name in ("sex", "age")}
"""What requests call by other words than columns do; a view or a site is no covariate unless its column is named."""


def without_covariates(survey: Survey, ask: Ask) -> Ask:
    """The ask with what it wants given beside the image in `beside`, and without these words in its request: a column that is
    named as an input is not what is to be learnt."""
    if not kinds.of(ask.task).takes_covariates:
        return ask
    spans = [found.span(1) for pattern in (_CLAUSE, _AS_INPUTS) for found in pattern.finditer(ask.request)]
    clauses = [ask.request[start:end] for start, end in spans]
    said = [words(clause) for clause in clauses if not set(words(clause)) & _OF_DATA]
    columns = [column for table in survey.tables for column in table.columns]
    named = {at for each in said for at in _attributes_in(each)}
    taken = [one for one in (_mention(column, each) for each in said for column in columns) if one]
    gone = {word for mention in taken for word in mention} | {word for name in named for word in _SAID[name]}
    if not gone:
        return ask
    request = ask.request
    for start, end in sorted(spans, reverse=True):
        kept = re.sub(r"[^\W_]+", lambda found: "" if set(words(found[0])) & gone else found[0], request[start:end])
        request = request[:start] + kept + request[end:]
    return replace(ask, request=request, beside=tuple(" ".join(each) for each in said))


def asked_covariates(survey: Survey, images: ImageSet, ask: Ask) -> dict[str, Covariate]:
    """Name -> where it stands, of what the request wants given beside the images."""
    found: dict[str, Covariate] = {}
    for name, covariate in (*_columns(survey, images, ask.beside), *_headers(survey, images, ask.beside)):
        if name != RESERVED:
            found.setdefault(name, covariate)
    return found


def sound(ask: Ask, proposal: Proposal) -> Proposal:
    """The proposal without covariates that are what is to be learnt, the patient or the split; it says what is given, and what was
    asked for and is not there."""
    spec, taught = proposal.spec, _taught(proposal.spec)
    kept = {name: one for name, one in spec.covariates.items() if one.source not in taught}
    wanted = [name for clause in ask.beside for name in _attributes_in(clause.split())]
    lost = [f"the request asks for {name} beside the image, and no table or header that speaks of these images has it"
            for name in dict.fromkeys(wanted) if name not in spec.covariates]  # fmt: skip
    if not kept and not spec.covariates and not lost:
        return proposal
    told = [f"given beside the image: {', '.join(kept)}"] if kept else []
    return replace(
        proposal,
        spec=spec.model_copy(update={"covariates": kept}),
        evidence=(*proposal.evidence, *told),
        doubts=(*lost, *proposal.doubts),
        unclear=proposal.unclear or (lost[0] if lost else ""),
    )


def _taught(spec: IndexSpec) -> list[Value | None]:
    taught: list[Value | None] = [spec.patient, spec.split.source]
    taught += spec.labels.sources if spec.labels else []
    taught += [spec.survival.time.source, spec.survival.event] if spec.survival else []
    return [*taught, *([spec.value.source] if spec.value else [])]


def _columns(survey: Survey, images: ImageSet, beside: Sequence[str]) -> Iterator[tuple[str, Covariate]]:
    files = sum(group.count for group in images.groups)
    for table in survey.tables if beside else ():
        named = [column for column in table.columns if any(_mention(column, each.split()) for each in beside)]
        join = best_join(survey, images, table.id) if named else None
        if join is None or join.files < LEAST_NAMED * files:
            continue
        for column in named:
            sort = _kind(column)
            if sort and column.name != join.left.name and not _covered(column, named, beside):
                source = from_column(survey, images, join, column.name)
                yield (
                    _name(column),
                    Covariate(source=source, kind=sort, codes=_codes(column) if sort == "number" else ()),
                )


def _headers(survey: Survey, images: ImageSet, beside: Sequence[str]) -> Iterator[tuple[str, Covariate]]:
    mine = {group.id for group in images.groups}
    wanted = {name for each in beside for name in _attributes_in(each.split())}
    for series in (one for one in survey.series if one.group in mine):
        told = {tag.keyword for tag in series.tags if tag.distinct > 1}
        for name, keyword in ((one, TAGS[one]) for one in _SAID):
            if name in wanted and keyword in told:
                yield name, Covariate(source=FromTag(keyword=keyword), kind="number" if name == "age" else "category")


def _attributes_in(said: Sequence[str]) -> list[str]:
    return [name for name, known in _SAID.items() if known & set(said)]


def _own(column: Column) -> tuple[str, ...]:
    """The words of a column without its unit."""
    mine = words(column.name.rsplit(".", 1)[-1])
    return tuple(word for word in mine if word not in _UNITS) or mine


def _mention(column: Column, said: Sequence[str]) -> tuple[str, ...]:
    """The words by which a clause names a column: its own one after the other, or those of what it says of patients."""
    mine = _own(column)
    size = len(mine)
    if mine and any(tuple(said[at : at + size]) == mine for at in range(len(said) - size + 1)):
        return mine
    name = attribute(column)
    return tuple(_SAID[name] & set(said)) if name in _SAID else ()


def _covered(column: Column, others: Sequence[Column], beside: Sequence[str]) -> bool:
    """Whether the clause names a longer column of which this one is a part: `bone age` is no `age`."""
    mine = set(_own(column))
    return any(mine < set(_own(one)) and " ".join(_own(one)) in each for one in others for each in beside) and not any(
        each.split().count(word) > 1 for each in beside for word in mine
    )


def _kind(column: Column) -> Kind | None:
    """None where a column is neither numbers nor categories."""
    if column.lists or column.distinct < 2:
        return None
    if column.type in ("integer", "number"):
        return "category" if column.type == "integer" and column.distinct <= FEW else "number"
    if attribute(column) == "age":
        return "number"
    return "category" if column.type in ("category", "boolean", "text") and column.distinct <= MOST else None


def _codes(column: Column) -> tuple[float, ...]:
    return (column.low,) if column.low in CODES and column.high is not None and column.high > 0 else ()


def _name(column: Column) -> str:
    """What it is called where a model is asked."""
    return attribute(column) or re.sub(r"\W+", "_", plain(column.name.rsplit(".", 1)[-1])).strip("_")
