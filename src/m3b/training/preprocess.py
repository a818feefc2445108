"""From an `Image` to the input of the network by plan.json: intensity, channels, geometry. float32 (C, H, W[, D])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image, ImagePath, normalised_range
from m3b.training.channels import read_case
from m3b.training.normalization import body_limits, normalise_channels, scale_channels, scale_intensity
from m3b.training.resampling import resize
from m3b.training.voxel_spacing import true_spacing

PREPROCESSING_KEYS = (
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
)  # all settings that preprocessing depends on


def prepare_image(path: ImagePath, plan: Mapping[str, Any], base: str = ".") -> np.ndarray:
    """Return the network's input for one case, float32 (channels, *size). Raises DataError."""
    return preprocess(read_case(path, plan, base), plan, str(path))


def preprocess(image: Image, plan: Mapping[str, Any], name: str = "image") -> np.ndarray:
    """Preprocess an image in memory as `prepare_image` does; `name` is for error messages."""
    array = _match_dims(image.array, image.dims, int(plan["dims"]), name)
    grey = array[0]
    spacing: Sequence[float] | None = image.spacing if image.dims == plan["dims"] else None
    if plan["dims"] == 3:
        spacing = true_spacing(grey.shape, spacing, plan.get("extent"))
    if plan.get("channel_names"):
        array = scale_channels(array, plan["intensity"], image.channels, name)
    else:
        array = scale_intensity(array, plan["intensity"], normalised_range(image, plan.get("bits")))
    array = match_channels(array, int(plan["channels"]))
    array = normalise_channels(array, plan["intensity"])
    size, target_spacing = tuple(int(side) for side in plan["size"]), plan.get("spacing")
    if not target_spacing and plan.get("fit") == "field" and plan["field"]:
        target_spacing = [side / count for side, count in zip(plan["field"], size, strict=True)]
    if target_spacing and spacing:
        resampled = [
            max(1, round(length * side / w))
            for length, side, w in zip(array.shape[1:], spacing, target_spacing, strict=True)
        ]
        middle = [sum(limits) / 2 for limits in body_limits(grey)]
        array = crop_or_pad(resize(array, tuple(resampled)), size, middle)
    elif plan.get("fit") == "pad":
        scale = min(side / length for side, length in zip(size, array.shape[1:], strict=True))
        array = crop_or_pad(resize(array, tuple(max(1, round(length * scale)) for length in array.shape[1:])), size)
    else:
        array = resize(array, size)
    if not np.isfinite(array).all():
        raise DataError(f"{name}: has values that are not finite")
    return np.ascontiguousarray(array, dtype=np.float32)


def _match_dims(array: np.ndarray, length: int, target: int, name: str) -> np.ndarray:
    """Convert a 2D image for a 3D network to one slice; take the middle slice of a volume for a 2D network."""
    if length == target:
        return array
    if length == 2:
        return array[..., None]
    if array.shape[-1] > 8:
        raise DataError(f"{name}: a volume of {array.shape[-1]} slices, but the model takes 2D images")
    return array[..., array.shape[-1] // 2]


def match_channels(array: np.ndarray, channels: int) -> np.ndarray:
    """Match the number of channels: repeat grey, average colour to grey, cut surplus channels, repeat the last."""
    existing = array.shape[0]
    if existing == channels:
        return array
    if channels == 1:
        return np.asarray(array.mean(axis=0, keepdims=True))
    if existing > channels:
        return array[:channels]
    return np.concatenate([array, np.repeat(array[-1:], channels - existing, axis=0)])


def crop_or_pad(array: np.ndarray, size: tuple[int, ...], middle: Sequence[float] | None = None) -> np.ndarray:
    """Crop or pad around `middle` (shares of the axes; None: the centre), cutting no more than necessary; padding is each channel's
    minimum."""
    for axis, target in enumerate(size, start=1):
        length = array.shape[axis]
        start = round(middle[axis - 1] * length - target / 2) if middle else (length - target) // 2
        if length > target:
            start = min(max(start, 0), length - target)
            array = np.take(array, range(start, start + target), axis=axis)
        elif length < target:
            before = min(max(-start, 0), target - length)
            widths = [(0, 0)] * (array.ndim - 1)
            widths[axis - 1] = (before, target - length - before)
            array = pad_array(array, widths, array.reshape(len(array), -1).min(axis=1))
    return array


def pad_array(
    array: np.ndarray, widths: Sequence[tuple[int, int]], fill: float | Sequence[float] | np.ndarray
) -> np.ndarray:
    """Pad (C, *shape) before and after each axis of the shape: with one value, or one a channel, since the darkest value of a CT
    differs from that of the MR beside it."""
    values = np.broadcast_to(np.asarray(fill, array.dtype), (len(array),))
    return np.stack([np.pad(part, widths, constant_values=value) for part, value in zip(array, values, strict=True)])
