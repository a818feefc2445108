"""The time of a case and whether its event came, and what leaves a case without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from m3b.data.kinds.survival import EVENT, TIME
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.model import TimeToEvent
from m3b.data.spec.numbers import number_of
from m3b.data.spec.sources import Sources
from m3b.errors import DataError


def survival_of(survival: TimeToEvent, sources: Sources, case: CaseDraft) -> dict[str, Any]:
    """`time` and `event` of a case.

    Raises:
        LeaveOut: no time, a negative one, or a text that says neither that the event came nor that it did not.
    """
    time = number_of(survival.time, sources, case)
    if time < 0:
        raise LeaveOut(f"its time {time:g} is negative")
    text = (sources.text(survival.event, case) or "").strip().casefold()
    came = text in {one.strip().casefold() for one in survival.occurred}
    if not came and text not in {one.strip().casefold() for one in survival.censored}:
        raise LeaveOut(
            f"{text[:40]!r} does not say whether the event came" if text else "nothing says whether the event came"
        )
    return {TIME: time, EVENT: came}


def check_survival(survival: TimeToEvent, sources: Sources, cases: Sequence[CaseDraft]) -> None:
    """Some case must have an event, and a time.

    Raises:
        DataError: none has; the message says why.
    """
    reasons: Counter[str] = Counter()
    events = 0
    for case in cases:
        try:
            events += survival_of(survival, sources, case)[EVENT]
        except LeaveOut as reason:
            reasons[str(reason)] += 1
    if events:
        return
    why = ", ".join(f"{text} ({count})" for text, count in reasons.most_common(3)) or "all are censored"
    raise DataError(f"survival: of none of the {len(cases)} cases the event is known to have come: {why}.")
