"""How far two sets of predictions are apart: numbers, texts, and the mask files that they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.models.output import read_raw_predictions
from m3b.reader import WorkerJob

_MASK_KEYS = ("mask", "masks")
_IMAGE_ONLY_KEYS = ("out_of_distribution", "why")
"""What predict.py says of an image and not of the network's answer; the bundle of a classifier is the network alone."""


@dataclass(frozen=True)
class OutputsToCompare:
    """Two predictions.json at absolute paths, both written by a model's own code."""

    first: Path
    second: Path


COMPARE = WorkerJob("m3b.models.exporting.parity:compare_outputs", OutputsToCompare, float, 600.0)


def compare_outputs(outputs: OutputsToCompare) -> float:
    """Inside the reader, since the files name masks to open: `largest_difference` of two outputs. Raises ModelError."""
    first, second = outputs.first, outputs.second
    return largest_difference(read_raw_predictions(first), read_raw_predictions(second), first, second)


def largest_difference(first: Any, second: Any, first_file: Path, second_file: Path, location: str = "") -> float:
    """The largest difference of any number, of any share of voxels that masks disagree in.

    Args:
        first: JSON values, the content of `first_file`.
        second: likewise; mask paths count from the folder of their file.
        location: for messages.

    Raises:
        ModelError: they differ in kind, length, keys or text.
    """
    first, second = (_drop_image_only_keys(value) for value in (first, second))
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        differences = [
            _mask_difference(first[key], second[key], first_file, second_file, f"{location}.{key}")
            if key in _MASK_KEYS and first[key] is not None
            else largest_difference(first[key], second[key], first_file, second_file, f"{location}.{key}")
            for key in first
        ]
        return max(differences, default=0.0)
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return max(
            (largest_difference(a, b, first_file, second_file, f"{location}[{i}]") for i, (a, b) in pairs), default=0.0
        )
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second)]
    if all(numbers):
        return abs(float(first) - float(second))
    if first != second:
        raise ModelError(
            f"predictions differ at {location or 'the top'}: {str(first)[:120]!r} and {str(second)[:120]!r}"
        )
    return 0.0


def _drop_image_only_keys(value: Any) -> Any:
    return (
        {key: entry for key, entry in value.items() if key not in _IMAGE_ONLY_KEYS}
        if isinstance(value, dict)
        else value
    )


def _mask_difference(first: Any, second: Any, first_file: Path, second_file: Path, location: str) -> float:
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        pairs = [_mask_difference(first[k], second[k], first_file, second_file, f"{location}.{k}") for k in first]
        return max(pairs, default=0.0)
    if not isinstance(first, str) or not isinstance(second, str):
        raise ModelError(f"predictions differ at {location}: {first!r} and {second!r}")
    from m3b.data.reading import read_image

    first_mask = read_image(first, str(first_file.parent)).array
    second_mask = read_image(second, str(second_file.parent)).array
    if first_mask.shape != second_mask.shape:
        raise ModelError(f"predictions differ at {location}: masks of shape {first_mask.shape} and {second_mask.shape}")
    return float((first_mask != second_mask).mean())
