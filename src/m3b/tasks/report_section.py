"""What the report page of a run shows of one task, besides what it shows of all tasks."""

from __future__ import annotations

from typing import Any

from m3b.markup.formatting import shorten
from m3b.markup.html import Html, join_html, tag
from m3b.markup.json_values import as_dict, to_finite_number


class ReportSection:
    """Charts and tables of the `details` of scores; a task overrides what it has.

    Scores are read from a file that may have been edited: values that are missing or invalid are left out.
    """

    def draw_charts(self, scores: dict[str, Any]) -> list[Html]:
        """Return figures that stand beside the other charts."""
        return []

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return tables and sentences for the end of the section."""
        return Html("")


class MaskReportSection(ReportSection):
    """The labels that a model of masks missed or invented."""

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return in how many test cases each label was missed entirely, or marked although it is not there."""
        details, sentences = as_dict(scores.get("details")), []
        for key, meaning in (("missed", "missed altogether"), ("invented", "marked where there is none")):
            label_counts = [(name, to_finite_number(value)) for name, value in as_dict(details.get(key)).items()]
            listing = ", ".join(f"{shorten(name, 60)} in {value:.0f}" for name, value in label_counts if value)
            if listing:
                sentences.append(f"Test cases with a label {meaning}: {listing}.")
        return join_html(*(tag("p", sentence) for sentence in sentences))
