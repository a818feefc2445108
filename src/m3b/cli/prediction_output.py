"""Predictions for people and spreadsheets: lines on a terminal, rows of a table, entries of predictions.json."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from m3b.models import Prediction
    from m3b.models.thresholds import Threshold

Entry = dict[str, Any]
VALUE_FIELDS = ("value", "interval", "interval_level", "risk", "survival", "median")
RELIABILITY_COLUMNS = ("out_of_distribution", "why", "abstains")


def to_entry(prediction: Prediction, folder: Path | None, overlay: Path | None) -> Entry:
    """Return a prediction as JSON, with files relative to the output folder; without a folder, files are omitted."""
    from m3b.models.prediction_store import relative_to, with_relative_files

    entry = with_relative_files(prediction, folder)
    if overlay is not None and folder is not None:
        entry["overlay"] = relative_to(overlay, folder)
    return entry


def format_entry(entry: Entry, n_hidden: int, threshold: Threshold) -> str:
    """Return a prediction as a line.

    Args:
        n_hidden: number of boxes below the threshold.
    """
    from m3b.data.records import paths_of

    first_path, *other_paths = paths_of(entry["image"])
    case_name = f"{first_path} and {len(other_paths)} more" if other_paths else first_path
    if entry.get("error"):
        return f"{case_name}: not predicted: {entry['error'].removeprefix(f'{first_path}: ')}"
    parts = [f"OUT OF DISTRIBUTION: {entry['why']}"] if entry.get("out_of_distribution") else []
    parts += [f"image: {'; '.join(entry['notes'])}"] if entry.get("notes") else []
    if "probabilities" in entry:
        values = ", ".join(f"{name}: {value:.3f}" for name, value in entry["probabilities"].items())
        parts.append(f"{', '.join(entry['prediction']) or 'none'} ({values})")
    if entry.get("abstains"):
        parts.append(f"abstains: {', '.join(entry['prediction_set']) or 'no class'} at {entry['set_level']:.0%}")
    if "value" in entry:
        parts.append(format_value_with_interval(entry))
    if "risk" in entry:
        median_text = (
            f"median {entry['median']:.4g}"
            if entry.get("median") is not None
            else f"median beyond {entry['survival'][-1][0]:g}"
        )
        parts.append(f"risk {entry['risk']:.3f} ({median_text})")
    volumes = {name: value for name, value in entry.get("volumes_ml", {}).items() if value is not None}
    if volumes:
        parts.append(", ".join(f"{name}: {value:.2f} ml" for name, value in volumes.items()))
    if "anomaly_score" in entry:
        parts.append(f"anomaly score {entry['anomaly_score']:.3f}")
    if "boxes" in entry:
        parts.append(_format_boxes(entry["boxes"], n_hidden, threshold))
    for part in ("findings", "impression"):
        if entry.get(part):
            parts.append(f"{part}: {entry[part]}")
    if "mask" in entry:
        parts.append(entry["mask"])
    parts += [f"{name} {value}" for name, value in _select_custom_fields(entry).items() if name not in VALUE_FIELDS]
    return f"{case_name}: {'; '.join(parts) or 'nothing found'}"


def _format_boxes(boxes: list[dict[str, Any]], n_hidden: int, threshold: Threshold) -> str:
    """Return the number of boxes of each class, and how many were left out."""
    counts = Counter(box["label"] for box in boxes)
    text = ", ".join(f"{name}: {count}" for name, count in counts.most_common()) or "no box"
    limit = "the thresholds" if isinstance(threshold, Mapping) else f"a score of {threshold:g}"
    return f"{text} ({n_hidden} below {limit})" if n_hidden else text


def format_value_with_interval(entry: Entry) -> str:
    """Return text such as `131.4 (90 % interval 112.0 to 150.8)`."""
    if "interval" not in entry:
        return f"{entry['value']:.4g}"
    low, high = entry["interval"]
    return f"{entry['value']:.4g} ({entry.get('interval_level', 0):.0%} interval {low:.4g} to {high:.4g})"


def _select_custom_fields(entry: Entry) -> Entry:
    """Return the fields of a prediction that a task family of the user added."""
    from m3b.models import Prediction

    return {
        name: value
        for name, value in entry.items()
        if name not in (*Prediction.__dataclass_fields__, "overlay", "dicom")
    }


def describe_written_files(entries: list[Entry]) -> str:
    """Return which files were written now; older files with other names are kept."""
    from m3b.models.prediction_store import PREDICTIONS_FILE

    masks = {file for entry in entries for file in (entry.get("mask"), *entry.get("masks", {}).values()) if file}
    maps = {entry["saliency"]["map"] for entry in entries if "saliency" in entry}
    overlays = {entry["overlay"] for entry in entries if "overlay" in entry}
    dicom_files = {file for entry in entries for file in entry.get("dicom", ())}
    file_counts = (
        ("masks", len(masks)),
        ("saliency", len(maps)),
        ("overlays", len(overlays)),
        ("dicom", len(dicom_files)),
    )
    return ", ".join([PREDICTIONS_FILE, *(f"{count} in {name}/" for name, count in file_counts if count)])


def write_table(entries: list[Entry], file: Path) -> None:
    """Write predictions as CSV: a row for each image, or for each box of a detector."""
    import csv

    from m3b.isolation.untrusted import write_atomic
    from m3b.writing import csv_cell

    has_boxes = any("boxes" in entry for entry in entries)
    rows = [row for entry in entries for row in (_to_box_rows(entry) if has_boxes else [_to_row(entry)])]
    last_columns = ["error"] if has_boxes else ["prediction", "error"]
    names = list(dict.fromkeys(name for row in rows for name in row if name not in last_columns))
    names = [*names, *last_columns]
    if has_boxes:
        names = sorted(names, key=lambda name: _BOX_COLUMNS.index(name) if name in _BOX_COLUMNS else len(_BOX_COLUMNS))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(map(csv_cell, names))
    writer.writerows([csv_cell(row.get(name, "")) for name in names] for row in rows)
    write_atomic(file.parent.resolve(), file.name, stream.getvalue().encode("utf-8", "backslashreplace"))


_BOX_COLUMNS = ("image", "class", "score", "x0", "y0", "z0", "x1", "y1", "z1")
"""Columns of a detector's table: corners in the coordinates of the image file; z only for volumes."""


