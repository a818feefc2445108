"""In which unit the values of an image are, and how images of different units come to share a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

HOUNSFIELD = "Hounsfield units"
STANDARD = "standard scores"
PICTURES = {"8 bit", "up to 255"}
QUANTILES = np.arange(10, 100, 10)
SCORES = 30.0
"""Standard scores (mean 0, deviation 1) stay within so many deviations."""
SPREAD = 40
"""Grey levels that what is marked has to span before a window can be read off it."""
WIDTHS = 100.0, 5000.0
"""Hounsfield units that a window may be wide."""


def scale_of(array: np.ndarray, modality: str, high: float) -> str:
    """The unit, as far as the values tell; `high` is their 99.5th percentile."""
    if modality == "ct":
        return HOUNSFIELD
    if array.dtype == np.uint8:
        return "8 bit"
    if array.dtype.kind == "f" and high <= SCORES:
        low = float(np.nanmin(array)) if array.size else 0.0
        if low < -0.2 and low >= -SCORES:  # a little below 0 are fractions that were resampled
            return STANDARD
        if high <= 2.0:
            return "fractions"
    return "up to 255" if high <= 255 else "beyond 8 bit"


def count_scales(images: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Unit -> images, the most frequent first."""
    return dict(Counter(str(item["scale"]) for item in images).most_common())


