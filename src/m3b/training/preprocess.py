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
    "tiles",
)  # all settings that preprocessing depends on


def prepare_image(path: ImagePath, plan: Mapping[str, Any], base: str = ".") -> np.ndarray:
    """Return the network's input for one case, float32 (channels, *size). Raises DataError."""
    return preprocess(read_case(path, plan, base), plan, str(path))


def preprocess(image: Image, plan: Mapping[str, Any], name: str = "image") -> np.ndarray:
    """Preprocess an image in memory as `prepare_image` does; `name` is for error messages."""
    array = _match_dims(image.array, image.dims, int(plan["dims"]), name)
    size, middle = _find_grid(array[0], image, plan)
    if plan.get("channel_names"):
        array = scale_channels(array, plan["intensity"], image.channels, name)
    else:
        array = scale_intensity(array, plan["intensity"], normalised_range(image, plan.get("bits")))
    array = match_channels(array, int(plan["channels"]))
    array = normalise_channels(array, plan["intensity"])
    array = crop_or_pad(resize(array, size), tuple(int(side) for side in plan["size"]), middle)
    if not np.isfinite(array).all():
        raise DataError(f"{name}: has values that are not finite")
    return np.ascontiguousarray(array, dtype=np.float32)


def _find_grid(
    grey: np.ndarray, image: Image, plan: Mapping[str, Any]
) -> tuple[tuple[int, ...], Sequence[float] | None]:
    """Return the size to which an image is resampled, and the middle around which it is then cropped or padded to `plan["size"]`."""
    size, target_spacing = tuple(int(side) for side in plan["size"]), plan.get("spacing")
    spacing: Sequence[float] | None = image.spacing if image.dims == plan["dims"] else None
    if plan["dims"] == 3:
        spacing = true_spacing(grey.shape, spacing, plan.get("extent"))
    if not target_spacing and plan.get("fit") == "field" and plan["field"]:
        target_spacing = [side / count for side, count in zip(plan["field"], size, strict=True)]
    if target_spacing and spacing:
        steps = zip(grey.shape, spacing, target_spacing, strict=True)
        resampled = tuple(max(1, round(length * side / target)) for length, side, target in steps)
        return resampled, [sum(limits) / 2 for limits in body_limits(grey)]
    if plan.get("fit") == "pad":
        scale = min(side / length for side, length in zip(size, grey.shape, strict=True))
        return tuple(max(1, round(length * scale)) for length in grey.shape), None
    return size, None


def map_to_image(values: np.ndarray, image: Image, plan: Mapping[str, Any]) -> np.ndarray:
    """Return a map on the grid of the network's input (*size) on that of the image; 0 where the network saw nothing."""
    grey = _match_dims(image.array, image.dims, int(plan["dims"]), "image")[0]
    size, middle = _find_grid(grey, image, plan)
    whole: np.ndarray = values
    for axis, length in enumerate(size):
        target = whole.shape[axis]
        start = _crop_start(length, target, middle[axis] if middle else None)
        widths = [(0, 0)] * whole.ndim
        widths[axis] = (max(start, 0), max(length - target - start, 0))
        first = max(-start, 0)
        whole = np.pad(np.take(whole, range(first, min(target, length - start)), axis=axis), widths)
    whole = np.asarray(resize(whole[None], grey.shape)[0])
    if image.dims == plan["dims"]:
        return whole
    if image.dims == 2:
        return np.asarray(whole[..., 0])
    filled = np.zeros(image.array.shape[1:], np.float32)
    filled[..., image.array.shape[-1] // 2] = whole
    return filled


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
        start = _crop_start(length, target, middle[axis - 1] if middle else None)
        if length > target:
            array = np.take(array, range(start, start + target), axis=axis)
        elif length < target:
            widths = [(0, 0)] * (array.ndim - 1)
            widths[axis - 1] = (-start, target - length + start)
            array = pad_array(array, widths, array.reshape(len(array), -1).min(axis=1))
    return array


def _crop_start(length: int, target: int, middle: float | None) -> int:
    """Return where the part of an axis begins that is kept; negative for the number of padded cells before it."""
    start = round(middle * length - target / 2) if middle is not None else (length - target) // 2
    limits = sorted((0, length - target))
    return min(max(start, limits[0]), limits[1])


def pad_array(
    array: np.ndarray, widths: Sequence[tuple[int, int]], fill: float | Sequence[float] | np.ndarray
) -> np.ndarray:
    """Pad (C, *shape) before and after each axis of the shape: with one value, or one a channel, since the darkest value of a CT
    differs from that of the MR beside it."""
    values = np.broadcast_to(np.asarray(fill, array.dtype), (len(array),))
    return np.stack([np.pad(part, widths, constant_values=value) for part, value in zip(array, values, strict=True)])
