"""Intensities as plan.json says: finite values, windows and percentiles, mean 0 and deviation 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError

MISSING = "missing"
"""Kind of a named channel that a case lacks (`Image.channels`)."""
MODES = ("window", "windows", "unit", "percentile", "foreground")


AIR = 0.1
"""Of the range of a body's values: what is darker counts as air."""


LOOKED_AT = 96
"""Voxels of an axis, about, in which the limits of the body are looked for."""
MIN_BODY = 0.005
"""Share of an image that has to be more than air, else all of it counts."""


def scale_intensity(
    array: np.ndarray, rule: Mapping[str, Any], limits: tuple[float, float] | None = None
) -> np.ndarray:
    """`window`: [low, high] to 0..1. `windows`: each of a list of [low, high] to 0..1, as a channel of its own.
    `unit`: black to white to 0..1. `percentile`: per image, 0.5 % to 99.5 % clipped.
    `foreground`: as percentile, of what is not air alone, so that the same body has the same values in any field of view.

    `window` with `eight_bit` = "windowed": an image of values from 0 to 255 has been through that window already.
    `window`, `windows` and `unit` then subtract `mean` and divide by `std`; the others make mean 0 and deviation 1 themselves.
    A `mean` and `std` given as lists, one a channel, are left to `normalise_channels`.

    Args:
        limits: values of black and white for `unit` (`formats.normalised_range`); 0 to 255 of 8-bit values and else the range of
            the image if nothing says them.
    """
    mode, eight_bit = rule["mode"], array.dtype == np.uint8
    values = array.astype(np.float32)
    if mode == "window":
        low, high = float(rule["low"]), float(rule["high"])
        if rule.get("eight_bit") == "windowed" and values.min() >= 0 and values.max() <= 255:
            low, high = 0.0, 255.0
        values = (np.clip(values, low, high) - low) / (high - low)
    elif mode == "windows":
        grey = values.mean(axis=0)
        values = np.stack([(np.clip(grey, low, high) - low) / (high - low) for low, high in rule["windows"]])
    elif mode == "unit":
        by_values = (0.0, 255.0) if eight_bit else tuple(float(v) for v in np.percentile(values, (0.0, 99.9)))
        low, high = limits or by_values
        values = np.clip((values - low) / max(high - low, 1e-6), 0.0, 1.0)
    elif mode == "percentile":
        low, high = (float(v) for v in np.percentile(values, (0.5, 99.5)))
        values = np.clip(values, low, high) if high > low else values
        values = (values - values.mean()) / max(float(values.std()), 1e-6)
    elif mode == "foreground":
        values = _of_foreground(values)
    else:
        raise ValueError(f"intensity mode {mode!r} in plan.json; known are {', '.join(MODES)}")
    if isinstance(rule.get("mean"), list):
        return values
    return (values - float(rule.get("mean", 0.0))) / max(float(rule.get("std", 1.0)), 1e-6)


def scale_each(
    array: np.ndarray,
    rule: Mapping[str, Any],
    kinds: Sequence[tuple[str, bool]] = (),
    name: str = "image",
    limits: tuple[float, float] | None = None,
) -> np.ndarray:
    """`scale_intensity` channel by channel: by a rule of its own each where the rule has `channels`. Raises DataError.

    `kinds` as in `Image.channels`: 8-bit values stay such beside others, whose array is of a wider type; a channel that is
    `MISSING` becomes 0, the mean of the others. `limits` as in `scale_intensity`.
    """
    own = rule.get("channels")
    rules = list(own.values()) if own else [rule] * len(array)
    if len(rules) != len(array):
        raise DataError(f"{name}: {len(array)} channels, but intensity in plan.json has a rule for {', '.join(own)}")
    kinds = kinds or [("", False)] * len(array)
    parts = [np.rint(part).astype(np.uint8) if eight else part for part, (_, eight) in zip(array, kinds, strict=True)]
    scaled = [
        scale_intensity(part[None], one, limits) if kind != MISSING else np.zeros(part[None].shape, np.float32)
        for part, one, (kind, _) in zip(parts, rules, kinds, strict=True)
    ]
    return np.concatenate(scaled)


def _of_foreground(values: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1 where there is more than air, which stays darker than that."""
    inside, low, top = find_body(values)
    values = np.clip(values, low, top) if top > low else values
    body = values[inside]
    result: np.ndarray = (values - body.mean()) / max(float(body.std()), 1e-6)
    return result


def find_body(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return where there is more than air (all of an image without any), and the range of the values there."""
    low = float(np.percentile(values, 0.5))
    inside, top = values > low, float(np.percentile(values, 99.5))
    for _ in range(2):  # again, since the share of air has a say in the first percentile
        found = values > low + AIR * (top - low)
        if found.mean() < MIN_BODY:
            break
        inside, top = found, float(np.percentile(values[found], 99.5))
    if not inside.any():
        inside = np.ones(values.shape, bool)
    return inside, low, top


OUTSIDE = 0.001
"""Share of the body that may lie beyond either of its limits along an axis: specks of noise do not move them."""


def body_limits(values: np.ndarray) -> list[tuple[float, float]]:
    """Return where the body begins and ends along each axis of (*shape), as shares of the axis."""
    steps = tuple(slice(None, None, max(1, length // LOOKED_AT)) for length in values.shape)
    inside, limits = find_body(values[steps])[0], []
    for axis, length in enumerate(inside.shape):
        share = np.cumsum(inside.sum(axis=tuple(other for other in range(inside.ndim) if other != axis)) / inside.sum())
        first, last = np.searchsorted(share, (OUTSIDE, 1 - OUTSIDE))
        limits.append((float(first / length), float((min(last, length - 1) + 1) / length)))
    return limits


def normalise_channels(array: np.ndarray, rule: Mapping[str, Any]) -> np.ndarray:
    """Lists `mean` and `std`, one value a channel, as networks trained on colour pictures want them."""
    if not isinstance(rule.get("mean"), list):
        return array
    shape = (-1, *(1,) * (array.ndim - 1))
    mean = np.array(rule["mean"], np.float32).reshape(shape)
    result: np.ndarray = (array - mean) / np.maximum(np.array(rule["std"], np.float32).reshape(shape), 1e-6)
    return result
