"""States of an index, normal or abnormal, against those of the archive."""

from __future__ import annotations

from m3b.data.spec.against.reading import HeldReading, HeldTargets, MadeIndex
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.states import is_abnormal

STATES = "states"


def hold_states(reading: HeldReading, made: MadeIndex) -> HeldTargets:
    """Cases of which both say whether they are abnormal, and those of which they say different things."""
    states = reading.spec.states
    compared, differing = 0, []
    for case, record in reading.shared(made) if states is not None else ():
        own = record.extra.get("abnormal")
        try:
            there = is_abnormal(states, reading.sources, case) if states is not None else None
        except LeaveOut:
            continue
        if own is None:
            continue
        compared += 1
        if own != there:
            told = ["normal", "abnormal"]
            differing.append((case.name, f"{told[bool(own)]} in the index, {told[bool(there)]} there"))
    return HeldTargets(STATES, compared, tuple(differing))
