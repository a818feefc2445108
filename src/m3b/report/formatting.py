"""Format numbers, times and states for readers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from m3b.report.run_files import to_finite_number

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

METRIC_NAMES = {
    "auroc": "AUROC",
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "f1": "F1 (macro)",
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "auprc": "AUPRC (average precision)",
    "sensitivity_at_90_specificity": "Sensitivity at 90 % specificity",
    "sensitivity_at_95_specificity": "Sensitivity at 95 % specificity",
    "ece": "Calibration error (less is better)",
    "brier": "Brier score (less is better)",
    "dice": "Dice",
    "nsd": "Surface Dice (NSD)",
    "hd95": "HD95 (less is better)",
    "qwk": "Quadratic weighted kappa",
    "grade_mae": "Mean error in grades (less is better)",
    "within_one": "Within one grade",
    "mae": "Mean absolute error (less is better)",
    "rmse": "RMSE (less is better)",
    "r2": "R²",
    "pearson": "Pearson's r",
    "lesion_f1": "Lesion F1",
    "lesion_precision": "Lesion precision",
    "lesion_recall": "Lesion recall",
    "map_50": "mAP at IoU 0.5",
    "map": "mAP (0.5 to 0.95)",
    "map_10": "mAP at IoU 0.1",
    "centre_ap": "AP by centre hits",
    "froc": "FROC score",
    "image_auroc": "AUROC of images",
    "image_ap": "AP of images",
    "pixel_auroc": "AUROC of pixels",
    "pixel_ap": "AP of pixels",
    "pro": "PRO",
    "bleu_1": "BLEU-1",
    "bleu_2": "BLEU-2",
    "bleu_3": "BLEU-3",
    "bleu_4": "BLEU-4",
    "rouge_l": "ROUGE-L",
    "meteor": "METEOR",
    "cider": "CIDEr",
    "label_f1": "Finding F1 (macro)",
    "label_f1_micro": "Finding F1 (micro)",
}


def describe_status(status: Any) -> tuple[str, str]:
    """Return label and tone of a status."""
    if isinstance(status, str) and status in STATUS_LABELS:
        return STATUS_LABELS[status]
    return (str(status) if status else "No result yet", "calm")


DISTANCE_UNITS = {"mm": "mm", "px": "pixels", "mixed": "mm or pixels"}
"""Names of distance units: images without a spacing have no millimetres."""


def format_metric_name(name: Any, unit: Any = None) -> str:
    """Return the display name of a metric.

    Args:
        unit: of distances, a key of `DISTANCE_UNITS`; any other value is ignored.
    """
    if name == "hd95" and isinstance(unit, str) and unit in DISTANCE_UNITS:
        return f"HD95, {DISTANCE_UNITS[unit]} (less is better)"
    return METRIC_NAMES.get(name, name) if isinstance(name, str) else str(name)


def format_figure(value: Any) -> str:
    """Return a number with three decimals, or a dash."""
    finite = to_finite_number(value)
    return "–" if finite is None else f"{finite:.3f}"


def format_interval(low: Any, high: Any) -> str:
    """Return an interval, or a dash."""
    return (
        "–"
        if to_finite_number(low) is None or to_finite_number(high) is None
        else f"{format_figure(low)} to {format_figure(high)}"
    )


def format_count(value: Any) -> str:
    """Return an integer with separators, or a dash."""
    finite = to_finite_number(value)
    return "–" if finite is None else f"{finite:,.0f}"


def format_duration(seconds: Any) -> str:
    """Return `4.2 s`, `3 min 12 s` or `2 h 5 min`; a dash if unknown."""
    finite = to_finite_number(seconds)
    if finite is None or finite < 0:
        return "–"
    if finite < 60:
        return f"{finite:.1f} s"
    minutes, remaining_seconds = divmod(round(finite), 60)
    return f"{minutes} min {remaining_seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_size(byte_count: int) -> str:
    """Return a size such as `1.5 MB`."""
    value = float(byte_count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def format_time(timestamp: Any) -> str:
    """Return seconds since the epoch as a UTC time; empty if unknown."""
    finite = to_finite_number(timestamp)
    if finite is None or not 0 < finite < 32_503_680_000:
        return ""
    return datetime.fromtimestamp(finite, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shorten(value: Any, max_chars: int = 160) -> str:
    """Return a value on one line, cut at the end."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(value.split())
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def cut_middle(text: str, head: int = 1200, tail: int = 800) -> str:
    """Return a long text without its middle."""
    if len(text) <= head + tail + 40:
        return text
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters left out …\n{text[-tail:]}"
