"""Report sections about metrics: headline, metrics, ROC, calibration, confusion matrix."""

from __future__ import annotations

from typing import Any

from m3b.markup.charts import (
    MAX_SERIES,
    draw_calibration_chart,
    draw_gauge,
    draw_legend,
    draw_roc_chart,
)
from m3b.markup.formatting import format_count, format_figure, format_interval, shorten
from m3b.markup.html import Child, Html, join_html, section, subsection, table, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.measure import UNKNOWN_PATIENTS_NOTE
from m3b.metrics.metric_tables import is_unbounded, lower_is_better, metric_title
from m3b.report.run_files import RunFiles
from m3b.tasks.report_section import ReportSection

MAX_LABELS = 60
DISTANCE_UNITS = {"mm": "mm", "px": "pixels", "mixed": "mm or pixels"}
"""Names of distance units: images without a spacing have no millimetres."""


def format_metric_name(name: Any, unit: Any = None) -> str:
    """Return the display name of a metric.

    Args:
        unit: of distances, a key of `DISTANCE_UNITS`; any other value is ignored.
    """
    if not isinstance(name, str):
        return str(name)
    title = metric_title(name)
    if name == "hd95" and isinstance(unit, str) and unit in DISTANCE_UNITS:
        title = f"{title}, {DISTANCE_UNITS[unit]}"
    return f"{title} (less is better)" if lower_is_better(name) else title


def render_label_table(scores: dict[str, Any]) -> Html:
    """Return a table with one row a label and one column a metric with its interval; empty if no label has metrics."""
    items = [as_dict(item) for item in as_list(scores.get("per_label"))][:MAX_LABELS]
    names = list(dict.fromkeys(name for item in items for name in as_dict(item.get("metrics"))))
    if not names:
        return Html("")
    rows: list[list[Child]] = []
    for item in items:
        metrics = as_dict(item.get("metrics"))
        cells = [_format_measure_cell(as_dict(metrics.get(name))) for name in names]
        rows.append([shorten(item.get("name", ""), 80), format_count(item.get("n")), *cells])
    unit = as_dict(scores.get("details")).get("distance_unit")
    head = ("Label", "Test cases", *(format_metric_name(name, unit) for name in names))
    note = tag("p", "Each value has its 95 % interval and, in brackets, the image-blind baseline.", class_="quiet")
    return subsection("Each label", note, table(head, rows))


def _format_measure_cell(measure: dict[str, Any]) -> Html:
    interval, baseline = (
        format_interval(measure.get("low"), measure.get("high")),
        to_finite_number(measure.get("baseline")),
    )
    annotations = [
        part
        for part in (interval if interval != "–" else "", f"({baseline:.3f})" if baseline is not None else "")
        if part
    ]
    return join_html(
        format_figure(measure.get("value")), tag("small", " ", " ".join(annotations)) if annotations else None
    )


def render_subgroup_table(scores: dict[str, Any]) -> Html:
    """Return a table of the primary metric by sex, age and other attributes of the cases."""
    rows: list[list[Child]] = []
    for name, groups in as_dict(as_dict(scores.get("details")).get("subgroups")).items():
        for group in map(as_dict, as_list(groups)):
            measure = as_dict(group.get("measure"))
            cell = _format_measure_cell(measure) if measure else "too few, or not defined"
            rows.append([shorten(name, 60), shorten(group.get("group", ""), 60), format_count(group.get("n")), cell])
    if not rows:
        return Html("")
    head = ("Attribute", "Group", "Test cases", format_metric_name(as_dict(scores.get("primary")).get("name", "")))
    note = tag(
        "p", "Small groups have wide intervals; a difference counts if the intervals do not overlap.", class_="quiet"
    )
    return subsection("Subgroups", note, table(head, rows))


