"""Readings of a folder for survival: a column of times and one that says whether the event came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from m3b.data.spec.model import IndexSpec, Number, TimeToEvent
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.attributes import attributes
from m3b.data.spec.proposals.channels import of_cases, with_channels
from m3b.data.spec.proposals.covariates import asked_covariates
from m3b.data.spec.proposals.image_set import ImageSet
from m3b.data.spec.proposals.imagery import framed, image_sets, other_views, told_clips, views_of
from m3b.data.spec.proposals.language import words
from m3b.data.spec.proposals.parted import Tables, joined_tables
from m3b.data.spec.proposals.study_views import asked_studies
from m3b.data.spec.proposals.surroundings import around, leave_out, with_patient
from m3b.data.spec.proposals.values import called, unit_asked, unit_in
from m3b.data.survey.relations import Survey
from m3b.data.survey.table_facts import Column

TIMES = frozenset(
    words("time survival os pfs dfs rfs efs dss tte ttp duration followup follow days months years weeks uberleben")
)
EVENTS = frozenset(
    words(
        "event status death dead deceased died vital censor censored censoring relapse recurrence progression progressed os pfs dfs "
        "rfs efs"
    )
)
NO_TIMES = frozenset(words("age birth date scan exam id grade stage score"))
CAME = frozenset(
    words("1 true yes y dead deceased died death event relapse relapsed recurrence recurred progression progressed")
)
NOT_YET = frozenset(words("0 false no n alive living censored none lost censor"))
NAMES = {"os": "overall survival", "pfs": "progression-free survival", "dfs": "disease-free survival",
         "rfs": "recurrence-free survival", "efs": "event-free survival", "dss": "disease-specific survival"}  # fmt: skip
_UNITS = frozenset(words("days day months month years year weeks week mo yr"))


def propose_survival(survey: Survey, ask: Ask) -> Iterator[Proposal]:
    """Every reading with a time and an event a case."""
    known = image_sets(survey, ask.stacks)[:8]
    sets = asked_studies(survey, known, ask)
    everything = max((one.count for one in sets), default=1)
    single = {one.id: one for one in sets if one.single is not None and one.member is None}
    for bare in sets:
        images = framed(with_channels(bare, of_cases(survey, ask, bare, single)))
        for tables in joined_tables(survey, images):
            columns = [column for column in tables.first.columns if column.name != tables.join.left.name]
            for time in filter(_is_time, columns):
                for event in columns:
                    if event is not time and (sides := sides_of(event, tables.values(event.name))):
                        yield _reading(survey, ask, images, tables, (time, event), sides, everything)


def _own(column: Column) -> set[str]:
    return set(words(column.name.rsplit(".", 1)[-1]))


def _is_time(column: Column) -> bool:
    """Whether a column may hold times to an event: numbers that differ, none of them negative but for codes."""
    mine = _own(column)
    return (
        column.type in ("integer", "number")
        and column.distinct > 5
        and bool(mine & TIMES or any(name.startswith(("surviv", "follow")) for name in mine))
        and not mine & NO_TIMES
    )


def sides_of(column: Column, values: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The texts of a column that say that the event came, and that it did not; None where it is no such column."""
    mine = _own(column)
    if not mine & EVENTS or not 2 <= len(values) <= 6:
        return None
    came = tuple(text for text in values if _says(text, CAME) and not _says(text, NOT_YET))
    not_yet = tuple(text for text in values if _says(text, NOT_YET) and not _says(text, CAME))
    if not came or not not_yet:
        return None
    turned = any(word.startswith("censor") for word in mine) and {*came, *not_yet} <= {"0", "1"}
    return (not_yet, came) if turned else (came, not_yet)


def _says(text: str, known: frozenset[str]) -> bool:
    """`1`, `1:DECEASED`, `dead of disease`: by its words, of which numbers beside others do not count."""
    mine = set(words(text.removesuffix(".0")))
    telling = {word for word in mine if not word.isdigit()} or mine
    return bool(telling & known)


