"""What an array holds, in a line: range, and the values where they are few."""

from __future__ import annotations

from typing import Any

MAX_VALUES = 32
LOOKED_AT = 64 * 2**20
"""Bytes of one array that are looked at; of longer ones only so much, and that is said."""


def describe(array: Any, *, counts: bool = True) -> str:
    """Range of a numeric numpy array, and its values with their counts when they are few integers."""
    import numpy as np

    if array.size == 0:
        return "empty"
    if array.dtype.kind in "SU":
        values, number = np.unique(array, return_counts=True)
        if len(values) > MAX_VALUES:
            return f"{len(values):,} distinct, such as {str(values[0])!r}"
        return "values " + ", ".join(f"{str(v)!r} x {n:,}" for v, n in zip(values, number, strict=True))
    if array.dtype.kind not in "biufc":
        return ""
    if array.dtype.kind == "c":
        return "complex"
    if array.dtype.kind == "f":
        return _floats(array)
    low, high = array.min(), array.max()
    text = f"range {int(low)} to {int(high)}"
    if not counts:
        return text
    few = _few(array)
    return f"{text}; {few}" if few else text


def _floats(array: Any) -> str:
    import numpy as np

    finite = np.isfinite(array)
    bad = int(array.size - np.count_nonzero(finite))
    if bad == array.size:
        return "no finite value"
    kept = array if not bad else array[finite]
    text = f"range {float(kept.min()):.6g} to {float(kept.max()):.6g}, mean {float(kept.mean(dtype=np.float64)):.4g}"
    if bad:
        text += f", {bad:,} NaN or infinite"
    part = kept.reshape(-1)[:: max(kept.size // 100_000, 1)]
    if np.array_equal(part, np.rint(part)) and np.array_equal(kept, np.rint(kept)):
        few = _few(kept)
        return f"{text}; whole numbers{', ' + few if few else ''}"
    return text


def _few(array: Any) -> str:
    """The distinct values with counts, when there are at most 32."""
    import numpy as np

    flat = array.reshape(-1)
    if len(np.unique(flat[:: max(flat.size // 50_000, 1)])) > MAX_VALUES:
        return ""
    values, number = np.unique(flat, return_counts=True)
    if len(values) > MAX_VALUES:
        return ""
    return "values " + ", ".join(f"{int(v)} x {int(n):,}" for v, n in zip(values, number, strict=True))


def shape(dims: Any) -> str:
    """`240 x 240 x 155`; `scalar` without dimensions."""
    return " x ".join(str(int(one)) for one in dims) or "scalar"
