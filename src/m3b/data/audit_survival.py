"""The audit of survival: that events came, on both sides, that times differ, and that censoring is not the whole story."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from m3b.data.audit_classes import few_patients
from m3b.data.audit_common import Finding, some
from m3b.data.audit_labels import MIN_CASES
from m3b.data.index import Index
from m3b.data.kinds.survival import had_event, time_of
from m3b.data.records import Record

FEW_EVENTS = 10
"""Events below which a model learns, or a figure says, next to nothing."""
CODES = frozenset({99.0, 999.0, 9999.0, 99999.0})
"""Numbers by which tables say that nothing is known."""
OFTEN = 0.02


def survival(index: Index) -> list[Finding]:
    """Everything about the times and events of an index."""
    found = [*few_patients(index)]
    if len(index.records) < MIN_CASES:
        text = f"Only {len(index.records)} cases; at least {MIN_CASES} are needed to train and test anything."
        found.append(Finding("too_few_cases", "reject", text))
    for name, part in (("training", index.train), ("testing", index.test)):
        found += _events(name, part)
    if len({time_of(record) for record in index.records}) < 2:
        found.append(Finding("one_time", "reject", "Every case has the same time: check which column was read."))
    return [*found, *_codes(index.records), *_all_ends(index.train)]


def counts(records: Sequence[Record]) -> dict[str, int]:
    """Cases in which the event came, and those that are censored."""
    events = sum(map(had_event, records))
    return {"event": events, "censored": len(records) - events}


def _events(name: str, records: Sequence[Record]) -> list[Finding]:
    events = sum(map(had_event, records))
    if not events:
        text = (
            f"The event comes in none of the {len(records)} cases for {name}: nothing can be learnt or measured. Check which "
            "values of the event's column mean that it came."
        )
        return [Finding("no_events", "reject", text)]
    if events < FEW_EVENTS:
        text = f"The event comes in {events} of {len(records)} cases for {name}; with so few, figures are little better than chance."
        return [Finding("few_events", "warn", text)]
    return []


def _codes(records: Sequence[Record]) -> list[Finding]:
    """A time that many cases have and that tables use for "not known"."""
    for code in CODES:
        cases = [record.key for record in records if time_of(record) == code]
        if len(cases) >= max(2, OFTEN * len(records)):
            text = (
                f"{len(cases)} of {len(records)} cases have the time {code:g}, and the median is "
                f"{median(map(time_of, records)):g}: it stands for 'not known'. Leave these cases out (`codes` of the reading's time)."
            )
            return [Finding("time_code", "fix", text, some(cases))]
    return []


def _all_ends(records: Sequence[Record]) -> list[Finding]:
    """Censored cases that all end before the first event: the column may be of something else."""
    events = [time_of(record) for record in records if had_event(record)]
    censored = [time_of(record) for record in records if not had_event(record)]
    if len(events) < FEW_EVENTS or len(censored) < FEW_EVENTS or max(censored) > min(events):
        return []
    text = (
        f"All {len(censored)} censored training cases end (at {max(censored):g} at the latest) before the first event "
        f"({min(events):g}): are the values of the event's column the right way round?"
    )
    return [Finding("censored_first", "warn", text)]
