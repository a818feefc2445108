"""The page about a run: self-contained, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from m3b.markup.formatting import format_time, shorten
from m3b.markup.html import Html, tag
from m3b.markup.json_values import as_dict, as_list
from m3b.report import figure_sections, run_sections
from m3b.report.run_files import RunFiles, read_run_files
from m3b.report.timeline import render_timeline_section
from m3b.writing import write_text_atomically

STATUS_LABELS = {
    "completed": ("Completed", "good"),
    "below_range": ("Model not accepted", "warn"),
    "no_dataset": ("No fitting data set", "warn"),
    "rejected_data": ("Data rejected", "bad"),
    "out_of_budget": ("Budget spent", "warn"),
    "failed": ("Failed", "bad"),
    "cancelled": ("Cancelled", "warn"),
    "running": ("Still running", "calm"),
}


def make_page_title(files: RunFiles) -> str:
    """Return a title such as `Classifier of clear or opacity, made from chest-xrays`; without a model, the request."""
    task = files.result.get("task")
    if not files.delivered_files or not isinstance(task, str):
        request = files.record.get("request") or files.result.get("request")
        return f"Asked for: {shorten(request, 160)}" if request else "A run of m3b"
    subject = _format_model_title(task, list_class_names(files))
    data = files.result.get("data_card")
    return f"{subject}, made from {shorten(data, 60)}" if data else subject


def _format_model_title(task: str, classes: list[str]) -> str:
    """Return the title of the task's family; a general one if the task is unknown, because its plug-in is missing."""
    from m3b.tasks import get_family, names
    from m3b.tasks.base import join_names

    if task in names():
        return get_family(task).format_title(classes)
    return f"Model of {join_names(classes, 'and')}" if classes else "Model"


def list_class_names(files: RunFiles) -> list[str]:
    """Return the class names of the scores, else of the audit's counts."""
    scored_classes = as_list(files.scores.get("classes"))
    class_counts = as_dict(as_dict(files.audit.get("counts")).get("train"))
    return [shorten(name, 40) for name in scored_classes or class_counts]


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into a run folder, in whatever state the run is, and return its path.

    It reads run.json, journal.jsonl, work/data_audit.json, work/Logout/log.csv, locked/scores.json and model/. Parts
    that are missing, truncated or invalid are left out of the page.

    Raises:
        OSError: the folder cannot be written to.
    """
    page = render_report(read_run_files(run_dir))
    target = run_dir / "report.html"
    write_text_atomically(target, page, errors="replace")
    return target


def render_report(files: RunFiles) -> str:
    """Return the page as text."""
    css = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = make_page_title(files)
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} - m3b"),
        Html(f"<style>{css}</style>"),
    ]
    sections = [
        run_sections.render_request_section(files),
        figure_sections.render_figures_section(files),
        run_sections.render_data_section(files),
        run_sections.render_training_section(files),
        run_sections.render_integrity_section(files),
        run_sections.render_roles_section(files),
        render_timeline_section(files),
        run_sections.render_usage_section(files),
        run_sections.render_delivered_section(files),
        run_sections.render_reproduction_section(files),
        run_sections.render_limitations_section(files),
    ]
    main = tag("main", *sections)
    body = tag("body", _render_header(files, title), main)
    return f"<!doctype html>\n{tag('html', tag('head', *head), body, lang='en')}\n"


def describe_status(status: Any) -> tuple[str, str]:
    """Return label and tone of a status."""
    if isinstance(status, str) and status in STATUS_LABELS:
        return STATUS_LABELS[status]
    return (str(status) if status else "No result yet", "calm")


def _render_header(files: RunFiles, title: str) -> Html:
    result = files.result
    status = result.get("status") or files.record.get("status")
    label, tone = describe_status(status)
    reason = result.get("reason") or files.record.get("reason")
    times = [format_time(event.get("at")) for event in files.events[:1] + files.events[-1:]]
    period = " – ".join(dict.fromkeys(time for time in times if time))
    run_name = f"run {shorten(files.record.get('id') or files.folder.name, 80)}"
    return tag(
        "header",
        tag(
            "p",
            tag("span", label, class_=f"badge large {tone}"),
            tag("span", " · ".join(part for part in (run_name, period) if part), class_="quiet"),
            class_="status",
        ),
        tag("h1", title),
        tag("p", shorten(reason, 1200)) if reason else None,
        figure_sections.render_headline(files),
    )
