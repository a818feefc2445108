"""One self-contained page about how a folder would be read: examples with overlays, what is left out, other readings."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.models.opened import Example, Examples

from .markup import Html, facts, join, section, table, tag
from .words import brief

MAX_PNG = 4 * 2**20
MOST_COLOURS = 40
STYLE = (
    ".legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;padding:0}"
    ".cases{display:grid;grid-template-columns:repeat(auto-fill,minmax(280px,1fr));gap:18px;align-items:start}"
    ".cases figure{margin:0;max-width:560px}.cases figcaption{overflow-wrap:anywhere}td{overflow-wrap:anywhere}"
    ".cases img{display:block;max-width:100%;background:#121418}.cases pre{white-space:pre-wrap;margin:4px 0}"
)


def plan_page(request: str, plan: Mapping[str, Any], drawn: Examples | None = None) -> str:
    """The page as text. Its pictures are patient data: for the machine on which it was made.

    Args:
        plan: `task`, `readings` (best first), `insufficient`, and `counted` of the best.
        drawn: examples as `m3b.models.examples` draws them; they come from a sandbox and are not trusted.
    """
    css = Path(__file__).with_name("style.css").read_text(encoding="utf-8") + STYLE
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", "How the data is read - m3b"),
        Html(f"<style>{css}</style>"),
    ]
    readings = list(plan.get("readings") or ())
    best = readings[0] if readings else {}
    main = tag(
        "main",
        _reading(plan, best),
        _examples(drawn) if drawn else None,
        _left_out(plan.get("counted") or {}),
        _others(readings[1:]),
        _spec(best),
    )
    title = tag("header", tag("h1", "How the data is read"), tag("blockquote", brief(request, 2000)))
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', title, main), lang='en')}\n"


def _reading(plan: Mapping[str, Any], best: Mapping[str, Any]) -> Html:
    counted = plan.get("counted") or {}
    known = counted.get("patients") == "known"
    by = str(counted.get("grouped_by") or "")
    who = (
        (f"known{f', by {by}' if by else ''}" if known else "unknown: images of one person may be on both sides")
        if counted
        else ""
    )
    if counted and not known and by:
        who += f" (kept together by {by})"
    pairs = [
        ("Task", plan.get("task")), ("Score", best.get("score")),
        ("Cases for training", counted.get("train")), ("Cases for testing", counted.get("test")), ("Patients", who),
    ]  # fmt: skip
    shown = [(name, brief(value, 400)) for name, value in pairs if value not in (None, "")]
    items = [tag("li", brief(one, 400)) for one in best.get("evidence") or ()]
    doubts = [
        tag("li", tag("span", "doubt", class_="badge warn"), " ", brief(one, 400)) for one in best.get("doubts") or ()
    ]
    question = plan.get("insufficient")
    asked = tag("p", tag("span", "To be decided", class_="badge bad"), " ", brief(question, 1000)) if question else None
    listed = tag("ul", *items, *doubts) if items or doubts else None
    title = tag("p", tag("strong", brief(best["title"], 400))) if best.get("title") else None
    return section("reading", "Reading", asked, title, facts(shown), listed)


def _examples(drawn: Examples) -> Html:
    figures = [_figure(one) for one in drawn.cases]
    note = tag("p", "Pictures of patients: this page is for the machine on which it was made.", class_="quiet")
    shown = tag("div", *figures, class_="cases")
    return section("examples", "Examples", note, _legend(drawn.legend), shown) if figures else Html("")


def _legend(colours: Sequence[tuple[str, str]]) -> Html | None:
    """What colour each class is drawn in; of very many the first."""
    named = [
        tag("li", _square(colour), " ", brief(name, 80))
        for name, colour in colours[:MOST_COLOURS] if re.fullmatch("#[0-9a-f]{6}", colour)
    ]  # fmt: skip
    more = [tag("li", f"and {len(colours) - MOST_COLOURS} more")] if len(colours) > MOST_COLOURS else []
    return tag("ul", *named, *more, class_="legend") if named else None


def _square(colour: str) -> Html:
    return tag("svg", tag("rect", width=12, height=12, fill=colour), width=12, height=12, aria_hidden="true")


def _figure(one: Example) -> Html:
    said = " · ".join(brief(text, 200) for text in (one.side, one.labels, one.name) if text)
    if is_png(one.png):
        shown = tag("img", src=f"data:image/png;base64,{one.png}", alt=said)
    else:
        shown = tag("p", brief(one.error or "not drawn", 300), class_="quiet")
    return tag("figure", shown, tag("figcaption", said), tag("pre", brief(one.text, 700)) if one.text else None)


def is_png(text: Any) -> bool:
    """Whether a text is the base64 of a PNG file."""
    if not isinstance(text, str) or len(text) > MAX_PNG:
        return False
    try:
        return base64.b64decode(text, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    except (binascii.Error, ValueError):
        return False


def _left_out(counted: Mapping[str, Any]) -> Html:
    accounting = counted.get("accounting") or {}
    used = [(f"{count:,}", f"used as {what}") for what, count in (accounting.get("used") or {}).items()]
    left = [
        (
            f"{one['files']:,}",
            f"left out: {brief(one['reason'], 300)}",
            ", ".join(brief(e, 80) for e in one["examples"][:3]),
        )
        for one in accounting.get("left_out") or ()
    ]
    rows = [*((*one, "") for one in used), *left]
    notes = tag("ul", *(tag("li", brief(note, 400)) for note in counted["notes"])) if counted.get("notes") else None
    shown = table(("Files", "What became of them", "Such as"), rows, numbers=False) if rows else None
    return section("files", "Every file", shown, notes)


def _others(readings: Sequence[Mapping[str, Any]]) -> Html:
    items = [
        join(
            tag("h3", f"{brief(one.get('title'), 300)} (score {one.get('score')})"),
            tag(
                "ul",
                *(tag("li", brief(text, 300)) for text in (*(one.get("evidence") or ()), *(one.get("doubts") or ()))),
            ),
        )
        for one in readings
    ]
    return section("others", "Readings that were not taken", *items) if items else Html("")


def _spec(best: Mapping[str, Any]) -> Html:
    if not best.get("spec"):
        return Html("")
    text = json.dumps(best["spec"], indent=1, ensure_ascii=False)
    how = "To change it, save this as JSON, edit it, and give it back with --index FILE."
    return section(
        "spec", "The reading as JSON", tag("p", how), tag("details", tag("summary", "JSON"), tag("pre", text))
    )