def render_external_table(result: dict[str, Any]) -> Html:
    """Return a table of the run's metric on external test sets, or the reason why one was not measured."""
    rows: list[list[Child]] = []
    for name, raw_result in as_dict(result.get("external")).items():
        external_result = as_dict(raw_result)
        measure = as_dict(external_result.get("primary"))
        patients_text = (
            "unknown" if external_result.get("patients") is None else format_count(external_result.get("patients"))
        )
        cell = (
            _format_measure_cell(measure) if measure else f"not measured: {shorten(external_result.get('reason'), 400)}"
        )
        notes = shorten(" ".join(map(str, as_list(external_result.get("notes")))), 600)
        rows.append(
            [
                shorten(name, 60),
                format_count(external_result.get("cases")) if measure else "–",
                patients_text if measure else "–",
                cell,
                notes,
            ]
        )
    if not rows:
        return Html("")
    primary = as_dict(result.get("primary")).get("name", "")
    note = tag("p", "Test sets from other sites, which no agent and no training saw.", class_="quiet")
    return subsection(
        "External test sets", note, table(("Set", "Cases", "Patients", format_metric_name(primary), "Notes"), rows)
    )


MAX_CLASSES = 24


def read_primary_measure(files: RunFiles) -> dict[str, Any]:
    """Return the primary measure of the trusted scores, else of the Result, with its `acceptable` if it has one."""
    result_measure = as_dict(files.result.get("primary"))
    return {**result_measure, **as_dict(files.scores.get("primary"))}


def _parse_acceptable_range(measure: dict[str, Any]) -> tuple[float, float | None] | None:
    bounds = as_list(measure.get("acceptable"))
    low = to_finite_number(bounds[0]) if bounds else None
    return None if low is None else (low, to_finite_number(bounds[1]) if len(bounds) > 1 else None)


def render_headline(files: RunFiles) -> Html:
    """Return the primary metric in large type, on its scale."""
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
    """Return the value on a scale from 0 to 1, if the metric is a share."""
    if is_unbounded(str(measure.get("name"))) or not 0 <= value <= 1:
        return None
    return draw_gauge(value, interval, to_finite_number(measure.get("baseline")), acceptable)


def _find_report_section(task: Any) -> ReportSection:
    """Return the section of a task; an empty one if the task is unknown, because its plug-in is missing."""
    from m3b.tasks import get_family, names

    return get_family(task).report_section if task in names() else ReportSection()


def render_figures_section(files: RunFiles) -> Html:
    """Return the section with every metric, and the charts."""
    scores = files.scores
    report_section = _find_report_section(scores.get("task"))
    unit = as_dict(scores.get("details")).get("distance_unit")
    rows = []
    for name, raw in (as_dict(scores.get("metrics")) or as_dict(files.result.get("metrics"))).items():
        item = raw if isinstance(raw, dict) else {"value": raw}
        if to_finite_number(item.get("value")) is None and (
            not isinstance(raw, dict) or to_finite_number(item.get("baseline")) is None
        ):
            continue  # this metric is undefined for these cases
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
        *report_section.draw_charts(scores),
    ]
    charts = tag("div", *chart_list, class_="charts") if any(chart_list) else None
    return section(
        "measured",
        "Measured on the test cases",
        test_set_note,
        metric_table,
        charts,
        render_label_table(scores) or _render_class_table(scores),
        render_external_table(files.result),
        render_subgroup_table(scores),
        report_section.render_details(scores),
    )


def _describe_test_set(scores: dict[str, Any]) -> str:
    """Describe the number of cases and patients behind the metrics."""
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
        items = items[1:]  # the curve of the other class is the mirror image
    curves = [(_format_class_auroc(item), _parse_points(item.get("roc"))) for item in items]
    curves = [curve for curve in curves if len(curve[1]) > 1][:MAX_SERIES]
    if not curves:
        return Html("")
    truncation_note = tag("p", f"The first {MAX_SERIES} classes.", class_="quiet") if len(items) > MAX_SERIES else None
    names = draw_legend([name for name, _ in curves])
    return tag("figure", tag("figcaption", "ROC curve"), draw_roc_chart(curves), names, truncation_note)


def _format_class_auroc(item: dict[str, Any]) -> str:
    """Return the class with its AUROC, to find its curve among many."""
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
