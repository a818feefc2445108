"""Durations in words and letters, such as `8 ans 6 mois`, `8y6m` and `102 mo`, as numbers of one unit."""

from __future__ import annotations

import re
from collections.abc import Iterable

UNITS = {"years": 365.25, "months": 365.25 / 12, "weeks": 7.0, "days": 1.0}
"""Unit -> its days."""
_WORDS = {
    "years": r"y(?:ea)?rs?|years?|y|a(?:n|ns|nnées?)?|j(?:ahre?n?)?|años?|岁|年",
    "months": r"months?|mths?|mos?|mois|monate?n?|mes(?:es)?|mon|个?月",
    "weeks": r"weeks?|wks?|w|semaines?|sem|wochen?|semanas?|周",
    "days": r"days?|d|jours?|tage?n?|días?|dias?|天|日",
}
_NUMBER = r"(\d+(?:[.,]\d+)?)"
_JOINT = r"\s*(?:,|;|\+|and|et|und|y|e|又|零)?\s*"


def _make_pattern(months: str) -> re.Pattern[str]:
    words = _WORDS | {"months": months}
    parts = [rf"(?:{_NUMBER}\s*-?(?:{words[unit]})\.?(?![^\W\d_]{{2}}){_JOINT})?" for unit in UNITS]
    return re.compile(r"\s*" + "".join(parts), re.IGNORECASE)


_DURATION = _make_pattern(_WORDS["months"])
_WITH_LETTERS = _make_pattern(f"{_WORDS['months']}|m")
"""Of a column in which other cells say that `m` is no metre."""


def parse_duration(text: str, *, is_compound: bool = True) -> dict[str, float]:
    """Return unit -> count of a duration; empty if a text is none.

    Args:
        is_compound: whether `m` may stand for months, as it does beside years.
    """
    match = (_WITH_LETTERS if is_compound else _DURATION).fullmatch(text)
    counts = match.groups() if match else ()
    return {unit: float(count.replace(",", ".")) for unit, count in zip(UNITS, counts, strict=False) if count}


def find_unit(texts: Iterable[str]) -> str:
    """Return the largest unit of a column of durations of several units; empty if it is no such column."""
    cells = [text for text in texts if text.strip()]
    durations = [parse_duration(text) for text in cells]
    if not cells or not all(durations):
        return ""
    units = {unit for counts in durations for unit in counts}
    plain_units = {unit for text in cells for unit in parse_duration(text, is_compound=False)}
    return next(unit for unit in UNITS if unit in units) if units and (plain_units or len(units) > 1) else ""


def convert(counts: dict[str, float], unit: str) -> float:
    """Return a duration in one unit; a year has 12 months."""
    if set(counts) <= {"years", "months"} and unit in ("years", "months"):
        months = 12 * counts.get("years", 0.0) + counts.get("months", 0.0)
        return months if unit == "months" else months / 12
    return sum(count * UNITS[name] for name, count in counts.items()) / UNITS[unit]
