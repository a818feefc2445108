"""One self-contained page about a run: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from m3b.writing import write_text_atomically

from . import about, measured
from .gather import RunFiles, read_run_files
from .markup import Html, tag
from .timeline import render_timeline_section
from .title import make_page_title
from .words import describe_status, format_time, shorten


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into a run folder, in whatever state the run is, and return its path.

    Read: run.json, journal.jsonl, work/data_audit.json, work/Logout/log.csv, locked/scores.json and model/. Whatever
    of it is missing, torn or odd is left out of the page.

    Raises:
        OSError: the folder cannot be written to.
    """
    page = render_report(read_run_files(run_dir))
    target = run_dir / "report.html"
    write_text_atomically(target, page, errors="replace")
    return target


def render_report(files: RunFiles) -> str:
    """The page as text."""
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
        about.render_request_section(files),
        measured.render_figures_section(files),
        about.render_data_section(files),
        about.render_training_section(files),
        about.render_integrity_section(files),
        about.render_roles_section(files),
        render_timeline_section(files),
        about.render_usage_section(files),
        about.render_delivered_section(files),
        about.render_reproduction_section(files),
        about.render_limitations_section(files),
    ]
    main = tag("main", *sections)
    body = tag("body", _render_header(files, title), main)
    return f"<!doctype html>\n{tag('html', tag('head', *head), body, lang='en')}\n"


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
        measured.render_headline(files),
    )
