"""The top of the report: title, status, reason, headline metric, next steps, and the data of a run without a model."""

from __future__ import annotations

from typing import Any

from m3b.display import shorten as shorten_text
from m3b.markup.charts import draw_gauge, round_to_ticks
from m3b.markup.formatting import format_count, format_figure, format_interval, format_time, shorten
from m3b.markup.html import Html
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.measure import describe_test_looks
from m3b.metrics.metric_tables import best_value, lower_is_better, metric_title
from m3b.report.measured_view import format_metric_name
from m3b.report.run_files import RunFiles

STATUS_LABELS = {
    "completed": ("Completed", "good"),
    "below_range": ("Model not accepted", "warn"),
    "no_dataset": ("No fitting data set", "warn"),
    "rejected_data": ("Data rejected", "bad"),
    "undecided": ("A question is open", "warn"),
    "out_of_budget": ("Budget spent", "warn"),
    "failed": ("Failed", "bad"),
    "cancelled": ("Cancelled", "warn"),
    "working": ("At work", "calm"),
    "interrupted": ("Interrupted", "warn"),
    "unreadable": ("Cannot be read", "bad"),
}
NO_VERDICT_LABEL = ("Too few test patients for a verdict", "warn")


def describe_status(status: Any) -> tuple[str, str]:
    """Return label and tone of a status."""
    if isinstance(status, str) and status in STATUS_LABELS:
        return STATUS_LABELS[status]
    return (str(status) if status else "No result yet", "calm")


def make_page_title(files: RunFiles) -> str:
    """Return a title such as `Classifier of clear or opacity, made from chest-xrays`; without a model, the request."""
    task = files.result.get("task")
    if not files.delivered_files or not isinstance(task, str):
        request = files.record.get("request") or files.result.get("request")
        return f"Asked for: {shorten(request, 160)}" if request else "A run of m3b"
    subject = _format_model_title(task, list_class_names(files), files.scores.get("multi_label") is True)
    data = files.result.get("data_card")
    return f"{subject}, made from {shorten(data, 60)}" if data else subject


def _format_model_title(task: str, classes: list[str], is_multi_label: bool) -> str:
    """Return the title of the task's family; a general one if the task is unknown, because its plug-in is missing."""
    from m3b.tasks import get_family, names
    from m3b.tasks.base import join_names

    if task in names():
        family = get_family(task)
        if is_multi_label and classes:
            return f"{family.model_title} of {join_names(classes, 'and')}"  # they do not exclude each other
        return family.format_title(classes)
    return f"Model of {join_names(classes, 'and')}" if classes else "Model"


def list_class_names(files: RunFiles) -> list[str]:
    """Return the class names of the scores, else of the audit's counts."""
    scored_classes = as_list(files.scores.get("classes"))
    class_counts = as_dict(as_dict(files.audit.get("counts")).get("train"))
    return [shorten(name, 40) for name in scored_classes or class_counts]


def make_header(files: RunFiles) -> dict[str, Any]:
    """Return what the header shows."""
    result = files.result
    status = result.get("status") or files.record.get("status")
    label, tone = NO_VERDICT_LABEL if result.get("has_verdict") is False else describe_status(status)
    reason = result.get("reason") or files.record.get("reason")
    run_name = shorten(files.record.get("id") or files.folder.name, 80)
    times = [format_time(event.get("at")) for event in files.events[:1] + files.events[-1:]]
    return {
        "title": make_page_title(files),
        "label": label,
        "tone": tone,
        "run": run_name if run_name.startswith("run") else f"run {run_name}",
        "period": " – ".join(dict.fromkeys(time for time in times if time)),
        "request": shorten(files.record.get("request") or result.get("request") or "", 4000),
        "reason": use_metric_title(shorten(reason, 1200), read_primary_measure(files)) if reason else "",
        "assumptions": [shorten(text, 400) for text in as_list(result.get("assumptions"))],
        "activity": [] if result else files.notes.activity,
    }


