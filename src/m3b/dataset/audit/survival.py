"""Checks of survival: events occur on both sides, times differ, and censored cases look censored."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from m3b.data.kinds.survival import had_event, time_of
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding

FEW_EVENTS = 10
"""Events below which a model learns, or a figure says, next to nothing."""
UNKNOWN_CODES = (99.0, 999.0, 9999.0, 99999.0)
"""Numbers by which tables say that nothing is known."""
MIN_CODE_SHARE = 0.02
PARTS = {"train": "training", "test": "testing"}


class SurvivalCheck(AuditCheck):
    """A check of times and events."""

    targets = ("survival",)


class NoEvents(SurvivalCheck):
    """A side of the split in which the event never occurs."""

    code = "no_events"
    severity = "reject"
    remedy = "Check which values of the event's column mean that it came."

    def find(self, data: AuditData) -> Iterator[Finding]:
        for split, records in data.splits.items():
            if not any(map(had_event, records)):
                yield self.make_finding(
                    f"The event comes in none of the {len(records)} cases for {PARTS[split]}: nothing can be learnt or measured."
                )


class FewEvents(SurvivalCheck):
    """A side of the split in which the event hardly occurs."""

    code = "few_events"

    def find(self, data: AuditData) -> Iterator[Finding]:
        for split, records in data.splits.items():
            events = sum(map(had_event, records))
            if 0 < events < FEW_EVENTS:
                yield self.make_finding(
                    f"The event comes in {events} of {len(records)} cases for {PARTS[split]}; with so few, figures are little "
                    "better than chance."
                )


class OneTime(SurvivalCheck):
    """The same time for every case."""

    code = "one_time"
    severity = "reject"
    remedy = "Check which column was read."

    def find(self, data: AuditData) -> Iterator[Finding]:
        if len({time_of(record) for record in data.index.records}) < 2:
            yield self.make_finding("Every case has the same time.")


class TimeCode(SurvivalCheck):
    """A frequent time that tables use for "not known"."""

    code = "time_code"
    severity = "fix"
    remedy = "Leave these cases out (`unknown` of the manifest's time)."

    def find(self, data: AuditData) -> Iterator[Finding]:
        records = data.index.records
        for code in UNKNOWN_CODES:
            keys = [record.key for record in records if time_of(record) == code]
            if len(keys) >= max(2, MIN_CODE_SHARE * len(records)):
                yield self.make_finding(
                    f"{len(keys)} of {len(records)} cases have the time {code:g}, and the median is "
                    f"{median(map(time_of, records)):g}: it stands for 'not known'.",
                    data.shorten_all(keys),
                )
                return


class CensoredFirst(SurvivalCheck):
    """Censored cases that all end before the first event: the column may be of something else."""

    code = "censored_first"

    def find(self, data: AuditData) -> Iterator[Finding]:
        events = [time_of(record) for record in data.index.train if had_event(record)]
        censored = [time_of(record) for record in data.index.train if not had_event(record)]
        if min(len(events), len(censored)) >= FEW_EVENTS and max(censored) <= min(events):
            yield self.make_finding(
                f"All {len(censored)} censored training cases end (at {max(censored):g} at the latest) before the first event "
                f"({min(events):g}): are the values of the event's column the right way round?"
            )


CHECKS = (NoEvents(), FewEvents(), OneTime(), TimeCode(), CensoredFirst())
