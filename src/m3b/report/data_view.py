"""What the report shows of the data: counts, the audit, exclusions, and what m3b assumed about the folder."""

from __future__ import annotations

import json
from typing import Any

from m3b.markup.formatting import format_count, shorten
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.report.run_files import RunFiles

SEVERITY_BADGES = {"reject": ("Rejects the data", "bad"), "fix": ("Has to be fixed", "warn"), "warn": ("Note", "calm")}
MAX_PATH_CHARS = 50
EXCLUSION_WORDS = ("left out", "not in it", "not in the folder", "dropped")
"""Words of the sentences on the index that state an exclusion."""


def list_count_rows(audit: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of cases by class and split, and the patients."""
    counts = {split: as_dict(split_counts) for split, split_counts in as_dict(audit.get("counts")).items()}
    names = list(dict.fromkeys(name for split_counts in counts.values() for name in split_counts))
    rows = [
        [shorten(name, 80), *(format_count(split_counts.get(name, 0)) for split_counts in counts.values())]
        for name in names
    ]
    totals = as_dict(audit.get("split"))
    if len(rows) > 1 and all(to_finite_number(totals.get(split)) is not None for split in counts):
        rows.append(["all cases", *(format_count(totals[split]) for split in counts)])
    patients = as_dict(audit.get("patients"))
    if rows and patients:
        is_known = audit.get("patients_known", True)
        rows.append(["patients", *(format_count(patients.get(split)) if is_known else "unknown" for split in counts)])
    return ["Cases", *(shorten(split, 40) for split in counts)], rows


def list_data_facts(audit: dict[str, Any]) -> list[tuple[str, str]]:
    """Return how many images the audit opened, and their shapes."""
    facts = []
    if to_finite_number(audit.get("cases")) is not None:
        opened_text = f"{format_count(audit.get('opened'))} of {format_count(audit.get('cases'))} images"
        facts.append(("Opened by the audit", opened_text))
    shapes = [f"{shorten(shape, 40)} ({format_count(n)})" for shape, n in as_dict(audit.get("shapes")).items()]
    rest_text = f" and {len(shapes) - 4} more" if len(shapes) > 4 else ""
    return [*facts, *([("Shapes (cases)", ", ".join(shapes[:4]) + rest_text)] if shapes else [])]


def list_origin_facts(files: RunFiles) -> list[tuple[str, str]]:
    """Return where mirrored data comes from, with the number of files and the id of their state."""
    facts = []
    for card in map(as_dict, as_list(files.record.get("data"))):
        origin = as_dict(card.get("origin"))
        if origin:
            count = f"{format_count(origin.get('n_files'))} files, snapshot {shorten(origin.get('snapshot'), 40)}"
            facts.append(("Mirrored from", f"{shorten(origin.get('url'), 200)} ({count})"))
    return facts


def list_findings(audit: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings of the audit with their badge and some cases."""
    findings = []
    for item in map(as_dict, as_list(audit.get("findings"))):
        weight = item.get("weight")
        label, tone = SEVERITY_BADGES.get(weight, (weight, "calm")) if isinstance(weight, str) else ("Note", "calm")
        cases = ", ".join(_shorten_path(case) for case in as_list(item.get("cases"))[:4])
        findings.append({"label": label, "tone": tone, "text": shorten(item.get("message", ""), 600), "cases": cases})
    return findings


def _shorten_path(case: Any) -> str:
    """Return the end of a path, which tells one file from the others."""
    text = shorten(case, 400)
    return text if len(text) <= MAX_PATH_CHARS else f"…{text[1 - MAX_PATH_CHARS :]}"


def list_index_notes(files: RunFiles) -> tuple[list[str], list[str]]:
    """Return the sentences of the accepted index: on how it was made, and on exclusions."""
    artifacts = [as_dict(event.get("data")) for event in files.events if event.get("kind") == "artifact"]
    indexes = [as_dict(artifact.get("value")) for artifact in artifacts if artifact.get("artifact") == "index"]
    sentences = [shorten(line, 400) for line in as_list(indexes[-1].get("read"))] if indexes else []
    exclusions = [text for text in sentences if any(words in text for words in EXCLUSION_WORDS)]
    return [text for text in sentences if text not in exclusions], exclusions


def list_assumptions(files: RunFiles) -> list[tuple[str, bool]]:
    """Return the evidence for the first manifest proposal and its doubts, as (sentence, is it a doubt)."""
    best = files.proposals[0] if files.proposals else {}
    evidence = [(shorten(text, 400), False) for text in as_list(best.get("evidence"))]
    return [*evidence, *((shorten(text, 400), True) for text in as_list(best.get("doubts")))]


def format_manifest(files: RunFiles) -> str:
    """Return the accepted manifest as JSON; empty if there is none."""
    return json.dumps(files.manifest, indent=1, ensure_ascii=False) if files.manifest else ""
