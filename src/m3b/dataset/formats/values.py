"""The values of an image: units that they imply, one scale for grey values, and values that are not finite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .base import FormatNote, Image, add_notes
from .errors import DataError

SAMPLED_VALUES = 1 << 20
"""Values of a large volume that are looked at."""
HOUNSFIELD_AIR = (-1100.0, -500.0)
"""Values of air and lung in Hounsfield units."""
FAT_BELOW = -150.0
"""Hounsfield units below those of fat: between air and this there is little but partial volumes."""
AIR_PEAK = 1.5
"""Times that air or lung must be more frequent than what lies between them and fat."""
LOWEST_HOUNSFIELD = -8192.0
"""Padding outside the field of view is written with values down to this one."""
MAX_SCATTERED_SHARE = 0.01
"""Share of values that are not finite and may be filled wherever they are; percentiles of the others move by less."""
MIN_FINITE_SHARE = 0.05
"""Share of values that must be finite if NaN marks the background, which must touch the border (as SPM writes it)."""
CONTAINER_BITS = (8, 12, 16)
"""Bits that whole numbers in a wider type are taken to have, if the file does not say: the fewest that hold all values."""


def looks_like_hounsfield(array: np.ndarray) -> bool:
    """Return whether values can only be Hounsfield units, by a peak of air or lung.

    Most values below -500, without padding, must be those of air or lung, and be more frequent than those up to fat. MR
    phase (-4096 to 4095) spreads over all values, differences and displacements get more frequent towards 0.
    """
    if array.dtype.kind not in "if" or not array.size:
        return False
    values = sample_values(array)
    low = values[values <= HOUNSFIELD_AIR[1]]
    if not low.size or float(low.min()) < LOWEST_HOUNSFIELD or float(values.max()) <= HOUNSFIELD_AIR[1]:
        return False
    padding = low[low < HOUNSFIELD_AIR[0]]
    if padding.size:
        constants, counts = np.unique(padding, return_counts=True)
        low = low[low != constants[counts.argmax()]]
    if not low.size or float(np.mean(low >= HOUNSFIELD_AIR[0])) < 0.5:
        return False
    counts, edges = np.histogram(values, np.arange(HOUNSFIELD_AIR[0], FAT_BELOW + 1, 50.0))
    peak = int(counts[edges[:-1] < HOUNSFIELD_AIR[1]].argmax())
    return bool(counts[peak] > AIR_PEAK * counts[peak:].min())


def sample_values(array: np.ndarray) -> np.ndarray:
    """Return about `SAMPLED_VALUES` finite values, evenly spread over the array."""
    flat = array.reshape(-1)
    step = max(1, flat.size // SAMPLED_VALUES)
    values = flat[:: step + (step > 1 and step % 2 == 0)]  # odd steps meet all columns of even sizes
    return values[np.isfinite(values)] if values.dtype.kind == "f" else values


def normalised_range(image: Image, bits: int | None = None) -> tuple[float, float] | None:
    """Return the values that stand for black and white, so that copies with other bits come out equal on one scale.

    This is the display window of the file, else what its stored bits can hold, else by the values: whole numbers in the
    fewest of 8, 12 and 16 bits, fractions up to 1, or other numbers up to 255 or 65,535. None of values with a unit,
    of negative ones, and of anything larger.

    Args:
        bits: bits of the values of a whole set, which a single dark image does not show.
    """
    if image.unit or image.modality in ("ct", "pet"):
        return None
    if image.window is not None and image.window[1] > image.window[0]:
        return image.window
    if image.stored_range is not None and image.stored_range[1] > image.stored_range[0]:
        return image.stored_range
    array = image.array
    if array.dtype.kind == "b":
        return 0.0, 1.0
    if array.dtype == np.uint8:
        return 0.0, 255.0
    if not array.size or array.dtype.kind not in "iuf":
        return None
    low, high = float(np.nanmin(array)), float(np.nanmax(array))
    if low < 0 or not np.isfinite(high):
        return None
    if array.dtype.kind == "f" and high <= 1:
        return 0.0, 1.0
    fewest = bits if bits is not None and array.dtype.kind in "iu" else 0
    return next(((0.0, float((1 << n) - 1)) for n in CONTAINER_BITS if high < 1 << n and n >= fewest), None)


def grey_values(image: Image, bits: int | None = None) -> np.ndarray:
    """Return the values of a picture on the scale of 0 to 255, on which copies with other bits or windows agree.

    Volumes, and pictures without such a scale (`normalised_range`), are returned as they are.
    """
    limits = (
        normalised_range(image, bits) if image.dims == 2 and image.modality != "mr" and not image.channels else None
    )
    if limits is None or limits == (0.0, 255.0):
        return image.array
    scaled = (image.array.astype(np.float32) - limits[0]) * np.float32(255 / (limits[1] - limits[0]))
    return np.asarray(scaled.clip(0, 255))


def fill_nonfinite(image: Image, name: str) -> Image:
    """Return the image with values that are not finite set to the background, and a note with their count.

    The background is the lowest value, or 0 if values lie on both sides of it and are not Hounsfield units.

    Raises:
        DataError: more than 1 % of the values are scattered NaN or infinite, or too few are finite.
    """
    array = image.array
    if array.dtype.kind == "c" or array.dtype.kind != "f":
        return image
    finite = np.isfinite(array)
    count = int(array.size - np.count_nonzero(finite))
    if not count:
        return image
    share = count / array.size
    if count == array.size or (share > MAX_SCATTERED_SHARE and not _is_background(array, finite, share)):
        raise DataError(
            f"{name}: {count:,} of {array.size:,} values ({share:.1%}) are NaN or infinite; up to {MAX_SCATTERED_SHARE:.0%} "
            "are filled, and more if they are a background of NaN around the object; convert the image again"
        )
    low, high = float(array[finite].min()), float(array[finite].max())
    background = 0.0 if low < 0 < high and image.modality != "ct" else low
    filled = np.where(finite, array, array.dtype.type(background))
    note = FormatNote("nonfinite_filled", {"count": count, "value": background})
    return add_notes(replace(image, array=filled), note)


def _is_background(array: np.ndarray, finite: np.ndarray, share: float) -> bool:
    """Return whether nearly all values that are not finite are NaN and connected with the border."""
    from scipy import ndimage

    if share > 1 - MIN_FINITE_SHARE or np.isinf(array).any():
        return False
    for channel in ~finite:
        reached = ndimage.binary_propagation(_border(channel.shape) & channel, mask=channel)
        if np.count_nonzero(channel) - np.count_nonzero(reached) > MAX_SCATTERED_SHARE * channel.size:
            return False
    return True


def _border(shape: tuple[int, ...]) -> np.ndarray:
    border = np.ones(shape, bool)
    border[tuple(slice(1, -1) if size > 2 else slice(None) for size in shape)] = False
    return border
