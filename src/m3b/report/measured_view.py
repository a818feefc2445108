"""What the report shows of the metrics: tables of metrics, labels, subgroups and external sets, and charts."""

from __future__ import annotations

from typing import Any

from m3b.markup.charts import MAX_SERIES, draw_calibration_chart, draw_histogram, draw_legend, draw_roc_chart
from m3b.markup.formatting import format_count, format_figure, format_interval, shorten
from m3b.markup.html import Html, join_html, table, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.measure import UNKNOWN_PATIENTS_NOTE, describe_test_sample
from m3b.metrics.metric_tables import lower_is_better, metric_title
from m3b.report.case_ranking import CaseRanking
from m3b.report.run_files import RunFiles
from m3b.tasks.report_section import ReportSection

MAX_LABELS = 60
MAX_CLASSES = 24
DISTANCE_UNITS = {"mm": "mm", "px": "pixels", "mixed": "mm or pixels"}
"""Names of distance units: images without a spacing have no millimetres."""

Rows = list[list[Any]]


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


def find_report_section(task: Any) -> ReportSection:
    """Return the section of a task; an empty one if the task is unknown, because its plug-in is missing."""
    from m3b.tasks import get_family, names

    return get_family(task).report_section if isinstance(task, str) and task in names() else ReportSection()


def list_metrics(files: RunFiles) -> Rows:
    """Return a row for each metric that is defined: name, value, interval, image-blind baseline."""
    scores, rows = files.scores, []
    unit = as_dict(scores.get("details")).get("distance_unit")
    for name, raw in (as_dict(scores.get("metrics")) or as_dict(files.result.get("metrics"))).items():
        item = raw if isinstance(raw, dict) else {"value": raw}
        if to_finite_number(item.get("value")) is None:
            continue  # this metric is undefined for these cases
        interval = format_interval(item.get("low"), item.get("high"))
        rows.append(
            [
                format_metric_name(name, unit),
                format_figure(item.get("value")),
                interval,
                format_figure(item.get("baseline")),
            ]
        )
    return rows


def describe_test_set(scores: dict[str, Any]) -> str:
    """Return the number of cases and patients behind the metrics in words; empty if it is not known."""
    if to_finite_number(scores.get("n_cases")) is None:
        return ""
    sentence = f"Computed by m3b from predictions on {format_count(scores.get('n_cases'))} locked test cases"
    if sample_note := describe_test_sample(as_dict(scores.get("details")).get("test_sample")):
        sentence += f" ({sample_note})"
    if scores.get("patients_known", True):
        return f"{sentence} of {format_count(scores.get('n_patients'))} patients. Intervals: bootstrap over patients."
    return f"{sentence}; {UNKNOWN_PATIENTS_NOTE}. Intervals: bootstrap over cases."


def describe_reliability(scores: dict[str, Any]) -> list[str]:
    """Return sentences on flagged images, prediction sets and the look-up control."""
    details, sentences = as_dict(scores.get("details")), []
    ood = as_dict(details.get("out_of_distribution"))
    if to_finite_number(ood.get("flagged")) is not None and to_finite_number(ood.get("n")) is not None:
        verb = "is" if ood["flagged"] == 1 else "are"
        sentences.append(
            f"{format_count(ood['flagged'])} of {format_count(ood['n'])} test images {verb} flagged as unlike the "
            "training images."
        )
    if to_finite_number(details.get("verbatim")):
        sentences.append(
            f"Control not possible for {format_count(details['verbatim'])} test cases: their files could not be reduced to pixels "
            "and geometry, so the model could have read answers from texts in them."
        )
    sets = as_dict(details.get("prediction_sets"))
    stated_level, coverage, size = (to_finite_number(sets.get(key)) for key in ("promised", "held", "mean_size"))
    if stated_level is not None and coverage is not None and size is not None:
        sentences.append(
            f"Sets of classes that cannot be ruled out (stated level {stated_level:.0%}) hold the true class in {coverage:.0%} "
            f"of the cases; they have {size:.2f} classes on average, and the model abstains in "
            f"{format_count(sets.get('abstained'))} of {format_count(sets.get('n'))}."
        )
    return sentences


def list_charts(scores: dict[str, Any], ranking: CaseRanking, report_section: ReportSection) -> list[Html]:
    """Return all charts of the metrics, those of the task last."""
    charts = [
        draw_case_histogram(ranking),
        _draw_roc(scores),
        _draw_calibration(scores),
        _render_confusion_matrix(scores),
        *report_section.draw_charts(scores),
    ]
    return [chart for chart in charts if chart]


