"""From an `Image` to the network's input, as plan.json says: intensity, channels, geometry. float32 (C, H, W[, D])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image, ImagePath, normalised_range
from m3b.training.channels import read_case
from m3b.training.normalization import body_limits, normalise_channels, scale_each, scale_intensity
from m3b.training.resampling import resize
from m3b.training.voxel_spacing import true_spacing

KEYS = (
    "dims",
    "channels",
    "channel_names",
    "frames",
    "size",
    "spacing",
    "fit",
    "field",
    "extent",
    "intensity",
    "bits",
)  # all of the plan that preprocessing depends on


def prepare(path: ImagePath, plan: Mapping[str, Any], base: str = ".") -> np.ndarray:
    """The network's input for one case, float32 (channels, *size). Raises DataError."""
    return preprocess(read_case(path, plan, base), plan, str(path))


def preprocess(image: Image, plan: Mapping[str, Any], name: str = "image") -> np.ndarray:
    """As `prepare`, for an image in memory; `name` is for the error message."""
    array = _match_dims(image.array, image.dims, int(plan["dims"]), name)
    grey, spacing = array[0], image.spacing if image.dims == plan["dims"] else None
    if plan["dims"] == 3:
        spacing = true_spacing(grey.shape, spacing, plan.get("extent"))
    if plan.get("channel_names"):
        array = scale_each(array, plan["intensity"], image.channels, name)
    else:
        array = scale_intensity(array, plan["intensity"], normalised_range(image, plan.get("bits")))
    array = match_channels(array, int(plan["channels"]))
    array = normalise_channels(array, plan["intensity"])
    size, wanted = tuple(int(v) for v in plan["size"]), plan.get("spacing")
    if not wanted and plan.get("fit") == "field" and plan["field"]:
        wanted = [side / count for side, count in zip(plan["field"], size, strict=True)]
    if wanted and spacing:
        resampled = [max(1, round(n * s / w)) for n, s, w in zip(array.shape[1:], spacing, wanted, strict=True)]
        middle = [sum(limits) / 2 for limits in body_limits(grey)]
        array = crop_or_pad(resize(array, tuple(resampled)), size, middle)
    elif plan.get("fit") == "pad":
        share = min(s / n for s, n in zip(size, array.shape[1:], strict=True))
        array = crop_or_pad(resize(array, tuple(max(1, round(n * share)) for n in array.shape[1:])), size)
    else:
        array = resize(array, size)
    if not np.isfinite(array).all():
        raise DataError(f"{name}: holds values that are not finite")
    return np.ascontiguousarray(array, dtype=np.float32)


def _match_dims(array: np.ndarray, have: int, want: int, name: str) -> np.ndarray:
    """A 2D image for a 3D network becomes one slice; a volume for a 2D network gives its middle slice."""
    if have == want:
        return array
    if have == 2:
        return array[..., None]
    if array.shape[-1] > 8:
        raise DataError(f"{name}: a volume of {array.shape[-1]} slices, but the model takes 2D images")
    return array[..., array.shape[-1] // 2]


def match_channels(array: np.ndarray, channels: int) -> np.ndarray:
    """Grey repeated, colour averaged to grey, surplus channels cut, missing ones filled with the last."""
    have = array.shape[0]
    if have == channels:
        return array
    if channels == 1:
        return array.mean(axis=0, keepdims=True)
    if have > channels:
        return array[:channels]
    return np.concatenate([array, np.repeat(array[-1:], channels - have, axis=0)])


def crop_or_pad(array: np.ndarray, size: tuple[int, ...], middle: Sequence[float] | None = None) -> np.ndarray:
    """Around `middle` (shares of the axes; None: the centre), as far as nothing is cut without need; padding takes each channel's
    own minimum."""
    for axis, want in enumerate(size, start=1):
        have = array.shape[axis]
        start = round(middle[axis - 1] * have - want / 2) if middle else (have - want) // 2
        if have > want:
            start = min(max(start, 0), have - want)
            array = np.take(array, range(start, start + want), axis=axis)
        elif have < want:
            before = min(max(-start, 0), want - have)
            widths = [(0, 0)] * (array.ndim - 1)
            widths[axis - 1] = (before, want - have - before)
            array = surrounded(array, widths, array.reshape(len(array), -1).min(axis=1))
    return array


def surrounded(
    array: np.ndarray, widths: Sequence[tuple[int, int]], fill: float | Sequence[float] | np.ndarray
) -> np.ndarray:
    """(C, *shape) with so much before and after each axis of the shape: one value, or one a channel, since what is dark in
    a CT is another number than what is dark in the MR beside it."""
    values = np.broadcast_to(np.asarray(fill, array.dtype), (len(array),))
    return np.stack([np.pad(part, widths, constant_values=value) for part, value in zip(array, values, strict=True)])