def _to_box_rows(entry: Entry) -> list[Entry]:
    """Return a row for each box; an image without one has a row without class."""
    from m3b.data.records import paths_of

    shared_cells = {"image": "|".join(paths_of(entry["image"])), "error": entry.get("error", "")}
    shared_cells |= {key: entry[key] for key in ("anomaly_score", *RELIABILITY_COLUMNS) if key in entry}
    rows = []
    for box in entry.get("boxes", ()):
        axes = "xyz"[: len(box["box"]) // 2]
        corners = dict(zip([f"{axis}{end}" for end in (0, 1) for axis in axes], box["box"], strict=True))
        rows.append({**shared_cells, "class": box["label"], "score": box["score"], **corners})
    return rows or [{**shared_cells, "class": "", "score": "", "x0": "", "y0": "", "x1": "", "y1": ""}]


def _to_row(entry: Entry) -> Entry:
    """Return a row of a table: a column for each probability and volume, the texts."""
    from m3b.data.records import paths_of

    image = "|".join(paths_of(entry["image"]))
    row = {"image": image, **entry.get("probabilities", {})}
    row |= {f"{name} ml": value for name, value in entry.get("volumes_ml", {}).items()}
    row |= {key: entry[key] for key in ("anomaly_score", "findings", "impression") if key in entry}
    row |= {key: entry[key] for key in RELIABILITY_COLUMNS if key in entry}
    row |= {"prediction_set": "|".join(entry["prediction_set"])} if "prediction_set" in entry else {}
    row |= _select_custom_fields(entry)
    prediction = entry.get("prediction", "")
    text = prediction if isinstance(prediction, str) else "|".join(prediction)
    return {**row, "prediction": text, "error": entry.get("error", "")}