def draw_case_histogram(ranking: CaseRanking) -> Html:
    """Return the distribution of the value by which cases are ranked; empty with fewer than three cases."""
    if len(ranking.values) < 3:
        return Html("")
    values = sorted(ranking.values)
    median = values[len(values) // 2] if len(values) % 2 else sum(values[len(values) // 2 - 1 :][:2]) / 2
    caption = tag("figcaption", f"{ranking.value_title} of the test cases (line: median {median:.3g})")
    return tag(
        "figure",
        caption,
        draw_histogram(ranking.value_title, values, (0.0, 1.0) if ranking.has_shares else None, median),
    )


def list_label_rows(scores: dict[str, Any]) -> tuple[list[str], Rows]:
    """Return head and rows of the table with one row a label and one column a metric with its interval."""
    items = [as_dict(item) for item in as_list(scores.get("per_label"))][:MAX_LABELS]
    names = list(dict.fromkeys(name for item in items for name in as_dict(item.get("metrics"))))
    if not names:
        return [], []
    rows: Rows = []
    for item in items:
        metrics = as_dict(item.get("metrics"))
        cells = [format_measure(as_dict(metrics.get(name))) for name in names]
        rows.append([shorten(item.get("name", ""), 80), format_count(item.get("n")), *cells])
    unit = as_dict(scores.get("details")).get("distance_unit")
    return ["Label", "Test cases", *(format_metric_name(name, unit) for name in names)], rows


def list_class_rows(scores: dict[str, Any]) -> Rows:
    """Return a row for each of three or more classes: name, cases, AUROC against the rest, interval."""
    items = [as_dict(item) for item in as_list(scores.get("per_class"))]
    if len(items) < 3 and not scores.get("multi_label"):
        return []
    rows: Rows = []
    for item in items:
        auroc = as_dict(item.get("auroc"))
        interval = format_interval(auroc.get("low"), auroc.get("high"))
        rows.append(
            [
                shorten(item.get("name", ""), 80),
                format_count(item.get("n")),
                format_figure(auroc.get("value")),
                interval,
            ]
        )
    return rows


def format_measure(measure: dict[str, Any]) -> Html:
    """Return a value with its interval and, in brackets, the image-blind baseline."""
    interval = format_interval(measure.get("low"), measure.get("high"))
    baseline = to_finite_number(measure.get("baseline"))
    annotations = [interval] if interval != "–" else []
    annotations += [f"({baseline:.3f})"] if baseline is not None else []
    small = tag("small", " ", " ".join(annotations)) if annotations else None
    return join_html(format_figure(measure.get("value")), small)


def list_subgroup_rows(scores: dict[str, Any]) -> tuple[Rows, int]:
    """Return a row for each subgroup with a value of the primary metric, and the number of groups without one."""
    rows: Rows = []
    n_undefined = 0
    for name, groups in as_dict(as_dict(scores.get("details")).get("subgroups")).items():
        for group in map(as_dict, as_list(groups)):
            measure = as_dict(group.get("measure"))
            if not measure:
                n_undefined += 1
                continue
            group_name = shorten(group.get("group", ""), 60)
            rows.append([shorten(name, 60), group_name, format_count(group.get("n")), format_measure(measure)])
    return rows, n_undefined


def list_external_rows(result: dict[str, Any]) -> Rows:
    """Return a row for each external test set, with its measure or the reason why it was not measured."""
    rows: Rows = []
    for name, raw_result in as_dict(result.get("external")).items():
        external_result = as_dict(raw_result)
        measure = as_dict(external_result.get("primary"))
        patients = external_result.get("patients")
        cell: Any = format_measure(measure)
        if not measure:
            cell = f"not measured: {shorten(external_result.get('reason'), 400)}"
        notes = shorten(" ".join(map(str, as_list(external_result.get("notes")))), 600)
        counts = ["–", "–"]
        if measure:
            counts = [
                format_count(external_result.get("cases")),
                "unknown" if patients is None else format_count(patients),
            ]
        rows.append([shorten(name, 60), *counts, cell, notes])
    return rows


def _parse_points(raw: Any) -> list[tuple[float, float]]:
    points = []
    for pair in as_list(raw):
        values = [to_finite_number(value) for value in as_list(pair)[:2]]
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            points.append((min(max(values[0], 0.0), 1.0), min(max(values[1], 0.0), 1.0)))
    return points


def _draw_roc(scores: dict[str, Any]) -> Html:
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


def _draw_calibration(scores: dict[str, Any]) -> Html:
    bins = []
    for item in map(as_dict, as_list(scores.get("calibration"))):
        values = [to_finite_number(item.get(key)) for key in ("confidence", "correct", "n")]
        valid_values = [value for value in values if value is not None and value >= 0]
        if len(valid_values) == 3:
            bins.append((min(valid_values[0], 1.0), min(valid_values[1], 1.0), valid_values[2]))
    if not bins:
        return Html("")
    caption = tag("figcaption", "Reliability: observed share by predicted probability (area: decisions)")
    return tag("figure", caption, draw_calibration_chart(bins))


def _render_confusion_matrix(scores: dict[str, Any]) -> Html:
    names = [str(name) for name in as_list(scores.get("classes"))][:MAX_CLASSES]
    matrix = [as_list(row) for row in as_list(scores.get("confusion"))][:MAX_CLASSES]
    if not names or not matrix:
        return Html("")
    if scores.get("multi_label"):
        head = ["Finding", "True pos.", "False pos.", "Missed", "True neg."]
        rows = [[name, *map(format_count, row[:4])] for name, row in zip(names, matrix, strict=False)]
        caption = tag("figcaption", "Decisions, with the thresholds that the model was delivered with")
        return tag("figure", caption, table(head, rows), class_="wide")
    rows_html = [
        [name, *(_format_confusion_cell(value, row, i == j) for j, value in enumerate(row[: len(names)]))]
        for i, (name, row) in enumerate(zip(names, matrix, strict=False))
    ]
    caption = tag("figcaption", "Confusion matrix (rows: truth, columns: decision)")
    return tag("figure", caption, table(["", *names], rows_html), class_="confusion wide")


def _format_confusion_cell(value: Any, row: list[Any], is_correct: bool) -> Html:
    if not to_finite_number(value):
        return tag("span", format_count(value), class_="cell quiet")
    total = sum(cell_count for cell_count in map(to_finite_number, row) if cell_count is not None)
    share = (to_finite_number(value) or 0) / total if total > 0 else 0.0
    shade = min(max(round(share * 5), 0), 5)
    kind = "hit" if is_correct else "miss"
    return tag("span", format_count(value), tag("small", f" {share:.0%}"), class_=f"cell {kind}{shade}")
