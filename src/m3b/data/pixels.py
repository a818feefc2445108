"""What the values of one array say: a picture, a mask (exact or with compression noise), labels, probabilities."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

ValueKind = Literal["picture", "mask", "lossy_mask", "labels", "probability", "constant", "unknown"]
MAX_LABELS = 64
GRID = 32
"""Side of the coarse copy of a mask by which masks of different cases are compared."""
_LOOKED_AT = 2_000_000
_WHOLE = 0.9
"""Share of numbered objects that are in one piece; a few are cut in two by what lies over them."""
_NEAR = 0.14
"""Of the range: what compression takes a level away, at most."""
_TWO_LEVELS = 0.93
_PROBABLE = 0.9


@dataclass(frozen=True)
class Values:
    """The value structure of one array. `levels` maps a value to its share; `coarse` is the foreground on a grid."""

    kind: ValueKind
    low: float = 0.0
    high: float = 0.0
    levels: dict[float, float] = field(default_factory=dict)
    cut: float | None = None
    foreground: float | None = None
    coarse: Any = None
    objects: int | None = None
    counted: int = 0
    """Of labels: how many objects their values 1, 2, 3, ... number one by one, each in one piece; 0 where they do not."""


def values_of(array: Any) -> Values:
    """The structure of an array `(C, H, W)` or `(C, H, W, D)` of any number type."""
    import numpy as np

    if array.size == 0 or array.dtype.kind not in "biuf":
        return Values("unknown")
    plane = _one_channel(array)
    if plane.dtype.kind == "f":
        plane = np.nan_to_num(plane, posinf=0.0, neginf=0.0)
    low, high = float(plane.min()), float(plane.max())
    if low == high:
        return Values("constant", low, high, {low: 1.0}, foreground=0.0 if low == 0 else 1.0)
    ends = (low, high) if array.shape[0] != 3 else (float(array.min()), float(array.max()))
    levels = _levels(plane, low, high)
    if levels is not None and len(levels) <= 2:
        return _mask("mask", plane, low, high, levels)
    if levels is not None and _stand_apart(levels, high - low):
        return (
            _mask("labels", plane, low, high, levels) if _are_labels(levels, plane.size) else Values("picture", *ends)
        )
    if centres := _two_levels(plane, low, high):
        return _mask("lossy_mask", plane, low, high, centres, cut=(low + high) / 2)
    if levels is not None and _are_labels(levels, plane.size):
        return _mask("labels", plane, low, high, levels)
    if plane.dtype.kind == "f" and low >= 0 and high <= 1 and _at_ends(plane):
        return Values("probability", *ends)
    return Values("picture", *ends)


def _one_channel(array: Any) -> NDArray[Any]:
    """Colours as one number each, so that a mask painted in colours is seen as labels; several channels as they are."""
    import numpy as np

    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    if array.shape[0] == 3 and array.dtype == np.uint8:
        wide = array.astype(np.int64)
        return np.asarray(wide[0] * 65536 + wide[1] * 256 + wide[2])
    return np.asarray(array[0])


def _levels(plane: Any, low: float, high: float) -> dict[float, float] | None:
    """Each value and its share where there are few; None where there are many or fractions of many kinds."""
    import numpy as np

    step = max(plane.size // _LOOKED_AT, 1)
    few = plane.ravel()[::step] if plane.dtype.kind == "f" else plane.ravel()
    if plane.dtype.kind == "f":
        if len(np.unique(few[:4096])) > MAX_LABELS:
            return None
        found, counts = np.unique(few, return_counts=True)
    elif high - low < 65536:
        table = np.bincount((few - low if low else few).astype(np.int64, copy=False))
        found = np.flatnonzero(table)
        counts, found = table[found], found + low
    else:
        found, counts = np.unique(few[:: max(few.size // _LOOKED_AT, 1)], return_counts=True)
    if len(found) > MAX_LABELS:
        return None
    return {float(value): float(count) / few.size for value, count in zip(found, counts, strict=True)}


def _stand_apart(levels: dict[float, float], span: float) -> bool:
    """Whether whole values cannot be the noise of compression: a narrow range, or few values far from each other."""
    if any(value != int(value) for value in levels):
        return False
    values = sorted(levels)
    return span < 64 or (len(values) <= 8 and min(b - a for a, b in itertools.pairwise(values)) >= 8)


def _two_levels(plane: Any, low: float, high: float) -> dict[float, float] | None:
    """The centres of two levels with noise around, and their shares; None where there is more between."""
    import numpy as np

    if plane.dtype.kind == "f" and high <= 1.001 and low >= -0.001:
        return None  # probabilities have such ends too
    near = _NEAR * (high - low)
    below, above = plane <= low + near, plane >= high - near
    lower, upper = float(below.mean()), float(above.mean())
    if lower + upper < _TWO_LEVELS or upper < 5e-5 or lower < 5e-5:
        return None
    # A dark picture with a few bright marks has its low values spread; noise around a level lies close to it.
    dark, bright = plane[below], plane[above]
    if float(np.mean(np.abs(dark - np.median(dark)) <= near / 3)) < 0.9:
        return None
    if float(np.mean(np.abs(bright - np.median(bright)) <= near / 2)) < 0.75:
        return None
    return {float(np.median(dark)): lower, float(np.median(bright)): upper}


def _are_labels(levels: dict[float, float], size: int) -> bool:
    """Whole values, few for the size, most of the picture on the commonest of them."""
    whole = all(value == int(value) for value in levels)
    return whole and len(levels) <= max(size // 64, 3) and (len(levels) <= 8 or max(levels.values()) > 0.3)


def _at_ends(plane: Any) -> bool:
    near = (plane < 0.05) | (plane > 0.95)
    return bool(near.mean() > _PROBABLE)


def _mask(
    kind: ValueKind, plane: Any, low: float, high: float, levels: dict[float, float], cut: float | None = None
) -> Values:
    border = _background(plane, low, cut)
    marked = plane > cut if cut is not None else plane != border
    labels = kind == "labels"
    return Values(
        kind, low, high, levels, cut, float(marked.mean()), _coarse(marked), None if labels else _objects(marked),
        _counted(plane, levels) if labels else 0,
    )  # fmt: skip


def _counted(plane: Any, levels: dict[float, float]) -> int:
    """How many objects the values number: 1 to n without a gap, and nearly all of them in one piece."""
    from scipy import ndimage

    values = sorted(int(value) for value in levels if value > 0)
    if values != list(range(1, len(values) + 1)) or min(levels) < 0 or plane.size > _LOOKED_AT:
        return 0
    boxes = ndimage.find_objects(plane.astype("int32"))
    whole = sum(ndimage.label(plane[box] == at)[1] == 1 for at, box in enumerate(boxes, 1) if box is not None)
    return len(values) if whole >= _WHOLE * len(values) else 0


def _background(plane: Any, low: float, cut: float | None) -> float:
    """Zero where there is any, else the lowest value."""
    return 0.0 if cut is None and (plane == 0).any() else low


def _coarse(marked: Any) -> Any:
    """The foreground on a grid of at most 32 a side, by picking."""
    import numpy as np

    picks = [np.linspace(0, side - 1, min(side, GRID)).astype(int) for side in marked.shape]
    return marked[np.ix_(*picks)]


def _objects(marked: Any) -> int:
    from scipy import ndimage

    steps = tuple(slice(None, None, max(side // 256, 1)) for side in marked.shape)
    return int(ndimage.label(marked[steps])[1])
