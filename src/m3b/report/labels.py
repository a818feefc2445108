"""Figures label by label, and the counts behind them, for masks, boxes and reports."""

from __future__ import annotations

from typing import Any

from .gather import as_dict, as_list, to_finite_number
from .markup import Child, Html, join_html, subsection, table, tag
from .words import format_count, format_figure, format_interval, format_metric_name, shorten

MAX_LABELS = 60


def render_label_table(scores: dict[str, Any]) -> Html:
    """One row a label, one column a metric with its interval below; nothing where no label has figures."""
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
    note = tag("p", "Beside each figure its 95 % interval and, in brackets, the image-blind baseline.", class_="quiet")
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
    """The primary metric by sex, age and what else the data says of its cases."""
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
        "p", "Small groups have wide intervals; a difference counts where intervals do not meet.", class_="quiet"
    )
    return subsection("Subgroups", note, table(head, rows))


def render_external_table(result: dict[str, Any]) -> Html:
    """The run's metric on test sets of other places, or why one was not measured."""
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
    note = tag("p", "Test sets of other places, which no agent and no training saw.", class_="quiet")
    return subsection(
        "External test sets", note, table(("Set", "Cases", "Patients", format_metric_name(primary), "Notes"), rows)
    )


def render_details(scores: dict[str, Any]) -> Html:
    """Lesions found and missed, labels missed or invented, sensitivities of the FROC, different texts."""
    details = as_dict(scores.get("details"))
    parts = [_render_lesion_table(details), _render_froc_table(as_dict(details.get("froc")))]
    lines = []
    for key, meaning in (("missed", "missed altogether"), ("invented", "marked where there is none")):
        label_counts = [(name, to_finite_number(value)) for name, value in as_dict(details.get(key)).items()]
        listing = ", ".join(f"{shorten(name, 60)} in {value:.0f}" for name, value in label_counts if value)
        if listing:
            lines.append(f"Test cases with a label {meaning}: {listing}.")
    if to_finite_number(details.get("distinct")) is not None:
        lines.append(
            f"{format_count(details.get('distinct'))} different texts on {format_count(scores.get('n_cases'))} cases."
        )
    texts = [shorten(text, 300) for text in as_list(details.get("constant")) if isinstance(text, str)][:2]
    if texts:
        lines.append(f"The constant report that it is compared with: “{texts[0]}”")
    return join_html(*parts, *(tag("p", line) for line in lines))


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
    head = ("False finds an image", *(f"{rate:g}" for rate in rates))
    rows = [
        [shorten(name, 80), *(format_figure(value) for value in values[: len(rates)])]
        for name, values in sensitivities.items()
    ]
    return subsection("Share of objects found (FROC)", table(head, rows))
