"""The test cases of a run in words and numbers, from the best to the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from m3b.markup.formatting import count_decimals
from m3b.markup.json_values import as_dict, to_finite_number
from m3b.tasks.report_section import CaseSummary, ReportSection

N_BEST = N_MEDIAN = N_WORST = 3
"""Number of cases that are shown as best, median and worst."""
N_UNCERTAIN = 6
N_EXPLAINED = 3
"""Number of errors, of best and of most uncertain cases whose pictures show what the answer depends on."""
MAX_ERRORS = 12
"""Maximum number of errors of a classifier that are shown."""
MAX_UNRANKED = 6


@dataclass(frozen=True)
class RankedCase:
    """One test case; `key` is that of its record."""

    key: str
    name: str
    patient: str
    summary: CaseSummary
    is_flagged: bool = False
    prediction_set: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CaseRanking:
    """All test cases, best first, and those to show.

    Args:
        value_title: name of the value by which cases are ranked; empty if cases have no value.
        lower_is_better: whether a lower value is better.
        errors: the wrong answers, the surest first.
        uncertain: other cases, the most uncertain first; they replace the median and worst ones where answers have an uncertainty.
    """

    cases: tuple[RankedCase, ...] = ()
    value_title: str = ""
    lower_is_better: bool = False
    best: tuple[RankedCase, ...] = ()
    median: tuple[RankedCase, ...] = ()
    worst: tuple[RankedCase, ...] = ()
    errors: tuple[RankedCase, ...] = ()
    uncertain: tuple[RankedCase, ...] = ()
    unranked: tuple[RankedCase, ...] = field(default=())

    @property
    def values(self) -> list[float]:
        """The values of all cases that have one, best first."""
        return [case.summary.value for case in self.cases if case.summary.value is not None]

    def format_value(self, case: RankedCase) -> str:
        """Return the value of a case: of a share three decimals, else so many that the largest value has four digits."""
        value = case.summary.value
        if value is None:
            return "–"
        return f"{value:.{3 if self.has_shares else self._decimals}f}"

    @cached_property
    def has_shares(self) -> bool:
        """Whether all values lie between 0 and 1, and more is better."""
        return not self.lower_is_better and all(0 <= share <= 1 for share in self.values)

    @cached_property
    def _decimals(self) -> int:
        return count_decimals(self.values)

    @property
    def n_wrong(self) -> int | None:
        """Number of wrong answers; None if answers are not right or wrong as a whole."""
        verdicts = [case.summary.is_wrong for case in self.cases if case.summary.is_wrong is not None]
        return sum(verdicts) if verdicts else None

    @property
    def shown_keys(self) -> list[str]:
        """Keys of the cases whose pictures the page shows."""
        displayed_cases = (
            *self.worst,
            *self.best,
            *self.median,
            *self.errors,
            *self.uncertain,
            *self.unranked,
        )
        return list(dict.fromkeys(case.key for case in displayed_cases))

    @property
    def has_uncertainties(self) -> bool:
        """Whether the answers have an uncertainty."""
        return any(case.summary.uncertainty is not None for case in self.cases)

    @property
    def explained_keys(self) -> list[str]:
        """Keys of the cases whose pictures show what the answer depends on, those of each kind in turn."""
        kinds = (self.errors or self.worst, self.best, self.uncertain or self.median or self.unranked)
        return [kind[n].key for n in range(N_EXPLAINED) for kind in kinds if n < len(kind)]

    @property
    def cases_to_review(self) -> tuple[RankedCase, ...]:
        """All cases in the order of a review: unlike the training images, then the most uncertain; else from the best."""
        if not self.has_uncertainties:
            return self.cases
        return tuple(sorted(self.cases, key=_review_order))


def _review_order(case: RankedCase) -> tuple[bool, float]:
    return not case.is_flagged, -(case.summary.uncertainty or 0.0)


def rank_cases(rows: Sequence[dict[str, Any]], report_section: ReportSection) -> CaseRanking:
    """Rank measured test cases by the value that their task gives them. Rows that were edited are left out."""
    names = shorten_keys([str(row.get("image", "")) for row in rows])
    cases = [
        RankedCase(
            str(row.get("image", "")),
            name,
            str(row.get("patient", "")),
            summary,
            row.get("out_of_distribution") is True,
            _read_prediction_set(row),
        )
        for row, name in zip(rows, names, strict=True)
        if (summary := _summarize(row, report_section)) is not None
    ]
    lower_is_better = report_section.is_case_value_lower_better
    with_value = [case for case in cases if case.summary.value is not None]
    ranked = sorted(with_value, key=lambda case: (case.summary.value or 0.0) * (1 if lower_is_better else -1))
    without_value = [case for case in cases if case.summary.value is None]
    errors = sorted((case for case in ranked if case.summary.is_wrong), key=lambda case: case.summary.value or 0.0)[
        :MAX_ERRORS
    ]
    best, median, worst = _choose_shown(ranked)
    if errors:
        worst = ()  # the errors are the worst cases
        best, median = (tuple(case for case in group if case not in errors) for group in (best, median))
    others = [
        case for case in ranked if case.summary.uncertainty is not None and case not in errors and case not in best
    ]
    uncertain = tuple(sorted(others, key=_review_order)[:N_UNCERTAIN])
    if uncertain:
        median = worst = ()
    return CaseRanking(
        tuple([*ranked, *without_value]),
        next((case.summary.value_title for case in ranked), ""),
        lower_is_better,
        best,
        median,
        worst,
        tuple(errors),
        uncertain,
        tuple(without_value[:: max(1, -(-len(without_value) // MAX_UNRANKED))]) if not ranked else (),
    )


def _summarize(row: dict[str, Any], report_section: ReportSection) -> CaseSummary | None:
    try:
        summary = report_section.summarize_case(row)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None
    if summary is not None and summary.value is not None and to_finite_number(summary.value) is None:
        return None
    return summary


def _read_prediction_set(row: dict[str, Any]) -> tuple[str, ...] | None:
    classes = as_dict(row.get("prediction_set")).get("classes")
    return tuple(map(str, classes)) if isinstance(classes, list) else None


def _choose_shown(ranked: Sequence[RankedCase]) -> tuple[tuple[RankedCase, ...], ...]:
    """Return the best, the median and the worst cases; of few cases each is shown once."""
    if len(ranked) < N_BEST + N_MEDIAN + N_WORST:
        third = -(-len(ranked) // 3)
        return tuple(ranked[:third]), tuple(ranked[third : len(ranked) - third]), tuple(ranked[::-1][:third])
    middle = (len(ranked) - N_MEDIAN) // 2
    return (
        tuple(ranked[:N_BEST]),
        tuple(ranked[middle : middle + N_MEDIAN]),
        tuple(ranked[::-1][:N_WORST]),
    )


def shorten_keys(keys: Sequence[str]) -> list[str]:
    """Return short names of cases: the file names if these are all different, else paths below the data folder."""
    paths = [key.split("|")[0] for key in keys]
    file_names = [path.rpartition("/")[2] for path in paths]
    if len(set(file_names)) == len(file_names):
        names = file_names
    else:
        names = [path.removeprefix("data/").partition("/")[2] or path for path in paths]
    counts = [key.count("|") for key in keys]
    return [f"{name} and {count} more" if count else name for name, count in zip(names, counts, strict=True)]