def use_metric_title(reason: str, measure: dict[str, Any]) -> str:
    """Return a verdict that begins with a metric's canonical name with its title instead."""
    name = measure.get("name")
    if not isinstance(name, str) or not name or not reason.startswith(f"{name} "):
        return reason
    return f"{metric_title(name)}{reason.removeprefix(name)}"


def read_primary_measure(files: RunFiles) -> dict[str, Any]:
    """Return the primary measure of the trusted scores, else of the Result, with its `acceptable` if it has one."""
    result_measure = as_dict(files.result.get("primary"))
    return {**result_measure, **as_dict(files.scores.get("primary"))}


def _parse_acceptable_range(measure: dict[str, Any]) -> tuple[float, float | None] | None:
    bounds = as_list(measure.get("acceptable"))
    low = to_finite_number(bounds[0]) if bounds else None
    return None if low is None else (low, to_finite_number(bounds[1]) if len(bounds) > 1 else None)


def make_headline(files: RunFiles) -> dict[str, Any] | None:
    """Return the primary metric, its scale and what it was measured on; None if nothing was measured."""
    measure = read_primary_measure(files)
    value, low, high = (to_finite_number(measure.get(key)) for key in ("value", "low", "high"))
    if value is None:
        return None
    acceptable = _parse_acceptable_range(measure)
    interval = (low, high) if low is not None and high is not None else None
    quantity = as_dict(files.scores.get("details")).get("quantity")
    parts = [shorten(quantity, 80)] if isinstance(quantity, str) and quantity else []
    parts += [f"95 % interval {format_interval(low, high)}" if interval else "no interval can be given"]
    if to_finite_number(measure.get("n")) is not None:
        parts.append(f"{format_count(measure.get('n'))} test cases")
    looks = to_finite_number(files.result.get("test_looks"))
    if looks_note := describe_test_looks(int(looks or 0)):
        parts.append(looks_note)
    baseline = to_finite_number(measure.get("baseline"))
    if baseline is not None:
        parts.append(f"{format_figure(baseline)} without looking at the image")
    if acceptable:
        lowest, highest = acceptable
        parts.append(f"acceptable from {lowest:g}" + (f" to {highest:g}" if highest is not None else ""))
    unit = as_dict(files.scores.get("details")).get("distance_unit")
    gauge_range = (acceptable[0], acceptable[1] if acceptable[1] is not None else 1.0) if acceptable else None
    return {
        "name": format_metric_name(measure.get("name", ""), unit),
        "value": format_figure(value),
        "notes": " · ".join(parts),
        "gauge": _draw_gauge(measure, value, interval, gauge_range),
    }


def _draw_gauge(
    measure: dict[str, Any],
    value: float,
    interval: tuple[float, float] | None,
    acceptable: tuple[float, float] | None,
) -> Html | None:
    """Return the value on a scale from 0 to 1, or that of an error on one which holds the image-blind baseline too.

    None for values outside of the scale, such as a negative kappa, and for errors without a baseline.
    """
    baseline = to_finite_number(measure.get("baseline"))
    if best_value(str(measure.get("name"))) == 1.0 and 0 <= value <= 1:
        return draw_gauge(value, interval, baseline, acceptable)
    if lower_is_better(str(measure.get("name"))) and baseline is not None and value >= 0 and not acceptable:
        scale_end = round_to_ticks(0.0, max(value, baseline, *(interval or ())))[1]
        return draw_gauge(value, interval, baseline, None, scale_end) if scale_end > 0 else None
    return None


def list_inventory(files: RunFiles) -> list[str]:
    """Return the lines of the last survey below its heading: what was found in the data folder.

    Runs with a model show the index instead.
    """
    for event in reversed(files.events):
        text = as_dict(event.get("data")).get("text")
        if event.get("kind") == "note" and isinstance(text, str) and text.startswith(SURVEY_PREFIX):
            lines = [shorten_text(line, 400) for line in text.splitlines()[1:]][:MAX_INVENTORY_LINES]
            return [f"could be read {line}" if line.startswith("as ") else line for line in lines]
    return []


SURVEY_PREFIX = "m3b read in "
"""How the note that a survey leaves in the journal begins (`m3b.run.manifest_proposals`)."""
MAX_INVENTORY_LINES = 40
