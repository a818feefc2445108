"""The part of a report page that only a detection has: regions found and missed, and FROC."""

from __future__ import annotations

from typing import Any

from m3b.markup.formatting import format_count, format_figure, shorten
from m3b.markup.html import Html, join_html, subsection, table, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.tasks.report_section import MaskReportSection


class DetectionReportSection(MaskReportSection):
    """See `ReportSection`."""

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return lesion counts, FROC sensitivities, and labels missed or invented."""
        details = as_dict(scores.get("details"))
        tables = (_render_lesion_table(details), _render_froc_table(as_dict(details.get("froc"))))
        return join_html(*tables, super().render_details(scores))


def _render_lesion_table(details: dict[str, Any]) -> Html:
    rows = {name: as_dict(value) for name, value in as_dict(details.get("lesions")).items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    if not keys:
        return Html("")
    head = ("Regions", *(shorten(key.replace("_", " "), 40) for key in keys))
    lesion_table = table(
        head, [[shorten(name, 80), *(format_count(row.get(key)) for key in keys)] for name, row in rows.items()]
    )
    rule = details.get("rule")
    rule_note = (
        tag("p", f"A region counts as found by this rule: {rule}.", class_="quiet") if isinstance(rule, str) else None
    )
    return subsection("Regions found and missed", rule_note, lesion_table)


def _render_froc_table(froc: dict[str, Any]) -> Html:
    rates = [rate for rate in map(to_finite_number, as_list(froc.get("rates"))) if rate is not None]
    sensitivities = {name: as_list(values) for name, values in as_dict(froc.get("sensitivity")).items()}
    if not rates or not sensitivities:
        return Html("")
    head = ("False positives per image", *(f"{rate:g}" for rate in rates))
    rows = [
        [shorten(name, 80), *(format_figure(value) for value in values[: len(rates)])]
        for name, values in sensitivities.items()
    ]
    return subsection("Share of objects found (FROC)", table(head, rows))
