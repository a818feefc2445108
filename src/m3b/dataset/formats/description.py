"""What values an array holds, in a line: their range, and the values themselves if they are few."""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_DISTINCT = 32
"""Values that are listed with their counts."""
MAX_COLOURS = 16
"""Colours that are listed; a picture with no more is no photograph."""
SAMPLED = 50_000
"""Values by which an array is judged to have few, before all are counted."""
MAX_DESCRIBED_BYTES = 512 << 20
"""Bytes of an image that is decoded to describe its values."""


def describe_values(array: Any, *, counts: bool = True) -> str:
    """Return the range of an array, and its values with their counts if they are few whole numbers or texts."""
    if array.size == 0:
        return "empty"
    if array.dtype.kind in "SU":
        values, numbers = np.unique(array, return_counts=True)
        if len(values) > MAX_DISTINCT:
            return f"{len(values):,} distinct, such as {str(values[0])!r}"
        return "values " + ", ".join(
            f"{str(value)!r} x {count:,}" for value, count in zip(values, numbers, strict=True)
        )
    if array.dtype.kind not in "biufc":
        return ""
    if array.dtype.kind == "c":
        return "complex"
    if array.dtype.kind == "f":
        return _describe_floats(array)
    text = f"range {int(array.min())} to {int(array.max())}"
    distinct = _count_distinct(array) if counts else ""
    return f"{text}; {distinct}" if distinct else text


def describe_pixels(array: np.ndarray) -> str:
    """Return `describe_values` of an image (C, ...); of 8-bit colours also the colours, if they are few."""
    if array.shape[0] != 3 or array.dtype != np.uint8:
        return describe_values(array)
    text = describe_values(array, counts=False)
    packed = (array[0].astype(np.uint32) << 16 | array[1].astype(np.uint32) << 8 | array[2]).reshape(-1)
    if len(np.unique(packed[:: max(packed.size // SAMPLED, 1)])) > MAX_COLOURS:
        return text
    values, numbers = np.unique(packed, return_counts=True)
    if len(values) > MAX_COLOURS:
        return text
    colours = [
        f"({int(v) >> 16}, {int(v) >> 8 & 255}, {int(v) & 255}) x {int(n):,}"
        for v, n in zip(values, numbers, strict=True)
    ]
    return f"{text}\nfew colours, as of a painted mask: {', '.join(colours)}"


def _describe_floats(array: np.ndarray) -> str:
    finite = np.isfinite(array)
    bad = int(array.size - np.count_nonzero(finite))
    if bad == array.size:
        return "no finite value"
    values = array if not bad else array[finite]
    text = (
        f"range {float(values.min()):.6g} to {float(values.max()):.6g}, mean {float(values.mean(dtype=np.float64)):.4g}"
    )
    if bad:
        text += f", {bad:,} NaN or infinite"
    sample = values.reshape(-1)[:: max(values.size // (2 * SAMPLED), 1)]
    if np.array_equal(sample, np.rint(sample)) and np.array_equal(values, np.rint(values)):
        distinct = _count_distinct(values)
        return f"{text}; whole numbers{', ' + distinct if distinct else ''}"
    return text


def _count_distinct(array: np.ndarray) -> str:
    """Return the distinct values with counts; "" if there are more than `MAX_DISTINCT`."""
    flat = array.reshape(-1)
    if len(np.unique(flat[:: max(flat.size // SAMPLED, 1)])) > MAX_DISTINCT:
        return ""
    values, numbers = np.unique(flat, return_counts=True)
    if len(values) > MAX_DISTINCT:
        return ""
    return "values " + ", ".join(f"{int(value)} x {int(count):,}" for value, count in zip(values, numbers, strict=True))


def sizes(dims: Any) -> str:
    """Return `240 x 240 x 155`; `scalar` without dimensions."""
    return " x ".join(str(int(size)) for size in dims) or "scalar"
