"""The parts of the report about figures: headline, metrics, ROC, calibration, confusion matrix."""

from __future__ import annotations

from typing import Any

from m3b.measure import UNKNOWN_PATIENTS_NOTE
from m3b.metrics.table import is_unbounded

from .agreement import describe_agreement, draw_agreement_charts
from .charts import MAX_SERIES, draw_calibration_chart, draw_gauge, draw_legend, draw_roc_chart
from .gather import RunFiles, as_dict, as_list, to_finite_number
from .labels import render_details, render_external_table, render_label_table, render_subgroup_table
from .markup import Child, Html, join_html, section, table, tag
from .words import format_count, format_figure, format_interval, format_metric_name

MAX_CLASSES = 24


def read_primary_measure(files: RunFiles) -> dict[str, Any]:
    """The primary measure: of the trusted scores, else of the Result; with `acceptable` where the Result has it."""
    result_measure = as_dict(files.result.get("primary"))
    return {**result_measure, **as_dict(files.scores.get("primary"))}


def _parse_acceptable_range(measure: dict[str, Any]) -> tuple[float, float | None] | None:
    bounds = as_list(measure.get("acceptable"))
    low = to_finite_number(bounds[0]) if bounds else None
    return None if low is None else (low, to_finite_number(bounds[1]) if len(bounds) > 1 else None)


def render_headline(files: RunFiles) -> Html:
    """The primary figure, large, on its scale."""
    measure = read_primary_measure(files)
    value, low, high = (to_finite_number(measure.get(key)) for key in ("value", "low", "high"))
    if value is None:
        return Html("")
    acceptable = _parse_acceptable_range(measure)
    interval = (low, high) if low is not None and high is not None else None
    parts = [f"95 % interval {format_interval(low, high)}" if interval else "no interval can be given"]
    if to_finite_number(measure.get("n")) is not None:
        parts.append(f"{format_count(measure.get('n'))} test cases")
    if acceptable:
        lowest, highest = acceptable
        parts.append(f"acceptable from {lowest:g}" + (f" to {highest:g}" if highest is not None else ""))
    unit = as_dict(files.scores.get("details")).get("distance_unit")
    gauge_range = (acceptable[0], acceptable[1] if acceptable[1] is not None else 1.0) if acceptable else None
    return tag(
        "div",
        tag(
            "p",
            tag("span", format_metric_name(measure.get("name", ""), unit), class_="what"),
            tag("strong", format_figure(value)),
            class_="figure",
        ),
        tag("p", " · ".join(parts), class_="quiet"),
        _render_gauge(measure, value, interval, gauge_range),
        class_="headline",
    )


def _render_gauge(
    measure: dict[str, Any],
    value: float,
    interval: tuple[float, float] | None,
    acceptable: tuple[float, float] | None,
) -> Html | None:
    """The figure on a scale from 0 to 1, where it is a share."""
    if is_unbounded(str(measure.get("name"))) or not 0 <= value <= 1:
        return None
    return draw_gauge(value, interval, to_finite_number(measure.get("baseline")), acceptable)


def render_figures_section(files: RunFiles) -> Html:
    """Every metric, and the charts."""
    scores = files.scores
    unit = as_dict(scores.get("details")).get("distance_unit")
    rows = []
    for name, raw in (as_dict(scores.get("metrics")) or as_dict(files.result.get("metrics"))).items():
        item = raw if isinstance(raw, dict) else {"value": raw}
        if to_finite_number(item.get("value")) is None and (
            not isinstance(raw, dict) or to_finite_number(item.get("baseline")) is None
        ):
            continue  # a metric that these cases do not have
        interval = format_interval(item.get("low"), item.get("high"))
        rows.append(
            (
                format_metric_name(name, unit),
                format_figure(item.get("value")),
                interval,
                format_figure(item.get("baseline")),
            )
        )
    test_set_note = None
    if to_finite_number(scores.get("n_cases")) is not None:
        test_set_note = tag("p", _describe_test_set(scores), class_="quiet")
    metric_table = table(("Metric", "Value", "95 % interval", "Image-blind baseline"), rows) if rows else None
    chart_list = [
        _render_roc(scores),
        _render_calibration(scores),
        _render_confusion_matrix(scores),
        *draw_agreement_charts(scores),
    ]
    charts = tag("div", *chart_list, class_="charts") if any(chart_list) else None
    return section(
        "measured",
        "Measured on the test cases",
        test_set_note,
        metric_table,
        charts,
        *(tag("p", line) for line in describe_agreement(scores)),
        render_label_table(scores) or _render_class_table(scores),
        render_external_table(files.result),
        render_subgroup_table(scores),
        render_details(scores),
    )


