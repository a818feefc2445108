"""The audit of numbers: that they differ, that none stands for "not known", and that they are in the unit asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median, quantiles

from m3b.data.audit_classes import few_patients
from m3b.data.audit_common import Finding, some
from m3b.data.audit_labels import MIN_CASES
from m3b.data.index import Index
from m3b.data.kinds.regression import value_of
from m3b.data.records import Record

MIN_DISTINCT = 6
"""Fewer different numbers are grades."""
FAR = 3.0
"""Interquartile ranges from the nearer quartile from which on a number is an outlier (Tukey's outer fence)."""
OFTEN = 0.02
"""Share of cases with one and the same far number from which on it stands for "not known"."""
SLACK = 0.05
"""Of the training cases' range, by which a test case may lie beyond its ends."""
BEYOND = 0.1
"""Share of test cases outside the training cases' range that is worth a word."""


def values(index: Index) -> list[Finding]:
    """Everything about the numbers of a regression index."""
    found = [value_of(record) for record in index.records]
    amounts = [*few_patients(index), *_too_few(index)]
    if len(set(found)) < 2:
        text = (
            f"Every case has the same number ({found[0]:g}): there is nothing to predict. Check which column was read."
        )
        return [*amounts, Finding("one_value", "reject", text)]
    return [*amounts, *_few(found), *_far(index.records, found), *_beyond(index)]


def _too_few(index: Index) -> list[Finding]:
    if len(index.records) >= MIN_CASES:
        return []
    text = f"Only {len(index.records)} cases; at least {MIN_CASES} are needed to train and test anything."
    return [Finding("too_few_cases", "reject", text)]


def _few(found: Sequence[float]) -> list[Finding]:
    distinct = sorted(set(found))
    if len(distinct) >= MIN_DISTINCT:
        return []
    shown = ", ".join(f"{one:g}" for one in distinct)
    text = f"There are only {len(distinct)} different numbers ({shown}): these are grades, for which a grading model is made."
    return [Finding("few_values", "warn", text)]


def _far(records: Sequence[Record], found: Sequence[float]) -> list[Finding]:
    """Numbers far from all others: the same one again and again stands for "not known"; others may be errors."""
    low, _, high = quantiles(found, n=4)
    reach = FAR * (high - low)
    far = [(record.key, value) for record, value in zip(records, found, strict=True)
           if reach > 0 and not low - reach <= value <= high + reach]  # fmt: skip
    if not far:
        return []
    value, times = Counter(one for _, one in far).most_common(1)[0]
    middle = f"half of all lie between {low:g} and {high:g}"
    if times >= max(2, OFTEN * len(found)):
        text = (
            f"{times} of {len(found)} cases have the number {value:g}, and {middle}: it stands for 'not known'. Leave these cases "
            "out (`codes` of a reading's `value`)."
        )
        return [Finding("value_code", "fix", text, some(key for key, one in far if one == value))]
    text = f"{len(far)} numbers lie far from the others, e.g. {far[0][1]:g}; {middle}. Are they right?"
    return [Finding("value_far", "warn", text, some(key for key, _ in far))]


def _beyond(index: Index) -> list[Finding]:
    known = [value_of(record) for record in index.train]
    if not known:
        return []
    slack = SLACK * (max(known) - min(known))
    out = [record for record in index.test if not min(known) - slack <= value_of(record) <= max(known) + slack]
    if len(out) < max(2, BEYOND * len(index.test)):
        return []
    text = (
        f"{len(out)} of {len(index.test)} test cases have numbers that no training case reaches ({min(known):g} to "
        f"{max(known):g}, median {median(known):g}). Split again, at random by patient."
    )
    return [Finding("value_beyond", "warn", text, some(record.key for record in out))]


def unit(index: Index, request: str) -> list[Finding]:
    """The request names one unit, and the index another."""
    from m3b.data.spec.proposals.values import unit_asked, unit_in

    asked, mine = unit_asked(request), unit_in(index.classes[0]) if index.classes else ""
    if not asked or not mine or asked == mine:
        return []
    what = f"The request asks for {asked}, and the numbers are in {mine} ({index.classes[0]})"
    text = f"{what}. Take a column in {asked}, or say in label_dict.json in which unit they are if that is wrong."
    return [Finding("unit_off_request", "fix", text, (), f"{what}. Ask for {mine}, or add a column in {asked}.")]


def order(index: Index) -> list[Finding]:
    """Grades whose numbers in label_dict.json are not in the order that their names tell."""
    from m3b.data.spec.proposals.order import in_order

    told = in_order(index.classes, "")
    if not told or tuple(told) == index.classes:
        return []
    text = (
        f"label_dict.json numbers the grades {', '.join(index.classes)}; from low to high they are {', '.join(told)}."
    )
    return [Finding("grades_out_of_order", "fix", text)]


def one_each(index: Index) -> list[Finding]:
    """Two grades are no scale."""
    if len(index.classes) != 2:
        return []
    text = f"There are two grades ({', '.join(index.classes)}): telling two apart is a diagnosis, not a grading."
    return [Finding("two_grades", "fix", text)]
