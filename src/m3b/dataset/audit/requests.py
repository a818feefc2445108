"""Checks of an index against the words of the request: ranges of grades, listed classes, and units."""

from __future__ import annotations

from collections.abc import Iterator

from m3b.dataset.audit.base import AuditCheck, AuditData, Finding, join_names

MIN_WORD = 6
"""Letters of a word that is a name rather than a code."""


class NumbersOfRequest(AuditCheck):
    """The two ends of a range taken for the classes: `0 to 4` as 0 and 4."""

    code = "numbers_of_request"
    severity = "fix"
    targets = ("labels",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        from m3b.dataset.words import parse_request

        grade_range = parse_request(data.request.request).grade_range if data.request.request else None
        if grade_range is None:
            return
        low, high = grade_range
        if high - low > 1 and set(data.index.classes) == {str(low), str(high)}:
            yield self.make_finding(
                f"The request speaks of {low} to {high}, and the classes are the two numbers {low} and {high} alone. The "
                "grades between them would be left out.",
                remedy=f"Take every value from {low} to {high} that the labels hold.",
            )


class ClassesOffRequest(AuditCheck):
    """None of the classes is among those that the request lists; only if their names are words."""

    code = "classes_off_request"
    targets = ("labels",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        from m3b.dataset.words import MATCH_SCORE, match_term, match_words, parse_request

        request, classes = data.request.request, data.index.classes
        listed_classes = parse_request(request).classes if request else ()
        if len(listed_classes) < 2 or len(classes) < 2 or not all(map(_has_long_word, classes)):
            return
        if match_words(request, classes) or any(
            match_term(phrase, name) >= MATCH_SCORE for phrase in listed_classes for name in classes
        ):
            return
        yield self.make_finding(
            f"The request asks for {join_names(listed_classes)}, and the classes are {join_names(classes)}: none of them is "
            "among those. Are there labels of what was asked for?"
        )


def _has_long_word(name: str) -> bool:
    from m3b.dataset.words import get_lexicon

    return any(len(word) >= MIN_WORD for unit in get_lexicon().find_units(name) for word in unit.words)


class UnitOffRequest(AuditCheck):
    """Numbers in another unit than the requested one."""

    code = "unit_off_request"
    severity = "fix"
    targets = ("value",)

    def find(self, data: AuditData) -> Iterator[Finding]:
        from m3b.dataset.words.units import find_column_unit, find_requested_unit

        requested = find_requested_unit(data.request.request)
        column_unit = find_column_unit(data.index.classes[0]) if data.index.classes else ""
        if requested and column_unit and requested != column_unit:
            yield self.make_finding(
                f"The request asks for {requested}, and the numbers are in {column_unit} ({data.index.classes[0]}). Ask for "
                f"{column_unit}, or add a column in {requested}.",
                remedy=f"Take a column in {requested}, or say in label_dict.json in which unit they are if that is wrong.",
            )


CHECKS = (NumbersOfRequest(), ClassesOffRequest(), UnitOffRequest())
