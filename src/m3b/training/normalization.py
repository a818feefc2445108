"""Intensity scaling by plan.json: finite values, windows and percentiles, mean 0 and deviation 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError

MISSING = "missing"
"""Kind of a named channel that a case lacks (`Image.channels`)."""
MODES = ("window", "windows", "unit", "percentile", "foreground")


AIR_SHARE = 0.1
"""Share of the value range of a body up to which a voxel counts as air."""


BODY_GRID = 96
"""Approximate voxels of an axis in which the body is located."""
MIN_BODY_SHARE = 0.005
"""Minimum share of an image that is not air; with less, the whole image counts as body."""


def scale_intensity(
    array: np.ndarray, rule: Mapping[str, Any], limits: tuple[float, float] | None = None
) -> np.ndarray:
    """Scale intensities by the mode of a rule.

    `window`: [low, high] to 0..1. `windows`: each of a list of [low, high] to 0..1, in a channel of its own. `unit`: black to white to
    0..1. `percentile`: clipped to 0.5 % to 99.5 % of the image. `foreground`: as percentile, of the body without air, so that the same
    body has the same values in any field of view. `window` with `eight_bit` = "windowed": an image of values from 0 to 255 was
    windowed before. `window`, `windows` and `unit` then subtract `mean` and divide by `std`; the others standardise themselves. `mean`
    and `std` as lists, one value a channel, are applied by `normalise_channels`.

    Args:
        limits: values of black and white for `unit` (`formats.normalised_range`); None: 0 to 255 for 8-bit values, else the range of
            the image.
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
        values = _scale_foreground(values)
    else:
        raise ValueError(f"intensity mode {mode!r} in plan.json; must be one of {', '.join(MODES)}")
    if isinstance(rule.get("mean"), list):
        return values
    return (values - float(rule.get("mean", 0.0))) / max(float(rule.get("std", 1.0)), 1e-6)


def scale_channels(
    array: np.ndarray,
    rule: Mapping[str, Any],
    kinds: Sequence[tuple[str, bool]] = (),
    name: str = "image",
    limits: tuple[float, float] | None = None,
) -> np.ndarray:
    """Scale channel by channel (`scale_intensity`), by a rule for each if the rule has `channels`. Raises DataError.

    With `kinds` (`Image.channels`), 8-bit channels stay 8-bit although the array has a wider type, and a `MISSING` channel becomes 0,
    the mean of the others. `limits` as in `scale_intensity`.
    """
    channel_rules = rule.get("channels") or {}
    rules = list(channel_rules.values()) if channel_rules else [rule] * len(array)
    if len(rules) != len(array):
        raise DataError(
            f"{name}: {len(array)} channels, but intensity in plan.json has a rule for {', '.join(channel_rules)}"
        )
    kinds = kinds or [("", False)] * len(array)
    parts = [np.rint(part).astype(np.uint8) if eight else part for part, (_, eight) in zip(array, kinds, strict=True)]
    scaled = [
        scale_intensity(part[None], channel_rule, limits) if kind != MISSING else np.zeros(part[None].shape, np.float32)
        for part, channel_rule, (kind, _) in zip(parts, rules, kinds, strict=True)
    ]
    return np.concatenate(scaled)


def _scale_foreground(values: np.ndarray) -> np.ndarray:
    """Standardise by the body; air stays darker than that."""
    is_inside, low, top = find_body(values)
    values = np.clip(values, low, top) if top > low else values
    body = values[is_inside]
    result: np.ndarray = (values - body.mean()) / max(float(body.std()), 1e-6)
    return result


def find_body(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return a mask of the body (the whole image if it has none), and the range of its values."""
    low = float(np.percentile(values, 0.5))
    is_inside, top = values > low, float(np.percentile(values, 99.5))
    for _ in range(2):  # repeated, since the share of air affects the first percentile
        is_body = values > low + AIR_SHARE * (top - low)
        if is_body.mean() < MIN_BODY_SHARE:
            break
        is_inside, top = is_body, float(np.percentile(values[is_body], 99.5))
    if not is_inside.any():
        is_inside = np.ones(values.shape, bool)
    return is_inside, low, top


MAX_SHARE_OUTSIDE = 0.001
"""Share of the body that may lie beyond each of its limits along an axis, so that noise does not move them."""


def body_limits(values: np.ndarray) -> list[tuple[float, float]]:
    """Return the start and end of the body along each axis of (*shape), as shares of the axis."""
    steps = tuple(slice(None, None, max(1, length // BODY_GRID)) for length in values.shape)
    is_inside, limits = find_body(values[steps])[0], []
    for axis, length in enumerate(is_inside.shape):
        share = np.cumsum(
            is_inside.sum(axis=tuple(other_axis for other_axis in range(is_inside.ndim) if other_axis != axis))
            / is_inside.sum()
        )
        first, last = np.searchsorted(share, (MAX_SHARE_OUTSIDE, 1 - MAX_SHARE_OUTSIDE))
        limits.append((float(first / length), float((min(last, length - 1) + 1) / length)))
    return limits


def normalise_channels(array: np.ndarray, rule: Mapping[str, Any]) -> np.ndarray:
    """Apply lists `mean` and `std`, one value a channel, as networks trained on colour images expect."""
    if not isinstance(rule.get("mean"), list):
        return array
    shape = (-1, *(1,) * (array.ndim - 1))
    mean = np.array(rule["mean"], np.float32).reshape(shape)
    result: np.ndarray = (array - mean) / np.maximum(np.array(rule["std"], np.float32).reshape(shape), 1e-6)
    return result
