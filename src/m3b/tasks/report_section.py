"""What the report page of a run shows of one task, besides what it shows of all tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from m3b.markup.formatting import shorten
from m3b.markup.html import Html, join_html, tag
from m3b.markup.json_values import as_dict, to_finite_number
from m3b.models.answers import describe_ignored


@dataclass(frozen=True)
class CaseSummary:
    """One measured test case in words and numbers, for a table of cases.

    Args:
        truth: what is true of the case.
        answer: what the model says.
        value: how good the answer is; None if a single case has no such value.
        value_title: its name, such as `Dice`.
        is_wrong: whether the answer is an error; None if it is not right or wrong as a whole.
        uncertainty: entropy of the probabilities as a share of its maximum; None if the answer has none.
    """

    truth: str
    answer: str
    value: float | None = None
    value_title: str = ""
    is_wrong: bool | None = None
    uncertainty: float | None = None


class ReportSection:
    """Charts and tables of the `details` of scores; a task overrides what it has.

    Scores are read from a file that may have been edited: values that are missing or invalid are left out.
    """

    is_case_value_lower_better: bool = False
    """Whether a lower `CaseSummary.value` is better."""
    are_answers_texts: bool = False
    """Whether truth and answer of a case are texts of several sentences."""

    def summarize_case(self, row: dict[str, Any]) -> CaseSummary | None:
        """Return a measured case (a row of predictions.json) in words; None if it cannot be told.

        Raises:
            KeyError, TypeError, ValueError: the row was edited.
        """
        return None

    def draw_charts(self, scores: dict[str, Any]) -> list[Html]:
        """Return figures that stand beside the other charts."""
        return []

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return tables and sentences for the end of the section."""
        return Html("")


def summarize_masks(row: dict[str, Any]) -> CaseSummary:
    """Return the mean Dice of a case over the labels that are in the truth or in the answer, and the size of each."""
    figures = {str(name): values for name, values in row["figures"].items()}
    dice_values = [float(values[0]) for values in figures.values() if values[0] is not None]

    def format_sizes(position: int) -> str:
        sizes = [(name, int(values[position])) for name, values in figures.items() if values[position]]
        unit = "px" if row.get("unit") == "px" else "voxels"
        return ", ".join(f"{name}: {size:,} {unit}" for name, size in sizes) or "nothing"

    mean_dice = sum(dice_values) / len(dice_values) if dice_values else None
    return CaseSummary(format_sizes(3), format_sizes(4), mean_dice, "Dice")


class ClassReportSection(ReportSection):
    """Cases by the probability of what is true."""

    def summarize_case(self, row: dict[str, Any]) -> CaseSummary | None:
        """Return the true and the decided classes, and the probability of the truth: of several labels the mean."""
        labels, decided = [str(name) for name in row["labels"]], [str(name) for name in row["decided"]]
        probabilities = {str(name): float(value) for name, value in row["probabilities"].items()}
        is_single = len(labels) == 1 and abs(sum(probabilities.values()) - 1) < 0.02
        shares = (
            [probabilities[labels[0]]]
            if is_single
            else [value if name in labels else 1 - value for name, value in probabilities.items()]
        )
        parts = [f"{name} ({probabilities[name]:.2f})" for name in decided]
        if not is_single:  # a threshold above 0.5 can turn down a high probability
            parts += [f"not {name} ({probabilities[name]:.2f})" for name in labels if name not in decided]
        answer = ", ".join(parts) or "none"
        return CaseSummary(
            ", ".join(labels) or "none",
            answer,
            sum(shares) / len(shares),
            "Probability of the truth",
            set(labels) != set(decided),
            _measure_uncertainty(
                list(probabilities.values()), is_exclusive=abs(sum(probabilities.values()) - 1) < 0.02
            ),
        )


def _measure_uncertainty(probabilities: list[float], *, is_exclusive: bool) -> float | None:
    """Return the entropy as a share of its maximum; of findings that do not exclude each other, the mean of each one's."""
    if is_exclusive and len(probabilities) > 1:
        return sum(-p * math.log(p) for p in probabilities if p > 0) / math.log(len(probabilities))
    entropies = [sum(-q * math.log2(q) for q in (p, 1 - p) if q > 0) for p in probabilities]
    return sum(entropies) / len(entropies) if entropies else None


class MaskReportSection(ReportSection):
    """Cases by their Dice, and the labels that a model of masks missed or invented."""

    def summarize_case(self, row: dict[str, Any]) -> CaseSummary | None:
        """Return the Dice of a case."""
        return summarize_masks(row)

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return in how many test cases each label was missed entirely, or marked although it is not there."""
        details, sentences = as_dict(scores.get("details")), []
        for key, meaning in (("missed", "missed altogether"), ("invented", "marked where there is none")):
            label_counts = [(name, to_finite_number(value)) for name, value in as_dict(details.get(key)).items()]
            listing = ", ".join(f"{shorten(name, 60)} in {value:.0f}" for name, value in label_counts if value)
            if listing:
                sentences.append(f"Test cases with a label {meaning}: {listing}.")
        sentences += [f"{sentence}." for sentence in describe_ignored(details)]
        return join_html(*(tag("p", sentence) for sentence in sentences))
