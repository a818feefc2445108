"""Checks of numbers and grades: they differ, none stands for "not known", and grades are in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from m3b.data.kinds.regression import value_of
from m3b.dataset.audit.base import AuditCheck, AuditData, Finding

MIN_DISTINCT = 6
"""Fewer different numbers are grades."""
OUTLIER_RANGES = 3.0
"""Interquartile ranges from the nearer quartile from which on a number is an outlier (Tukey's outer fence)."""
MIN_CODE_SHARE = 0.02
"""Share of cases with the same far number from which on it stands for "not known"."""
RANGE_SLACK = 0.05
"""Of the training cases' range, by which a test case may lie beyond its ends."""
MIN_BEYOND_SHARE = 0.1
SEVERITY_STEPS = (
    "none absent normal healthy no negative",
    "trace minimal trivial borderline doubtful questionable subtle",
    "mild low slight minor early small",
    "moderate medium intermediate",
    "marked considerable high",
    "severe major advanced large late",
    "extreme critical complete proliferative end",
)
"""Words of severity from the least to the most; those of one step stand together."""
_ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6}


class NumberCheck(AuditCheck):
    """A check of numbers."""

    targets = ("value",)
    explained_by: tuple[str, ...] = ("one_value",)


class OneValue(NumberCheck):
    """The same number for every case."""

    code = "one_value"
    severity = "reject"
    remedy = "Check which column was read."
    explained_by = ()

    def find(self, data: AuditData) -> Iterator[Finding]:
        values = {value_of(record) for record in data.index.records}
        if len(values) < 2:
            yield self.make_finding(
                f"Every case has the same number ({next(iter(values), 0):g}): there is nothing to predict."
            )


class FewValues(NumberCheck):
    """Few different numbers."""

    code = "few_values"

    def find(self, data: AuditData) -> Iterator[Finding]:
        values = sorted({value_of(record) for record in data.index.records})
        if len(values) < MIN_DISTINCT:
            yield self.make_finding(
                f"There are only {len(values)} different numbers ({', '.join(f'{value:g}' for value in values)}): these are "
                "grades, for which a grading model is made."
            )


def _find_far_values(data: AuditData) -> tuple[dict[str, float], str]:
    """Key -> number far from the others, and where half of all lie."""
    values = {record.key: value_of(record) for record in data.index.records}
    if len(values) < 2:
        return {}, ""
    low, _, high = quantiles(values.values(), n=4)
    reach = OUTLIER_RANGES * (high - low)
    far = {key: value for key, value in values.items() if reach > 0 and not low - reach <= value <= high + reach}
    return far, f"half of all lie between {low:g} and {high:g}"


class ValueCode(NumberCheck):
    """A frequent number that is far from all others."""

    code = "value_code"
    severity = "fix"
    remedy = "Leave these cases out (`unknown` of the manifest's number)."

    def find(self, data: AuditData) -> Iterator[Finding]:
        far, middle = _find_far_values(data)
        for value, count in Counter(far.values()).most_common(1):
            if count >= max(2, MIN_CODE_SHARE * len(data.index.records)):
                yield self.make_finding(
                    f"{count} of {len(data.index.records)} cases have the number {value:g}, and {middle}: it stands for 'not "
                    "known'.",
                    data.shorten_all(key for key, number in far.items() if number == value),
                )


class FarValue(NumberCheck):
    """Numbers far from the others, which may be errors."""

    code = "value_far"
    explained_by = ("one_value", "value_code")

    def find(self, data: AuditData) -> Iterator[Finding]:
        far, middle = _find_far_values(data)
        if far:
            yield self.make_finding(
                f"{len(far)} numbers lie far from the others, e.g. {next(iter(far.values())):g}; {middle}. Are they right?",
                data.shorten_all(far),
            )


class ValueBeyond(NumberCheck):
    """Test numbers beyond those of the training cases."""

    code = "value_beyond"
    remedy = "Split again, at random by patient."

    def find(self, data: AuditData) -> Iterator[Finding]:
        train = [value_of(record) for record in data.index.train]
        if not train:
            return
        low, high = min(train), max(train)
        slack = RANGE_SLACK * (high - low)
        beyond = [record.key for record in data.index.test if not low - slack <= value_of(record) <= high + slack]
        if len(beyond) >= max(2, MIN_BEYOND_SHARE * len(data.index.test)):
            yield self.make_finding(
                f"{len(beyond)} of {len(data.index.test)} test cases have numbers that no training case reaches ({low:g} to "
                f"{high:g}, median {median(train):g}).",
                data.shorten_all(beyond),
            )


# --- grades -------------------------------------------------------------------------------------------------------


class TwoGrades(AuditCheck):
    """Two grades are no scale."""

    code = "two_grades"
    severity = "fix"
    tasks = ("grading",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        if len(data.index.classes) == 2:
            yield self.make_finding(
                f"There are two grades ({', '.join(data.index.classes)}): telling two apart is a diagnosis, not a grading."
            )


class GradesOutOfOrder(AuditCheck):
    """Grades whose numbers in label_dict.json are not in the order that their names tell."""

    code = "grades_out_of_order"
    severity = "fix"
    tasks = ("grading",)
    remedy = "Number them in this order."

    def find(self, data: AuditData) -> Iterator[Finding]:
        order = sort_grades(data.index.classes)
        if order and order != data.index.classes:
            yield self.make_finding(
                f"label_dict.json numbers the grades {', '.join(data.index.classes)}; from low to high they are "
                f"{', '.join(order)}."
            )


def sort_grades(names: Sequence[str]) -> tuple[str, ...]:
    """Return the grades from low to high, by numbers, letters or words of severity; empty if nothing tells their order."""
    for rank in (_rank_by_number, _rank_by_letter, _rank_by_roman_number, _rank_by_severity):
        ranks = {name: rank(name) for name in names}
        if None not in ranks.values() and len(set(ranks.values())) == len(ranks):
            return tuple(sorted(names, key=lambda name: ranks[name] or 0.0))
    return ()


def _rank_by_number(name: str) -> float | None:
    numbers = re.findall(r"\d+(?:\.\d+)?", name)
    return float(numbers[0]) if len(numbers) == 1 else None


def _get_last_word(name: str) -> str:
    words = re.findall(r"[^\W\d_]+", name.lower())
    return words[-1] if words else ""


def _rank_by_letter(name: str) -> float | None:
    word = _get_last_word(name)
    return float(ord(word)) if len(word) == 1 and "a" <= word <= "h" else None


def _rank_by_roman_number(name: str) -> float | None:
    return _ROMAN.get(_get_last_word(name))


def _rank_by_severity(name: str) -> float | None:
    """By the strongest word; absence counts if nothing else is said."""
    from m3b.dataset.words import is_negative
    from m3b.dataset.words.lexicon import split_tokens, stem

    step_of = {stem(word, "en"): step for step, line in enumerate(SEVERITY_STEPS) for word in line.split()}
    steps = [step_of[word] for token in split_tokens(name) if (word := stem(token, "en")) in step_of]
    if steps and max(steps) > 0:
        return float(max(steps))
    return 0.0 if steps or is_negative(name) else None


CHECKS = (OneValue(), FewValues(), ValueCode(), FarValue(), ValueBeyond(), TwoGrades(), GradesOutOfOrder())