def grey_in_common(images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and deviation on the scale of 0 to 255 of images of several units, None if not all have it (`measure_grey`), or if
    brightness differs more between them than within them: then the units are those of different sources."""
    means, stds = ([item["grey_mean"] for item in images], [item["grey_std"] for item in images])
    if len(count_scales(images)) < 2 or None in means or float(np.std(means)) > float(np.mean(stds)):
        return {"grey_mean": None, "grey_std": None}
    return {"grey_mean": float(np.mean(means)), "grey_std": float(np.mean(stds))}


def count_notes(images: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Code of a note that the reader made -> images that have it, and the first note."""
    notes: dict[str, list[Any]] = {}
    for item in images:
        for code, text in item["notes"].items():
            notes.setdefault(code, [0, text])[0] += 1
    return notes


def told_notes(facts: Mapping[str, Any]) -> list[str]:
    """A line for each kind of note, such as missing slices or values that were filled."""
    return [
        f"reading says {code} of {count} of the images looked at, such as: {text}"
        for code, (count, text) in facts["notes"].items()
    ]


def values_inside(array: np.ndarray, masks: np.ndarray, most: int = 2000) -> np.ndarray:
    """Up to `most` values of the first channel of `array` (C, ...) where any of `masks` (K, ...) is set."""
    values = array[0][masks.any(axis=0)].astype(np.float32).ravel()
    return values if len(values) <= most else np.random.default_rng(0).choice(values, most, replace=False)


def values_by_class(array: np.ndarray, masks: np.ndarray) -> list[np.ndarray]:
    """Some values of each of `masks` (K, ...)."""
    return [values_inside(array, mask[None], 500) for mask in masks]


def common_window(images: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """The window in Hounsfield units from which the 8-bit images of a mixed CT set were made.

    Read off what is marked, which has the same density in both kinds: the line through the quantiles of each class. None
    where the set is not such a mixture, or too little is marked to tell.

    Args:
        images: each with `scale` (as of `scale_of`) and `by_class` (as of `values_by_class`).
    """
    kinds = {str(item["scale"]) for item in images}
    if HOUNSFIELD not in kinds or not kinds - {HOUNSFIELD} <= PICTURES or len(kinds) < 2:
        return None
    units, grey = [], []
    for place in range(min(len(item["by_class"]) for item in images)):
        known = _pooled(images, place, hounsfield=True)
        shown = _pooled(images, place, hounsfield=False)
        if len(known) and len(shown):
            units.append(np.percentile(known, QUANTILES))
            grey.append(np.percentile(shown, QUANTILES))
    levels, wanted = np.concatenate([*grey, []]), np.concatenate([*units, []])
    inner = (levels > 0) & (levels < 255)  # what the window cut off tells nothing
    if inner.sum() < 3 or np.ptp(levels[inner]) < SPREAD:
        return None
    slope, low = np.polyfit(levels[inner], wanted[inner], 1)
    return (round(low), round(low + 255 * slope)) if WIDTHS[0] <= 255 * slope <= WIDTHS[1] else None


def _pooled(images: Sequence[Mapping[str, Any]], place: int, *, hounsfield: bool) -> np.ndarray:
    """Values of one class in the images of one kind."""
    return np.concatenate([item["by_class"][place] for item in images if (item["scale"] == HOUNSFIELD) == hounsfield])


def mixed(facts: Mapping[str, Any]) -> list[str]:
    """A line where the images have different units, or none."""
    units, window = facts["scales"], facts.get("window")
    if len(units) < 2:
        return []
    how = "each image is scaled by itself"
    if facts.get("grey_mean") is not None:
        how = "all are brought to one scale, by the window or the bits stored of their files"
    if window:
        how = (
            f"what is marked says that the 8-bit ones show {window[0]} to {window[1]} Hounsfield units (exact enough), and all are "
            "brought to that window"
        )
    return [f"values come in different units {units}: {how}"]


def by_itself(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The intensity rule of images that are scaled one by one: of MR and other volumes without what is air in them."""
    volumes = int(facts["dims"]) == 3 and not facts["eight_bit"]
    return {"mode": "foreground" if facts["modality"] == "mr" or volumes else "percentile"}


def colour(images: Sequence[Mapping[str, Any]]) -> int:
    """Channels to work with: those of most images, or three where one in ten has colour that would be averaged away."""
    counts = Counter(int(item["channels"]) for item in images)
    most = counts.most_common(1)[0][0]
    coloured = sum(count for channels, count in counts.items() if channels in (3, 4))
    return 3 if most in (1, 2) and 10 * coloured >= len(images) else most


def averaged(images: Sequence[Mapping[str, Any]], channels: int) -> list[str]:
    """A line where images have another number of channels than is worked with, or none."""
    others = Counter(int(item["channels"]) for item in images if int(item["channels"]) != channels)
    if not others:
        return []
    found = ", ".join(f"{count} with {number}" for number, count in others.most_common())
    how = (
        "colour is averaged to grey"
        if channels == 1
        else "grey is repeated (with --set channels=1 colour is averaged to grey)"
    )
    return [f"of the images looked at, {found} channel(s), the others {channels}: {how}"]


def told_averaged(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """The line of `averaged`, unless the plan's channels were set by hand to others than it speaks of."""
    return list(facts["averaged"]) if plan["channels"] == facts["channels"] else []


def uneven(images: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the brightness of 8-bit images differs more between them (`mean`) than within them (`std`), as where dark and
    bright microscopy are in one set: on one scale for all, the dark ones would be left without contrast."""
    means, stds = ([float(item[key]) for item in images] for key in ("mean", "std"))
    return all(item["eight_bit"] for item in images) and float(np.std(means)) > float(np.mean(stds))


def told_uneven(facts: Mapping[str, Any]) -> list[str]:
    """A line where brightness differs so much, or none."""
    return ["brightness differs more between images than within them: each is scaled by itself"] * bool(facts["uneven"])


def border_of(values: np.ndarray) -> float:
    """Median of the outermost voxels of a volume (*shape): air around a whole head, tissue around a cropped part of one."""
    faces = [np.take(values, place, axis).ravel() for axis in range(values.ndim) for place in (0, -1)]
    return float(np.median(np.concatenate(faces)))


def padding_value(facts: Mapping[str, Any], rule: Mapping[str, Any]) -> float:
    """Padding around an image, in the units that the plan's rule of intensity gives: with `foreground` what volumes have at their
    borders (`border_of`; of 2D images 0, the mean), else the darkest value.

    Two of four folds of 107 hippocampi, cropped out of whole heads (2,000 steps of 8 first filters), had a Dice of 0.8875 on 53 others
    with the darkest value around them, 0.8901 with the mean, and with another seed 0.8895 with what their borders have (-0.16).
    """
    if rule["mode"] == "foreground":
        return round(max(-5.0, float(facts["border"])), 3)
    if rule["mode"] == "percentile":
        return round(max(-5.0, (facts["low"] - facts["mean"]) / max(facts["std"], 1e-6)), 3)
    means, stds = np.atleast_1d(rule.get("mean", 0.0)), np.atleast_1d(rule.get("std", 1.0))
    return round(float((-means / np.maximum(stds, 1e-6)).min()), 3)


def joined(window: Sequence[int]) -> dict[str, Any]:
    """The intensity rule of a mixed CT set."""
    return {"mode": "window", "low": window[0], "high": window[1], "eight_bit": "windowed", "mean": 0.4, "std": 0.3}
