"""Report sections about the run: request, data, training, roles, deliverable, versions, limits."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from m3b.markup.charts import MAX_SERIES, draw_line_chart
from m3b.markup.formatting import format_count, format_duration, format_size, shorten
from m3b.markup.html import Child, Html, definition_list, join_html, section, table, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.models.model_card import sample_size_caveats
from m3b.report.run_files import RunFiles

_UNDRAWN_COLUMNS = {"fold", "epoch", "step", "lr", "learning_rate", "seconds", "time"}
_SEVERITY_BADGES = {"reject": ("Rejects the data", "bad"), "fix": ("Has to be fixed", "warn"), "warn": ("Note", "calm")}

LIMITATIONS = (
    "This is a research model and no medical device: no decision about a patient may rest on it.",
    "The figures hold for the test cases described here. Other scanners, hospitals and populations can differ.",
)
PATIENTS_KNOWN_NOTE = (
    "Patients are kept apart as far as the data names them; a wrong patient key cannot be seen from inside."
)
PATIENTS_UNKNOWN_NOTE = (
    "Patients are unknown: images of one person may be among the training and the test cases, and the figures are then "
    "too high for new patients."
)


def render_request_section(files: RunFiles) -> Html:
    """Return the request, and how m3b interpreted it."""
    request = files.record.get("request") or files.result.get("request")
    pairs = [("Task", files.result.get("task")), ("Data card", files.result.get("data_card"))]
    fact_rows: list[tuple[str, Child]] = [(name, shorten(value)) for name, value in pairs if value]
    return section(
        "request", "Request", tag("blockquote", shorten(request, 4000)) if request else None, definition_list(fact_rows)
    )


def render_data_section(files: RunFiles) -> Html:
    """Return class counts by split, patients, and the findings of the audit."""
    audit = files.audit
    counts = {split: as_dict(split_counts) for split, split_counts in as_dict(audit.get("counts")).items()}
    names = list(dict.fromkeys(name for split_counts in counts.values() for name in split_counts))
    patients = as_dict(audit.get("patients"))
    rows = [[name, *(format_count(split_counts.get(name, 0)) for split_counts in counts.values())] for name in names]
    if rows and patients:
        patients_known = audit.get("patients_known", True)
        rows.append(
            ["patients", *(format_count(patients.get(split)) if patients_known else "unknown" for split in counts)]
        )
    count_table = table(("Cases", *counts), rows) if rows else None
    shapes = ", ".join(f"{shape} ({format_count(n)} cases)" for shape, n in as_dict(audit.get("shapes")).items())
    opened_text = None
    if to_finite_number(audit.get("cases")) is not None:
        opened_text = f"{format_count(audit.get('opened'))} of {format_count(audit.get('cases'))} images"
    return section(
        "data",
        "Data",
        count_table,
        definition_list([("Opened by the audit", opened_text), ("Shapes", shapes)]),
        _render_provenance(files),
        _render_findings(audit),
    )


def _render_provenance(files: RunFiles) -> Html:
    """Return how the index was made, and which parts of the data folder were used and excluded."""
    artifacts = [as_dict(event.get("data")) for event in files.events if event.get("kind") == "artifact"]
    indexes = [as_dict(artifact.get("value")) for artifact in artifacts if artifact.get("artifact") == "index"]
    lines = as_list(indexes[-1].get("read")) if indexes else []
    return tag("ul", *(tag("li", shorten(line, 400)) for line in lines)) if lines else Html("")


def _render_findings(audit: dict[str, Any]) -> Html:
    items = []
    for item in map(as_dict, as_list(audit.get("findings"))):
        weight = item.get("weight")
        label, tone = (
            _SEVERITY_BADGES.get(weight, (str(weight), "calm")) if isinstance(weight, str) else ("Note", "calm")
        )
        cases = ", ".join(shorten(case, 60) for case in as_list(item.get("cases"))[:6])
        cases_note = tag("span", f" {cases}", class_="quiet") if cases else None
        items.append(
            tag(
                "li", tag("span", label, class_=f"badge {tone}"), " ", shorten(item.get("message", ""), 600), cases_note
            )
        )
    if not items:
        return tag("p", "The data audit found no problem.") if audit else Html("")
    return join_html(tag("h3", "Audit"), tag("ul", *items, class_="findings"))


def render_training_section(files: RunFiles) -> Html:
    """Return curves of the training log: losses in one chart, validation metrics in another, one line a fold."""
    columns = [
        name for name in (files.training_log[0] if files.training_log else {}) if name.lower() not in _UNDRAWN_COLUMNS
    ]
    losses = {
        _to_display_name(name): _collect_runs(files.training_log, name) for name in columns if "loss" in name.lower()
    }
    validation_metrics = {
        _to_display_name(name): _collect_runs(files.training_log, name)
        for name in columns
        if "loss" not in name.lower()
    }
    x_name = _find_x_column(files.training_log)
    charts = [
        draw_line_chart(title, x_name, dict([(name, runs) for name, runs in group.items() if runs][:MAX_SERIES]))
        for title, group in (("loss", losses), ("validation", validation_metrics))
        if any(group.values())
    ]
    if not charts:
        return Html("")
    note = "Validation cases are part of the training split; the test cases are locked away until the end."
    return section("training", "Training", tag("p", note, class_="quiet"), tag("div", *charts, class_="charts"))


def _to_display_name(column: str) -> str:
    return column.replace("_", " ")


def _find_x_column(log: list[dict[str, str]]) -> str:
    return next((name for name in ("epoch", "step") if log and name in log[0]), "row")


def _parse_number(text: str | None) -> float | None:
    try:
        return to_finite_number(float(text)) if text else None
    except ValueError:
        return None


def _collect_runs(log: list[dict[str, str]], name: str) -> list[list[tuple[float, float]]]:
    axis, runs = _find_x_column(log), defaultdict(list)
    for row_number, row in enumerate(log):
        x, y = _parse_number(row.get(axis)) if axis != "row" else float(row_number), _parse_number(row.get(name))
        if x is not None and y is not None and abs(y) < 1e12:
            runs[row.get("fold", "")].append((x, y))
    return list(runs.values())


def render_roles_section(files: RunFiles) -> Html:
    """Return the work of each role, counted from the journal if the Result does not have it."""
    roles = as_dict(files.result.get("roles")) or _count_role_usage(files.events)
    rows = [
        (
            files.get_role_title(role),
            shorten(as_dict(item).get("status") or "–", 40),
            *(format_count(as_dict(item).get(key)) for key in _ROLE_USAGE_KEYS),
        )
        for role, item in roles.items()
    ]
    head = ("Role", "Status", "Actions", "Debug iterations", "Tokens in", "Tokens out")
    return section("roles", "Agents", table(head, rows) if rows else None)


_ROLE_USAGE_KEYS = ("actions", "iterations", "input_tokens", "output_tokens")


def _count_role_usage(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    roles: dict[str, dict[str, Any]] = {}
    for event in events:
        role, data = event.get("role"), as_dict(event.get("data"))
        if not isinstance(role, str) or not role:
            continue
        entry = roles.setdefault(role, {"actions": 0, "input_tokens": 0, "output_tokens": 0})
        entry["actions"] += event.get("kind") == "call"
        for key in ("input_tokens", "output_tokens"):
            entry[key] += to_finite_number(as_dict(data.get("usage")).get(key)) or 0
    return roles


def render_integrity_section(files: RunFiles) -> Html:
    """Return the integrity label, and what it means."""
    integrity = files.result.get("integrity")
    if not integrity:
        return Html("")
    is_clean = integrity == "clean"
    explanation = (
        "The test index and the raw data are unchanged, and no test case was part of the training split."
        if is_clean
        else shorten(integrity, 2000)
    )
    badge = tag("span", "Clean" if is_clean else "Check this", class_=f"badge {'good' if is_clean else 'bad'}")
    return section("integrity", "Integrity", tag("p", badge, " ", explanation))


def render_usage_section(files: RunFiles) -> Html:
    """Return tokens, cost and time."""
    usage = as_dict(files.result.get("usage"))
    cost = to_finite_number(usage.get("cost_usd"))
    pairs: list[tuple[str, Child]] = [
        (name, format_count(usage[key]))
        for key, name in (
            ("actions", "Actions"), ("iterations", "Debug iterations"), ("input_tokens", "Tokens in"),
            ("cached_tokens", "of them cached"), ("output_tokens", "Tokens out"),
        )
        if key in usage
    ]  # fmt: skip
    pairs.append(("Cost", f"{cost:.4f} USD" if cost is not None else None))
    pairs.append(("Wall time", format_duration(usage.get("wall_s")) if "wall_s" in usage else None))
    return section("usage", "Usage", definition_list(pairs) if usage else None)


def render_delivered_section(files: RunFiles) -> Html:
    """Return the files of the deliverable."""
    rows = [(name, format_size(byte_count)) for name, byte_count in files.delivered_files]
    return section("delivered", "Delivered model", table(("File", "Size"), rows) if rows else None)


def _format_models(files: RunFiles) -> str:
    """Return the model of a run, or the models of its roles; a single default is shown without its role."""
    llm = files.record.get("llm")
    if not isinstance(llm, dict):
        return shorten(llm, 300)
    model_names = [
        shorten(model, 100) if role == "default" else f"{files.get_role_title(role)}: {shorten(model, 100)}"
        for role, model in llm.items()
    ]
    return shorten(", ".join(model_names), 300)


def render_reproduction_section(files: RunFiles) -> Html:
    """Return what is needed to run this again: model, seed, options, versions, sandbox."""
    run = files.record
    sandbox = as_dict(run.get("sandbox"))
    sandbox_text = shorten(sandbox.get("backend") or sandbox.get("name") or sandbox, 300) if sandbox else ""
    if isinstance(names := run.get("sandboxes"), list) and len(names) > 1:
        sandbox_text = shorten(", then ".join(map(str, names)), 300)
    pairs: list[tuple[str, Child]] = [
        ("Language model", _format_models(files) if run.get("llm") else None),
        ("Seed", shorten(run["seed"], 40) if run.get("seed") is not None else None),
        ("Sandbox", sandbox_text or (shorten(run["sandbox"], 300) if run.get("sandbox") else None)),
    ]
    foldable_tables = []
    for key, title in (("options", "Options"), ("versions", "Versions")):
        rows = [(name, shorten(value, 400)) for name, value in as_dict(run.get(key)).items()]
        if rows:
            foldable_tables.append(tag("details", tag("summary", title), table(("Name", "Value"), rows, numbers=False)))
    return section("made", "How it was made", definition_list(pairs), *foldable_tables)


def render_limitations_section(files: RunFiles) -> Html:
    """Return the limitations of the metrics; empty if there is neither a metric nor a model."""
    patients_known = files.audit.get("patients_known", True)
    training_patients = to_finite_number(as_dict(files.audit.get("patients")).get("train")) if patients_known else None
    small_set_notes = sample_size_caveats(files.scores, None if training_patients is None else int(training_patients))
    limitations = (
        [*small_set_notes, *LIMITATIONS, PATIENTS_KNOWN_NOTE if patients_known else PATIENTS_UNKNOWN_NOTE]
        if files.delivered_files or files.scores
        else []
    )
    if files.journal_warning:
        limitations.append(files.journal_warning)
    return section(
        "limits", "Limits", tag("ul", *(tag("li", limitation) for limitation in limitations)) if limitations else None
    )
