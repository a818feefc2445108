"""The part of a report page that only a detection has: regions found and missed, and FROC."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.markup.formatting import format_count, format_figure, shorten
from m3b.markup.html import Html, join_html, subsection, table, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.metrics.boxes import box_iou, match_boxes
from m3b.tasks.report_section import CaseSummary, MaskReportSection, summarize_masks


class DetectionReportSection(MaskReportSection):
    """See `ReportSection`."""

    def summarize_case(self, row: dict[str, Any]) -> CaseSummary | None:
        """Return the F1 of the boxes of a case at IoU 0.5, of those that are sure enough to be drawn; of masks the Dice."""
        if "figures" in row:
            return summarize_masks(row)
        if "predicted" not in row:
            score = to_finite_number(row.get("anomaly_score"))
            truth = "abnormal" if row["abnormal"] else "normal"
            return CaseSummary(truth, f"anomaly score {format_figure(score)}")
        predicted = [(box, str(name)) for box, name, score in row["predicted"] if score >= MIN_COUNTED_SCORE]
        true_boxes = [(box, str(name)) for box, name, _ in row["truth"]]
        if not predicted and not true_boxes:
            return CaseSummary("nothing", "nothing", 1.0, "F1")
        hits = sum(_count_hits(predicted, true_boxes, name) for name in {name for _, name in true_boxes})
        return CaseSummary(
            _format_counts([name for _, name in true_boxes]),
            _format_counts([name for _, name in predicted]),
            2 * hits / (len(predicted) + len(true_boxes)),
            "F1",
        )

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return lesion counts, FROC sensitivities, and labels missed or invented."""
        details = as_dict(scores.get("details"))
        tables = (_render_lesion_table(details), _render_froc_table(as_dict(details.get("froc"))))
        return join_html(*tables, super().render_details(scores))


MIN_COUNTED_SCORE, MIN_COUNTED_IOU = 0.3, 0.5
"""Boxes of a lower score are neither drawn nor counted for a single case."""


def _count_hits(predicted: list[tuple[Any, str]], true_boxes: list[tuple[Any, str]], label: str) -> int:
    """Return the number of true boxes of a label that a predicted one overlaps enough; the lists are by score."""
    predicted_boxes = np.array([box for box, name in predicted if name == label], dtype=float)
    true_corners = np.array([box for box, name in true_boxes if name == label], dtype=float)
    return (
        int(match_boxes(box_iou(predicted_boxes, true_corners), MIN_COUNTED_IOU).sum())
        if len(predicted_boxes) and len(true_corners)
        else 0
    )


def _format_counts(names: list[str]) -> str:
    counts = [f"{names.count(name)} × {shorten(name, 60)}" for name in sorted(set(names))]
    return ", ".join(counts) or "nothing"


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
