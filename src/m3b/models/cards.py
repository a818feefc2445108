"""What is written beside a delivered model: model card, metrics and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from m3b.writing import write_text_atomically

from .card_figures import (
    answer_format_for,
    escape_markdown,
    format_external_sets,
    format_metrics_section,
    markdown_table,
    sample_size_caveats,
)
from .manifest import PROVENANCE_FILE, hash_files

_STANDARD_LIMITS = (
    "A research model, not a medical device: no decision about a patient may rest on it.",
    "Measured on one test split of the data named above; other scanners, hospitals and populations may differ.",
)


class SupportsToDict(Protocol):
    """What `m3b.metrics.Scores` is to this module."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""


def _format_facts(info: Mapping[str, Any]) -> list[str]:
    keys = (
        "request",
        "task",
        "data",
        "patients",
        "grouped by",
        "classes",
        "channels",
        "given beside the image",
        "network",
        "training",
        "integrity",
        "seed",
        "made",
    )
    rows = []
    for key in keys:
        value = info.get(key)
        if value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{name}: {item}" for name, item in value.items())
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        rows.append((key.capitalize(), value))
    return ["## What it is", "", *markdown_table(("", ""), rows)] if rows else []


def _format_split(info: Mapping[str, Any]) -> list[str]:
    split = info.get("split")
    if not isinstance(split, Mapping) or not split:
        return []
    names = sorted({name for counts in split.values() if isinstance(counts, Mapping) for name in counts})
    if not names:
        return []
    rows = [
        (part, *(counts.get(name, 0) for name in names))
        for part, counts in split.items()
        if isinstance(counts, Mapping)
    ]
    return ["## Cases", "", *markdown_table(("split", *map(escape_markdown, names)), rows)]


_USAGE_TEMPLATE = """## Use

    pip install -r requirements.txt
    python predict.py {images} -o predictions.json

{answer} The folder needs nothing outside itself; weights are safetensors.
"""


_CHANNELS_NOTE = (
    "A case is {number} images by name; those after the first are put on the grid of {first}, "
    "and a missing one is an error. "
)


_COVARIATES_NOTE = (
    "The model is given {names} beside the image; `NAME=` stands for one that is not known, and a missing one is an error. "
    'In a `--list` a case is `{{"image": ..., "NAME": value or null}}`. '
)


def _format_usage(info: Mapping[str, Any]) -> str:
    names = [str(name) for name in info.get("channels") or ()]
    images = " ".join(f"{escape_markdown(name)}=IMAGE" for name in names) if names else "IMAGE..."
    covariate_names = [str(name).split(" (")[0] for name in info.get("given beside the image") or ()]
    images += (
        " --with " + " ".join(f"{escape_markdown(name)}=VALUE" for name in covariate_names) if covariate_names else ""
    )
    input_notes = _CHANNELS_NOTE.format(number=len(names), first=escape_markdown(names[0])) if names else ""
    input_notes += _COVARIATES_NOTE.format(names=escape_markdown(", ".join(covariate_names))) if covariate_names else ""
    return _USAGE_TEMPLATE.replace("{images}", images).replace(
        "{answer}", input_notes + answer_format_for(info.get("task")).usage
    )


def _count_patients(info: Mapping[str, Any], split: str) -> int | None:
    """Patients of a split, where `patients` tells them apart."""
    patients = info.get("patients")
    count = patients.get(split) if isinstance(patients, Mapping) else None
    return count if isinstance(count, int) else None


def write_model_card(folder: Path, info: Mapping[str, Any]) -> Path:
    """Write README.md.

    Args:
        info: any of `title`, `summary`, `request`, `task`, `data`, `patients`, `classes`, `channels`, `network`, `training`,
            `integrity`, `seed`, `made` (text, list or mapping), `split` ({split: {class: cases}}), `scores`
            (`Scores.to_dict()`), `acceptable` ([low, high or None]), `verdict` (text), `limits` (list of text),
            `less_is_better` (names of metrics), `external` (list of `ExternalResult.to_dict()`).
    """
    lines = [f"# {escape_markdown(info.get('title') or 'A model made by m3b')}", ""]
    if info.get("summary"):
        lines += [escape_markdown(info["summary"]), ""]
    lines += (
        _format_facts(info)
        + _format_split(info)
        + format_metrics_section(info.get("scores") or {}, info.get("less_is_better") or ())
    )
    lines += format_external_sets(info.get("external") or ())
    if info.get("acceptable"):
        low, high = info["acceptable"]
        lines += [f"Acceptable range: {low:g} to {high:g}." if high is not None else f"Acceptable from {low:g}.", ""]
    if info.get("verdict"):
        lines += [f"Verdict: {escape_markdown(info['verdict'])}", ""]
    caveats = sample_size_caveats(info.get("scores") or {}, _count_patients(info, "train"))
    limits = [*caveats, *(info.get("limits") or ()), *_STANDARD_LIMITS]
    lines += [_format_usage(info), "## Limits", "", *(f"- {escape_markdown(limit)}" for limit in limits), ""]
    write_text_atomically(folder / "README.md", "\n".join(lines))
    return folder / "README.md"


def write_metrics(folder: Path, scores: SupportsToDict | Mapping[str, Any]) -> Path:
    """Write metrics.json: `Scores.to_dict()`, from the scores or as a mapping."""
    content = dict(scores) if isinstance(scores, Mapping) else scores.to_dict()
    write_text_atomically(
        folder / "metrics.json", json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )
    return folder / "metrics.json"


def write_provenance(folder: Path, info: Mapping[str, Any]) -> Path:
    """Write provenance.json: `info`, and under `files` the SHA-256 of every other file of the folder.

    Raises:
        ValueError: `info` holds NaN or infinity, which JSON cannot.
    """
    provenance_file = folder / PROVENANCE_FILE
    content = {**info, "files": hash_files(folder)}
    write_text_atomically(
        provenance_file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    )
    return provenance_file
