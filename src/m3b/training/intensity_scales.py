"""Units of image values, and one window for images of different units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

HOUNSFIELD = "Hounsfield units"
STANDARD_SCORES = "standard scores"
GREY_SCALES = {"8 bit", "up to 255"}
QUANTILES = np.arange(10, 100, 10)
MAX_STANDARD_SCORE = 30.0
"""Maximum of standard scores (mean 0, deviation 1)."""
MIN_GREY_SPAN = 40
"""Minimum range of grey levels in annotated regions from which a window can be inferred."""
WINDOW_WIDTHS = 100.0, 5000.0
"""Plausible widths of a window in Hounsfield units."""


def name_scale(array: np.ndarray, modality: str, high: float) -> str:
    """Return the unit as far as the values show it; `high` is their 99.5th percentile."""
    if modality == "ct":
        return HOUNSFIELD
    if array.dtype == np.uint8:
        return "8 bit"
    if array.dtype.kind == "f" and high <= MAX_STANDARD_SCORE:
        low = float(np.nanmin(array)) if array.size else 0.0
        if low < -0.2 and low >= -MAX_STANDARD_SCORE:  # resampled fractions may be slightly below 0
            return STANDARD_SCORES
        if high <= 2.0:
            return "fractions"
    return "up to 255" if high <= 255 else "beyond 8 bit"


def count_scales(images: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return unit -> number of images, the most frequent first."""
    return dict(Counter(str(item["scale"]) for item in images).most_common())


