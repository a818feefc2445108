"""What is written beside a delivered model: model card, metrics and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from m3b.writing import replace_text

from .card_figures import answers_of, escaped, external_sets, measured, table, worth
from .manifest import MANIFEST, hashes_of

_STANDARD_LIMITS = (
    "A research model, not a medical device: no decision about a patient may rest on it.",
    "Measured on one test split of the data named above; other scanners, hospitals and populations may differ.",
)


class HasDict(Protocol):
    """What `m3b.metrics.Scores` is to this module."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""


def _facts(info: Mapping[str, Any]) -> list[str]:
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
    return ["## What it is", "", *table(("", ""), rows)] if rows else []


def _split(info: Mapping[str, Any]) -> list[str]:
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
    return ["## Cases", "", *table(("split", *map(escaped, names)), rows)]


_USAGE_TEMPLATE = """## Use

    pip install -r requirements.txt
    python predict.py {images} -o predictions.json

{answer} The folder needs nothing outside itself; weights are safetensors.
"""


_NAMED = "A case is {number} images by name; those after the first are put on the grid of {first}, and a missing one is an error. "


_BESIDE = (
    "The model is given {names} beside the image; `NAME=` stands for one that is not known, and a missing one is an error. "
    'In a `--list` a case is `{{"image": ..., "NAME": value or null}}`. '
)


def _format_usage(info: Mapping[str, Any]) -> str:
    names = [str(name) for name in info.get("channels") or ()]
    images = " ".join(f"{escaped(name)}=IMAGE" for name in names) if names else "IMAGE..."
    covariate_names = [str(name).split(" (")[0] for name in info.get("given beside the image") or ()]
    images += " --with " + " ".join(f"{escaped(name)}=VALUE" for name in covariate_names) if covariate_names else ""
    input_notes = _NAMED.format(number=len(names), first=escaped(names[0])) if names else ""
    input_notes += _BESIDE.format(names=escaped(", ".join(covariate_names))) if covariate_names else ""
    return _USAGE_TEMPLATE.replace("{images}", images).replace(
        "{answer}", input_notes + answers_of(info.get("task")).use
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
            `less_is_better` (names of metrics), `external` (list of `ExternalSet.to_dict()`).
    """
    lines = [f"# {escaped(info.get('title') or 'A model made by m3b')}", ""]
    if info.get("summary"):
        lines += [escaped(info["summary"]), ""]
    lines += _facts(info) + _split(info) + measured(info.get("scores") or {}, info.get("less_is_better") or ())
    lines += external_sets(info.get("external") or ())
    if info.get("acceptable"):
        low, high = info["acceptable"]
        lines += [f"Acceptable range: {low:g} to {high:g}." if high is not None else f"Acceptable from {low:g}.", ""]
    if info.get("verdict"):
        lines += [f"Verdict: {escaped(info['verdict'])}", ""]
    caveats = worth(info.get("scores") or {}, _count_patients(info, "train"))
    limits = [*caveats, *(info.get("limits") or ()), *_STANDARD_LIMITS]
    lines += [_format_usage(info), "## Limits", "", *(f"- {escaped(limit)}" for limit in limits), ""]
    replace_text(folder / "README.md", "\n".join(lines))
    return folder / "README.md"


def write_metrics(folder: Path, scores: HasDict | Mapping[str, Any]) -> Path:
    """Write metrics.json: `Scores.to_dict()`, from the scores or as a mapping."""
    content = dict(scores) if isinstance(scores, Mapping) else scores.to_dict()
    replace_text(folder / "metrics.json", json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return folder / "metrics.json"


def write_provenance(folder: Path, info: Mapping[str, Any]) -> Path:
    """Write provenance.json: `info`, and under `files` the SHA-256 of every other file of the folder.

    Raises:
        ValueError: `info` holds NaN or infinity, which JSON cannot.
    """
    provenance_file = folder / MANIFEST
    content = {**info, "files": hashes_of(folder)}
    replace_text(
        provenance_file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    )
    return provenance_file
