"""What the report shows of the run itself: agents, usage, integrity, the delivered files, reproduction and limits."""

from __future__ import annotations

import re
from typing import Any

from m3b.markup.formatting import format_count, format_duration, format_size, shorten
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.metrics.metric_tables import metric_title
from m3b.models.model_card import sample_size_caveats
from m3b.report.run_files import RunFiles

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
MEASURED_PATTERN = re.compile(r"^(On the validation cases m3b measures: )(\w+) ")
MAIN_FILES = ("predict.py", "README.md", "config.json", "metrics.json", "provenance.json")
"""Files of a deliverable that a reader looks for; the others are its code."""


def uses_language_model(files: RunFiles) -> bool:
    """Return whether any role was played by a language model, and not by the embedded rules."""
    llm = files.record.get("llm")
    names = llm.values() if isinstance(llm, dict) else [llm] if llm else []
    return any(not str(name).startswith("rules") for name in names)


def list_role_rows(files: RunFiles) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the work of each role; tokens only if a language model was asked."""
    roles = as_dict(files.result.get("roles")) or _count_role_usage(files.events)
    columns = [("actions", "Actions"), ("iterations", "Debug iterations")]
    if uses_language_model(files):
        columns += [("input_tokens", "Tokens in"), ("output_tokens", "Tokens out")]
    rows = [
        [
            files.get_role_title(role),
            shorten(str(as_dict(item).get("status") or "–").replace("_", " "), 40),
            *(format_count(as_dict(item).get(key)) for key, _ in columns),
        ]
        for role, item in roles.items()
    ]
    return ["Role", "Status", *(title for _, title in columns)], rows


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


def describe_integrity(files: RunFiles) -> dict[str, Any] | None:
    """Return the integrity label and what it means; None if nothing was checked."""
    integrity = files.result.get("integrity")
    if not integrity:
        return None
    if integrity == "clean":
        text = "The test index and the raw data are unchanged, and no test case was part of the training split."
        return {"label": "Clean", "tone": "good", "text": text}
    return {"label": "Check this", "tone": "bad", "text": shorten(integrity, 2000)}


def list_usage(files: RunFiles) -> list[tuple[str, str]]:
    """Return time and actions; tokens only if a language model was asked, cost only if its price is known."""
    usage = as_dict(files.result.get("usage"))
    pairs = [("Wall time", format_duration(usage["wall_s"]))] if "wall_s" in usage else []
    names = {"actions": "Actions", "iterations": "Debug iterations"}
    if uses_language_model(files):
        names |= {"input_tokens": "Tokens in", "cached_tokens": "of them cached", "output_tokens": "Tokens out"}
    pairs += [(title, format_count(usage[key])) for key, title in names.items() if key in usage]
    cost = to_finite_number(usage.get("cost_usd"))
    if cost and uses_language_model(files):
        pairs.append(("Cost", f"{cost:.4f} USD"))
    return pairs


def summarize_delivered(files: RunFiles) -> dict[str, Any] | None:
    """Return the deliverable: number and size of its files, the main ones, and all; None if there is none."""
    if not files.delivered_files:
        return None
    total = sum(size for _, size in files.delivered_files)
    main_files = [
        (name, format_size(size))
        for name, size in files.delivered_files
        if name in MAIN_FILES or name.endswith(".safetensors")
    ]
    return {
        "summary": f"{len(files.delivered_files):,} files, {format_size(total)}",
        "folder": f"{shorten(files.record.get('id') or files.folder.name, 80)}/model",
        "main": main_files,
        "all": [(name, format_size(size)) for name, size in files.delivered_files],
    }


def list_reproduction(files: RunFiles) -> list[tuple[str, str]]:
    """Return what is needed to run this again: model, seed, sandbox."""
    run = files.record
    sandbox = as_dict(run.get("sandbox"))
    text = shorten(sandbox.get("name") or sandbox.get("backend") or sandbox, 300) if sandbox else ""
    if not text and run.get("sandbox"):
        text = shorten(run["sandbox"], 300)
    if isinstance(names := run.get("sandboxes"), list) and len(names) > 1:
        text = shorten(", then ".join(map(str, names)), 300)
    return [
        ("Language model", _format_models(files) if run.get("llm") else ""),
        ("Seed", shorten(run["seed"], 40) if run.get("seed") is not None else ""),
        ("Sandbox", text),
    ]


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


def list_record_tables(files: RunFiles) -> list[tuple[str, list[list[str]]]]:
    """Return the options and the versions of the run as tables."""
    tables = []
    for key, title in (("options", "Options"), ("versions", "Versions")):
        rows = [
            [name, shorten(value, 400)]
            for name, value in as_dict(files.record.get(key)).items()
            if value not in (None, "", [], {})
        ]
        if rows:
            tables.append((title, rows))
    return tables


def list_limitations(files: RunFiles) -> list[str]:
    """Return the limitations of the metrics; empty if there is neither a metric nor a model."""
    patients_known = files.audit.get("patients_known", True)
    training_patients = to_finite_number(as_dict(files.audit.get("patients")).get("train")) if patients_known else None
    small_set_notes = sample_size_caveats(files.scores, None if training_patients is None else int(training_patients))
    limitations = (
        [*small_set_notes, *LIMITATIONS, PATIENTS_KNOWN_NOTE if patients_known else PATIENTS_UNKNOWN_NOTE]
        if files.delivered_files or files.scores
        else []
    )
    return [*limitations, *([files.journal_warning] if files.journal_warning else [])]


def list_warnings(files: RunFiles) -> list[str]:
    """Return the warnings of accepted checks: what m3b remarked on data, project and model."""
    warnings = [
        _use_metric_titles(shorten(text, 600))
        for event in files.events
        if event.get("kind") == "check" and as_dict(event.get("data")).get("accepted")
        for text in as_list(as_dict(event.get("data")).get("warnings"))
    ]
    return list(dict.fromkeys(warnings))


def _use_metric_titles(warning: str) -> str:
    """Return a warning with the title of the metric that m3b measured on validation cases, not its canonical name."""
    return MEASURED_PATTERN.sub(lambda match: f"{match[1]}{metric_title(match[2])} ", warning)