def summarise_grey(images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and deviation, on the scale of 0 to 255, of images of several units; None if some have no such scale
    (`measure_grey`), or if brightness differs more between images than within them: the units are then those of different sources."""
    means, stds = ([item["grey_mean"] for item in images], [item["grey_std"] for item in images])
    if len(count_scales(images)) < 2 or None in means or float(np.std(means)) > float(np.mean(stds)):
        return {"grey_mean": None, "grey_std": None}
    return {"grey_mean": float(np.mean(means)), "grey_std": float(np.mean(stds))}


def count_notes(images: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return code of a reader's note -> number of images that have it, and the first note."""
    notes: dict[str, list[Any]] = {}
    for item in images:
        for code, text in item["notes"].items():
            notes.setdefault(code, [0, text])[0] += 1
    return notes


def describe_notes(facts: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of note, such as missing slices or filled values."""
    return [
        f"note {code} on {count} of the sampled images, such as: {text}"
        for code, (count, text) in facts["notes"].items()
    ]


def sample_values(array: np.ndarray, masks: np.ndarray, max_values: int = 2000) -> np.ndarray:
    """Return up to `max_values` values of the first channel of `array` (C, ...) where any of `masks` (K, ...) is set."""
    values = array[0][masks.any(axis=0)].astype(np.float32).ravel()
    return values if len(values) <= max_values else np.random.default_rng(0).choice(values, max_values, replace=False)


def sample_values_by_class(array: np.ndarray, masks: np.ndarray) -> list[np.ndarray]:
    """Return some values in each of `masks` (K, ...)."""
    return [sample_values(array, mask[None], 500) for mask in masks]


def infer_window(images: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Return the window in Hounsfield units from which the 8-bit images of a mixed CT set were made.

    The line through the quantiles of each annotated class, whose density is the same in both kinds. None if the set is not such a
    mixture, or too little is annotated.

    Args:
        images: each with `scale` (`name_scale`) and `by_class` (`sample_values_by_class`).
    """
    kinds = {str(item["scale"]) for item in images}
    if HOUNSFIELD not in kinds or not kinds - {HOUNSFIELD} <= GREY_SCALES or len(kinds) < 2:
        return None
    units, grey = [], []
    for index in range(min(len(item["by_class"]) for item in images)):
        hounsfield_values = _pool_values(images, index, hounsfield=True)
        grey_values = _pool_values(images, index, hounsfield=False)
        if len(hounsfield_values) and len(grey_values):
            units.append(np.percentile(hounsfield_values, QUANTILES))
            grey.append(np.percentile(grey_values, QUANTILES))
    levels, hounsfield = np.concatenate([*grey, []]), np.concatenate([*units, []])
    inner = (levels > 0) & (levels < 255)  # clipped values are not informative
    if inner.sum() < 3 or np.ptp(levels[inner]) < MIN_GREY_SPAN:
        return None
    slope, low = np.polyfit(levels[inner], hounsfield[inner], 1)
    return (round(low), round(low + 255 * slope)) if WINDOW_WIDTHS[0] <= 255 * slope <= WINDOW_WIDTHS[1] else None


def _pool_values(images: Sequence[Mapping[str, Any]], index: int, *, hounsfield: bool) -> np.ndarray:
    """Return the values of one class in the images of one kind."""
    return np.concatenate([item["by_class"][index] for item in images if (item["scale"] == HOUNSFIELD) == hounsfield])


def describe_mixed_scales(facts: Mapping[str, Any]) -> list[str]:
    """Return a line if the images have different units."""
    units, window = facts["scales"], facts.get("window")
    if len(units) < 2:
        return []
    handling = "each image is scaled by itself"
    if facts.get("grey_mean") is not None:
        handling = "all are brought to one scale, by the window or the stored bits of their files"
    if window:
        handling = (
            f"annotated regions show that the 8-bit images cover {window[0]} to {window[1]} Hounsfield units, and all are brought to "
            "that window"
        )
    return [f"values have different units {units}: {handling}"]


def per_image_rule(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rule of images that are scaled one by one; MR and other volumes without their air."""
    volumes = int(facts["dims"]) == 3 and not facts["eight_bit"]
    return {"mode": "foreground" if facts["modality"] == "mr" or volumes else "percentile"}


def choose_channel_count(images: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of channels to use: the most frequent, or three if one image in ten has colour that averaging would lose."""
    counts = Counter(int(item["channels"]) for item in images)
    max_values = counts.most_common(1)[0][0]
    colour_images = sum(count for channels, count in counts.items() if channels in (3, 4))
    return 3 if max_values in (1, 2) and 10 * colour_images >= len(images) else max_values


def describe_channel_conversion(images: Sequence[Mapping[str, Any]], channels: int) -> list[str]:
    """Return a line if images have another number of channels than is used."""
    others = Counter(int(item["channels"]) for item in images if int(item["channels"]) != channels)
    if not others:
        return []
    counts_text = ", ".join(f"{count} with {number}" for number, count in others.most_common())
    handling = (
        "colour is averaged to grey"
        if channels == 1
        else "grey is repeated (with --set channels=1 colour is averaged to grey)"
    )
    return [f"channels of the sampled images: {counts_text}, the others {channels}: {handling}"]


def describe_applied_conversion(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """Return the line of `describe_channel_conversion`, unless the plan's channels were set by hand."""
    return list(facts["averaged"]) if plan["channels"] == facts["channels"] else []


def has_uneven_brightness(images: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the brightness of 8-bit images differs more between them (`mean`) than within them (`std`), as in a mixture of
    dark and bright microscopy: on one scale for all, the dark ones would have no contrast."""
    means, stds = ([float(item[key]) for item in images] for key in ("mean", "std"))
    return all(item["eight_bit"] for item in images) and float(np.std(means)) > float(np.mean(stds))


def describe_uneven_brightness(facts: Mapping[str, Any]) -> list[str]:
    """Return a line if brightness is uneven."""
    return ["brightness differs more between images than within them: each is scaled by itself"] * bool(facts["uneven"])


def border_value(values: np.ndarray) -> float:
    """Return the median of the outermost voxels of a volume (*shape): air around a whole head, tissue around a crop."""
    faces = [np.take(values, index, axis).ravel() for axis in range(values.ndim) for index in (0, -1)]
    return float(np.median(np.concatenate(faces)))


def padding_value(facts: Mapping[str, Any], rule: Mapping[str, Any]) -> float:
    """Return the value around an image after the plan's intensity rule: with `foreground` that of the volumes' borders
    (`border_value`; for 2D images 0, the mean), else the darkest value.

    Two of four folds of 107 hippocampi, cropped out of whole heads (2,000 steps of 8 first filters), had a Dice of 0.8875 on 53 others
    with the darkest value around them, 0.8901 with the mean, and with another seed 0.8895 with the value of their borders (-0.16).
    """
    if rule["mode"] == "foreground":
        return round(max(-5.0, float(facts["border"])), 3)
    if rule["mode"] == "percentile":
        return round(max(-5.0, float(facts["low"] - facts["mean"]) / max(float(facts["std"]), 1e-6)), 3)
    means, stds = np.atleast_1d(rule.get("mean", 0.0)), np.atleast_1d(rule.get("std", 1.0))
    return round(float((-means / np.maximum(stds, 1e-6)).min()), 3)


def mixed_ct_rule(window: Sequence[int]) -> dict[str, Any]:
    """Return the intensity rule of a mixed CT set."""
    return {"mode": "window", "low": window[0], "high": window[1], "eight_bit": "windowed", "mean": 0.4, "std": 0.3}