def _reading(
    survey: Survey, ask: Ask, images: ImageSet, tables: Tables, pair: tuple[Column, Column],
    sides: tuple[tuple[str, ...], tuple[str, ...]], everything: int,
) -> Proposal:  # fmt: skip
    time, event = pair
    own = with_patient(around(survey, images), tables.patient(survey, images))
    unit = unit_in(time.name.rsplit(".", 1)[-1])
    codes = (time.low,) if time.low is not None and time.low < 0 else ()
    number = Number(source=tables.column(survey, images, time.name), name=_name(time, event, ask),
                    unit=unit or unit_asked(ask.request), codes=codes)  # fmt: skip
    survival = TimeToEvent(
        time=number, event=tables.column(survey, images, event.name), occurred=sides[0], censored=sides[1]
    )
    spec = IndexSpec(
        task="survival", images=images.images, survival=survival, patient=own.patient,
        split=tables.split(survey, images) or own.split, attributes=attributes(survey, images),
        covariates=asked_covariates(survey, images, ask), together=(*own.together, *tables.together(survey, images)),
        left_out=leave_out(survey, {group.id for group in images.groups}, {}),
    )  # fmt: skip
    values = tables.values(event.name)
    total = max(sum(group.count for group in images.groups), 1)
    evidence = [
        f"times from the column {time.name!r} of {tables.title}: {time.low:g} to {time.high:g}"
        if time.low is not None and time.high is not None else f"times from the column {time.name!r}",
        f"events from the column {event.name!r}: came {', '.join(f'{one} {values[one]}' for one in sides[0])}; censored "
        f"{', '.join(f'{one} {values[one]}' for one in sides[1])}",
        f"{tables.files / total:.0%} of {total:,} images have a row",
    ]  # fmt: skip
    evidence += [one for one in (views_of(images), told_clips(images), *own.evidence) if one]
    left = [text for text in values if text not in (*sides[0], *sides[1])]
    doubts = [f"{', '.join(left)} in {event.name!r} says neither; these cases are left out"] if left else []
    doubts += [one for one in (images.doubt or other_views(survey, images, ask.words),) if one]
    doubts += [] if number.unit else [f"nothing says in which unit {time.name!r} is"]
    score = _score(time, event, ask) * (0.4 + 0.6 * min(1.0, tables.files / total))
    score *= 0.5 + 0.5 * min(1.0, images.count / everything)
    title = f"{images.title}, {number.title} from {tables.title}"
    return Proposal(spec, title, max(0.0, min(1.0, score)), tuple(evidence), (*doubts, *own.doubts))


def _stem(column: Column) -> set[str]:
    return _own(column) - _UNITS - frozenset(words("event status time days months years survival censor censored"))


def _score(time: Column, event: Column, ask: Ask) -> float:
    """How well both columns go together, and the request names them."""
    score = 0.6 + 0.25 * max(called(time.name, ask), _named(time, ask), called(event.name, ask))
    if _stem(time) != _stem(event):
        score -= 0.1 * bool(_stem(time) and _stem(event)) + 0.02
    if not _own(time) & frozenset(words("time survival os pfs dfs rfs efs dss")):
        score -= 0.1
    return score


def _named(column: Column, ask: Ask) -> float:
    """`os_months` where the request says overall survival."""
    asked = " ".join(words(ask.request))
    return float(any(" ".join(words(NAMES[one])) in asked for one in _own(column) if one in NAMES))


def _name(time: Column, event: Column, ask: Ask) -> str:
    """What the time is to, as people call it."""
    short = next((one for one in (*_own(time), *_own(event)) if one in NAMES), "")
    if short:
        return NAMES[short]
    asked = " ".join(words(ask.request))
    found = next((name for name in NAMES.values() if " ".join(words(name)) in asked), "")
    return found or "survival"
