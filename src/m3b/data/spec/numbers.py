"""The number of a case, and what leaves a case without one."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.model import Number
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

_NUMBER = re.compile(r"([+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?)\s*([^\d\s].*)?")
"""A number with at most a word behind it: `131`, `131.5`, `131,5`, `1.2e3`, `131 months`, `064Y`."""


def parsed(text: str) -> float | None:
    """The number that a cell says; None where it says none, or more than one."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None or any(letter.isdigit() for letter in found[2] or ""):
        return None
    value = float(found[1].replace(",", "."))
    return value if math.isfinite(value) else None


def number_of(number: Number, sources: Sources, case: CaseDraft) -> float:
    """The number of a case.

    Raises:
        LeaveOut: none, different ones, a text, or one that stands for "not known".
    """
    texts = sources.texts(number.source, case)
    if not texts:
        raise LeaveOut("no number")
    found = {text: parsed(text) for text in texts}
    strange = [text for text, value in found.items() if value is None]
    if strange:
        raise LeaveOut(f"its {number.name} {strange[0][:40]!r} is no number")
    values = {value for value in found.values() if value is not None}
    if len(values) > 1:
        sources.conflicts[case.key] = texts
        raise LeaveOut("the table has different numbers for it")
    value = values.pop()
    if value in number.codes:
        raise LeaveOut(f"its {number.name} is {value:g}, which stands for an unknown one")
    return value


def check_numbers(number: Number, sources: Sources, cases: Sequence[CaseDraft]) -> None:
    """Some case must have a number.

    Raises:
        DataError: none has; the message says why.
    """
    reasons: Counter[str] = Counter()
    for case in cases:
        try:
            number_of(number, sources, case)
        except LeaveOut as reason:
            reasons[str(reason)] += 1
        else:
            return
    why = ", ".join(f"{text} ({count})" for text, count in reasons.most_common(3))
    raise DataError(f"value: none of the {len(cases)} cases has a number: {why}.")
