"""A self-contained page about a manifest: examples with overlays, excluded files, and other proposals."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.markup.formatting import shorten
from m3b.markup.html import Html, definition_list, join_html, section, table, tag
from m3b.models.image_jobs import ExampleCase, ExampleCases

MAX_PNG_CHARS = 4 * 2**20
MAX_LEGEND_ENTRIES = 40
EXTRA_STYLE = (
    ".legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;padding:0}"
    ".cases{display:grid;grid-template-columns:repeat(auto-fill,minmax(280px,1fr));gap:18px;align-items:start}"
    ".cases figure{margin:0;max-width:560px}.cases figcaption{overflow-wrap:anywhere}td{overflow-wrap:anywhere}"
    ".cases img{display:block;max-width:100%;background:#121418}.cases pre{white-space:pre-wrap;margin:4px 0}"
)


def render_manifest_page(request: str, page_facts: Mapping[str, Any], examples: ExampleCases | None = None) -> str:
    """Return the page as text. Its pictures are patient data: it must stay on the machine on which it was made.

    Args:
        page_facts: `task`, `proposals` (best first), `insufficient`, and `counts` of the best.
        examples: examples as `m3b.models.example_images` draws them; they come from a sandbox and are not trusted.
    """
    css = Path(__file__).with_name("static").joinpath("style.css").read_text(encoding="utf-8") + EXTRA_STYLE
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
    proposals = list(page_facts.get("proposals") or ())
    best = proposals[0] if proposals else {}
    main = tag(
        "main",
        _render_proposal(page_facts, best),
        _render_examples(examples) if examples else None,
        _render_accounting(page_facts.get("counts") or {}),
        _render_rivals(proposals[1:]),
        _render_manifest_json(best),
    )
    title = tag("header", tag("h1", "How the data is read"), tag("blockquote", shorten(request, 2000)))
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', title, main), lang='en')}\n"


def _render_proposal(page_facts: Mapping[str, Any], best: Mapping[str, Any]) -> Html:
    counts = page_facts.get("counts") or {}
    patients_known = counts.get("patients") == "known"
    grouped_by = str(counts.get("grouped_by") or "")
    patients_text = (
        (
            f"known{f', by {grouped_by}' if grouped_by else ''}"
            if patients_known
            else "unknown: images of one person may be on both sides"
        )
        if counts
        else ""
    )
    if counts and not patients_known and grouped_by:
        patients_text += f" (kept together by {grouped_by})"
    pairs = [
        ("Task", page_facts.get("task")), ("Score", best.get("score")),
        ("Cases for training", counts.get("train")), ("Cases for testing", counts.get("test")), ("Patients", patients_text),
    ]  # fmt: skip
    fact_rows = [(name, shorten(value, 400)) for name, value in pairs if value not in (None, "")]
    items = [tag("li", shorten(sentence, 400)) for sentence in best.get("evidence") or ()]
    doubts = [
        tag("li", tag("span", "doubt", class_="badge warn"), " ", shorten(sentence, 400))
        for sentence in best.get("doubts") or ()
    ]
    question = page_facts.get("insufficient")
    open_question = (
        tag("p", tag("span", "To be decided", class_="badge bad"), " ", shorten(question, 1000)) if question else None
    )
    evidence_list = tag("ul", *items, *doubts) if items or doubts else None
    title = tag("p", tag("strong", shorten(best["title"], 400))) if best.get("title") else None
    return section("proposal", "Manifest", open_question, title, definition_list(fact_rows), evidence_list)


def _render_examples(examples: ExampleCases) -> Html:
    figures = [_render_example(example) for example in examples.cases]
    note = tag("p", "Pictures of patients: this page is for the machine on which it was made.", class_="quiet")
    grid = tag("div", *figures, class_="cases")
    return section("examples", "Examples", note, _render_legend(examples.legend), grid) if figures else Html("")


def _render_legend(colours: Sequence[tuple[str, str]]) -> Html | None:
    """Return the colour of each class, for the first `MAX_LEGEND_ENTRIES` classes."""
    entries = [
        tag("li", _draw_swatch(colour), " ", shorten(name, 80))
        for name, colour in colours[:MAX_LEGEND_ENTRIES] if re.fullmatch("#[0-9a-f]{6}", colour)
    ]  # fmt: skip
    truncation_note = (
        [tag("li", f"and {len(colours) - MAX_LEGEND_ENTRIES} more")] if len(colours) > MAX_LEGEND_ENTRIES else []
    )
    return tag("ul", *entries, *truncation_note, class_="legend") if entries else None


def _draw_swatch(colour: str) -> Html:
    return tag("svg", tag("rect", width=12, height=12, fill=colour), width=12, height=12, aria_hidden="true")


def _render_example(example: ExampleCase) -> Html:
    caption = " · ".join(shorten(text, 200) for text in (example.split, example.labels, example.name) if text)
    if is_png(example.png):
        picture = tag("img", src=f"data:image/png;base64,{example.png}", alt=caption)
    else:
        picture = tag("p", shorten(example.error or "not drawn", 300), class_="quiet")
    return tag(
        "figure", picture, tag("figcaption", caption), tag("pre", shorten(example.text, 700)) if example.text else None
    )


def is_png(text: Any) -> bool:
    """Return whether a text is the base64 of a PNG file."""
    if not isinstance(text, str) or len(text) > MAX_PNG_CHARS:
        return False
    try:
        return base64.b64decode(text, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    except (binascii.Error, ValueError):
        return False


def _render_accounting(counts: Mapping[str, Any]) -> Html:
    accounting = counts.get("accounting") or {}
    used_rows = [(f"{count:,}", f"used as {use}") for use, count in (accounting.get("used") or {}).items()]
    excluded_rows = [
        (
            f"{entry['files']:,}",
            f"left out: {shorten(entry['reason'], 300)}",
            ", ".join(shorten(example, 80) for example in entry["examples"][:3]),
        )
        for entry in accounting.get("left_out") or ()
    ]
    rows = [*((*entry, "") for entry in used_rows), *excluded_rows]
    notes = tag("ul", *(tag("li", shorten(note, 400)) for note in counts["notes"])) if counts.get("notes") else None
    file_table = table(("Files", "Use", "Examples"), rows, numbers=False) if rows else None
    return section("files", "Every file", file_table, notes)


def _render_rivals(proposals: Sequence[Mapping[str, Any]]) -> Html:
    items = [
        join_html(
            tag("h3", f"{shorten(proposal.get('title'), 300)} (score {proposal.get('score')})"),
            tag(
                "ul",
                *(
                    tag("li", shorten(text, 300))
                    for text in (*(proposal.get("evidence") or ()), *(proposal.get("doubts") or ()))
                ),
            ),
        )
        for proposal in proposals
    ]
    return section("others", "Other manifest proposals", *items) if items else Html("")


def _render_manifest_json(best: Mapping[str, Any]) -> Html:
    if not best.get("manifest"):
        return Html("")
    text = json.dumps(best["manifest"], indent=1, ensure_ascii=False)
    instructions = "To change it, save this as JSON, edit it, and pass it with --manifest FILE."
    return section(
        "manifest",
        "The manifest as JSON",
        tag("p", instructions),
        tag("details", tag("summary", "JSON"), tag("pre", text)),
    )