def _describe_test_set(scores: dict[str, Any]) -> str:
    """How many cases of whom the figures rest on."""
    sentence = f"Computed by m3b from predictions on {format_count(scores.get('n_cases'))} locked test cases"
    if scores.get("patients_known", True):
        return f"{sentence} of {format_count(scores.get('n_patients'))} patients. Intervals: bootstrap over patients."
    return f"{sentence}; {UNKNOWN_PATIENTS_NOTE}. Intervals: bootstrap over cases."


def _parse_points(raw: Any) -> list[tuple[float, float]]:
    points = []
    for pair in as_list(raw):
        values = [to_finite_number(value) for value in as_list(pair)[:2]]
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            points.append((min(max(values[0], 0.0), 1.0), min(max(values[1], 0.0), 1.0)))
    return points


def _render_roc(scores: dict[str, Any]) -> Html:
    items = [as_dict(item) for item in as_list(scores.get("per_class"))]
    if len(items) == 2 and not scores.get("multi_label"):
        items = items[1:]  # the other class's curve is the mirror image
    curves = [(_format_class_auroc(item), _parse_points(item.get("roc"))) for item in items]
    curves = [curve for curve in curves if len(curve[1]) > 1][:MAX_SERIES]
    if not curves:
        return Html("")
    truncation_note = tag("p", f"The first {MAX_SERIES} classes.", class_="quiet") if len(items) > MAX_SERIES else None
    names = draw_legend([name for name, _ in curves])
    return tag("figure", tag("figcaption", "ROC curve"), draw_roc_chart(curves), names, truncation_note)


def _format_class_auroc(item: dict[str, Any]) -> str:
    """The class and its AUROC, by which a curve of many is found."""
    auroc = to_finite_number(as_dict(item.get("auroc")).get("value"))
    return f"{item.get('name', '')}{'' if auroc is None else f' {auroc:.3f}'}"


def _render_calibration(scores: dict[str, Any]) -> Html:
    bins = []
    for item in map(as_dict, as_list(scores.get("calibration"))):
        values = [to_finite_number(item.get(key)) for key in ("confidence", "correct", "n")]
        valid_values = [value for value in values if value is not None and value >= 0]
        if len(valid_values) == 3:
            bins.append((min(valid_values[0], 1.0), min(valid_values[1], 1.0), valid_values[2]))
    if not bins:
        return Html("")
    return tag(
        "figure", tag("figcaption", "Calibration (area of a dot: number of decisions)"), draw_calibration_chart(bins)
    )


def _render_confusion_matrix(scores: dict[str, Any]) -> Html:
    names = [str(name) for name in as_list(scores.get("classes"))][:MAX_CLASSES]
    matrix = [as_list(row) for row in as_list(scores.get("confusion"))][:MAX_CLASSES]
    if not names or not matrix:
        return Html("")
    if scores.get("multi_label"):
        head: list[Child] = ["Finding", "True pos.", "False pos.", "Missed", "True neg."]
        rows = [[name, *map(format_count, row[:4])] for name, row in zip(names, matrix, strict=False)]
        return tag(
            "figure",
            tag("figcaption", "Decisions, with the thresholds that the model was delivered with"),
            table(head, rows),
            class_="wide",
        )
    rows_html = [
        [name, *(_format_confusion_cell(value, row, i == j) for j, value in enumerate(row[: len(names)]))]
        for i, (name, row) in enumerate(zip(names, matrix, strict=False))
    ]
    caption = tag("figcaption", "Confusion matrix (rows: truth, columns: decision)")
    return tag("figure", caption, table(["", *names], rows_html), class_="confusion wide")


def _format_confusion_cell(value: Any, row: list[Any], is_correct: bool) -> Html:
    total = sum(cell_count for cell_count in map(to_finite_number, row) if cell_count is not None)
    share = (to_finite_number(value) or 0) / total if total > 0 else 0.0
    shade = min(max(round(share * 5), 0), 5)
    kind = "hit" if is_correct else "miss"
    return tag("span", format_count(value), tag("small", f" {share:.0%}"), class_=f"cell {kind}{shade}")


def _render_class_table(scores: dict[str, Any]) -> Html:
    items = [as_dict(item) for item in as_list(scores.get("per_class"))]
    if len(items) < 3 and not scores.get("multi_label"):
        return Html("")
    rows = []
    for item in items:
        auroc = as_dict(item.get("auroc"))
        rows.append(
            (
                item.get("name", ""),
                format_count(item.get("n")),
                format_figure(auroc.get("value")),
                format_interval(auroc.get("low"), auroc.get("high")),
            )
        )
    class_table = table(("Class", "Test cases", "AUROC against the rest", "95 % interval"), rows) if rows else None
    return join_html(tag("h3", "Each class"), class_table) if class_table else Html("")
