"""A self-contained page about a manifest: examples with overlays, excluded files, and other proposals."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from m3b.markup.formatting import shorten
from m3b.models.image_jobs import ExampleCases
from m3b.report.page_template import REPORT_SCRIPT, render_page

MAX_PNG_CHARS = 4 * 2**20


def render_manifest_page(request: str, page_facts: Mapping[str, Any], examples: ExampleCases | None = None) -> str:
    """Return the page as text. Its pictures are patient data: it must stay on the machine on which it was made.

    Args:
        page_facts: `task`, `proposals` (best first), `insufficient`, `assumptions`, and `counts` of the best.
        examples: examples as `m3b.models.example_images` draws them; they come from a sandbox and are not trusted.
    """
    values = collect_manifest_values(request, page_facts, examples)
    return render_page("manifest.html", scripts=(REPORT_SCRIPT,), **values)


def collect_manifest_values(
    request: str, page_facts: Mapping[str, Any], examples: ExampleCases | None = None
) -> dict[str, Any]:
    """Return the values of `manifest.html`; see `render_manifest_page`."""
    proposals = list(page_facts.get("proposals") or ())
    best = dict(proposals[0]) if proposals else {}
    counts = page_facts.get("counts") or {}
    facts = [
        ("Task", page_facts.get("task")), ("Score", best.get("score")), ("Cases for training", counts.get("train")),
        ("Cases for testing", counts.get("test")), ("Patients", _describe_patients(counts) if counts else ""),
    ]  # fmt: skip
    question, manifest = page_facts.get("insufficient"), best.get("manifest")
    return {
        "request": shorten(request, 2000),
        "question": shorten(question, 1000) if question else "",
        "assumptions": [shorten(text, 400) for text in page_facts.get("assumptions") or ()],
        "best": {"title": "", "evidence": (), "doubts": (), **best},
        "fact_rows": [(name, shorten(value, 400)) for name, value in facts if value not in (None, "")],
        "class_rows": _list_class_rows(counts),
        "examples": _list_examples(examples) if examples else [],
        "legend": [entry for entry in examples.legend if re.fullmatch("#[0-9a-f]{6}", entry[1])] if examples else [],
        "file_rows": _list_file_rows(counts),
        "notes": [shorten(note, 400) for note in counts.get("notes") or ()],
        "others": [_describe_proposal(proposal) for proposal in proposals[1:]],
        "manifest_json": json.dumps(manifest, indent=1, ensure_ascii=False) if manifest else "",
    }


def _describe_patients(counts: Mapping[str, Any]) -> str:
    grouped_by = str(counts.get("grouped_by") or "")
    if counts.get("patients") == "known":
        return f"known{f', by {grouped_by}' if grouped_by else ''}"
    note = f" (kept together by {grouped_by})" if grouped_by else ""
    return f"unknown: images of one person may be on both sides{note}"


def _list_examples(examples: ExampleCases) -> list[dict[str, str]]:
    """Return the examples with their pictures as data URIs; what is no PNG is left out."""
    return [
        {
            "split": example.split,
            "labels": example.labels,
            "name": example.name,
            "text": example.text,
            "error": example.error,
            "png": f"data:image/png;base64,{example.png}" if is_png(example.png) else "",
        }
        for example in examples.cases
    ]


def is_png(text: Any) -> bool:
    """Return whether a text is the base64 of a PNG file."""
    if not isinstance(text, str) or len(text) > MAX_PNG_CHARS:
        return False
    try:
        return base64.b64decode(text, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    except (binascii.Error, ValueError):
        return False


def _list_class_rows(counts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each class with its training and test cases."""
    training, testing = ((counts.get("class_counts") or {}).get(part) or {} for part in ("train", "test"))
    return [
        (shorten(name, 120), f"{training.get(name, 0):,}", f"{testing.get(name, 0):,}")
        for name in dict.fromkeys((*training, *testing))
    ]


def _list_file_rows(counts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    accounting = counts.get("accounting") or {}
    used_rows = [(f"{count:,}", f"used as {use}", "") for use, count in (accounting.get("used") or {}).items()]
    excluded_rows = [
        (
            f"{entry['files']:,}",
            f"left out: {shorten(entry['reason'], 300)}",
            ", ".join(shorten(example, 80) for example in entry["examples"][:3]),
        )
        for entry in accounting.get("left_out") or ()
    ]
    return [*used_rows, *excluded_rows]


def _describe_proposal(proposal: Mapping[str, Any]) -> dict[str, Any]:
    sentences = (*(proposal.get("evidence") or ()), *(proposal.get("doubts") or ()))
    description = {"title": str(proposal.get("title", "")), "sentences": [shorten(text, 300) for text in sentences]}
    return description | ({"score": proposal["score"]} if "score" in proposal else {})
