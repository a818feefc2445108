"""What the values of one array say: a picture, a mask (exact or with the noise of compression), labels, instances, probabilities."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

from m3b.dataset.survey.facts import MASK_KINDS, Layers, ValueKind

MAX_LEVELS = 60
"""Distinct values that a label map can have."""
_MAX_INSTANCES = 2_000
_MAX_LAYERS = 32
_MAX_COMPARED = 2_000_000
"""Values that are looked at where a part is enough."""
_MIN_EQUAL_NEIGHBOURS = 0.8
"""Share of neighbouring pixels that are equal in a label map; a picture with few grey values has noise."""
_MIN_COHERENCE = 0.5
_LOSSY_NOISE = 0.14
"""Of the range: how far compression takes a value from its level, at most."""
_COLOUR_ROUNDING = 3
"""How far the channels of a grey picture differ that was compressed as one with colours."""
_MIN_AT_LEVELS = 0.93
_MAX_BETWEEN = 1.0
"""Pixels between two levels (blurred edges), as a part of those of the smaller level."""
_MIN_WHOLE_INSTANCES = 0.9
"""Share of numbered objects in one piece; a few are cut in two by what lies over them."""


@dataclass(frozen=True)
class ValueStructure:
    """The values of one array.

    Args:
        levels: value, or colour "#rrggbb" -> share of the pixels; of mask-like kinds.
        foreground: share of pixels that are not background (0 if there is any, else the lowest value).
        objects: connected parts of the foreground.
        instances: objects that the values 1, 2, 3, ... number, each in one piece; 0 if they do not.
        colour: whether channels differ.
    """

    kind: ValueKind = "unknown"
    low: float = 0.0
    high: float = 0.0
    levels: dict[str, float] = field(default_factory=dict)
    cut: float | None = None
    foreground: float | None = None
    objects: int | None = None
    instances: int = 0
    colour: bool = False


def analyse_values(array: Any, *, channels_last: bool = False) -> ValueStructure:
    """Return the structure of a picture or volume.

    Args:
        array: numbers, `(H, W)` or `(H, W, D)`; with `channels_last` `(H, W, 3)`.
    """
    import numpy as np

    if array.size == 0 or array.dtype.kind not in "biuf":
        return ValueStructure()
    if channels_last:
        spread = array.max(axis=-1) - array.min(axis=-1)
        if spread.max() <= (_COLOUR_ROUNDING if array.max() > 16 * _COLOUR_ROUNDING else 0):
            return analyse_values(array[..., 1])
        return _analyse_colours(array)
    plane = array.astype(np.uint8) if array.dtype.kind == "b" else array
    if plane.dtype.kind == "f":
        plane = np.nan_to_num(plane, posinf=0.0, neginf=0.0)
    low, high = float(plane.min()), float(plane.max())
    if low == high:
        return ValueStructure("constant", low, high, {_write(low): 1.0}, foreground=0.0 if low == 0 else 1.0)
    levels = _count_levels(plane, low, high)
    if levels is not None and (len(levels) == 2 or _is_label_map(plane, levels)):
        return _describe_mask("binary" if len(levels) == 2 else "few_integers", plane, levels)
    if levels is None and _is_whole(plane) and (count := _count_instances(plane, high)):
        marked = plane != 0
        return ValueStructure(
            "instance_ids", low, high, foreground=float(marked.mean()), objects=count, instances=count
        )
    if centres := _find_two_levels(plane, low, high):
        return _describe_mask("lossy_binary", plane, centres, cut=(low + high) / 2)
    if plane.dtype.kind == "f" and low >= 0 and high <= 1 and float(((plane < 0.05) | (plane > 0.95)).mean()) > 0.9:
        return ValueStructure("float_probability", low, high)
    return ValueStructure("grey", low, high)


def combine_layers(array: Any) -> tuple[Any, Layers] | None:
    """Return a label map of masks in layers, numbered from 1, and what the layers are; None if the layers are no masks, or
    overlap as the slices of one thing do.

    Args:
        array: `(H, W, layers)`.
    """
    import numpy as np

    count = array.shape[-1]
    if array.ndim != 3 or not 2 <= count <= _MAX_LAYERS or min(array.shape[:2]) <= count:
        return None
    is_picture = array.dtype == np.uint8 and count in (3, 4) and array.max() > count  # colours of a painted mask
    if is_picture or array.dtype.kind not in "biuf" or array.min() < 0 or not _is_whole(array):
        return None
    marked = array != 0
    covered = marked.sum(axis=-1)
    if covered.max() > 1:
        return None
    kinds = {analyse_values(array[..., place]).kind for place in range(count)}
    if not kinds <= MASK_KINDS | {"constant"} or kinds == {"constant"}:
        return None
    background = None
    if covered.min() == 1:
        background = max(0, count - 1, key=lambda place: float(marked[..., place].mean()))
    labels = np.where(covered > 0, marked.argmax(axis=-1) + 1, 0)
    if background is not None:
        labels[marked[..., background]] = 0
    return labels, Layers(count=count, background=background)


def _analyse_colours(array: Any) -> ValueStructure:
    import numpy as np

    ends = float(array.min()), float(array.max())
    if array.dtype != np.uint8:
        return ValueStructure("colour", *ends, colour=True)
    flat = array.reshape(-1, 3)
    part = flat[:: max(len(flat) // 4096, 1)].astype(np.int64)
    if len(np.unique(part @ np.array([65536, 256, 1]))) > MAX_LEVELS:
        return ValueStructure("colour_regions" if _are_regions(array) else "colour", *ends, colour=True)
    packed = array.astype(np.int32) @ np.array([65536, 256, 1], dtype=np.int32)
    colours, counts = np.unique(packed, return_counts=True)
    levels = {f"#{int(colour):06x}": float(count) / packed.size for colour, count in zip(colours, counts, strict=True)}
    if len(levels) > MAX_LEVELS and _are_regions(array):
        return ValueStructure("colour_regions", *ends, colour=True)
    if len(levels) > MAX_LEVELS or (len(levels) > 2 and _equal_neighbours(packed) < _MIN_EQUAL_NEIGHBOURS):
        return ValueStructure("colour", *ends, colour=True)
    background = 0 if (packed == 0).any() else int(colours[counts.argmax()])
    marked = packed != background
    return ValueStructure(
        "colour_labels", *ends, levels, foreground=float(marked.mean()), objects=_count_objects(marked), colour=True
    )


def _are_regions(array: Any) -> bool:
    """Whether each colour fills one region, as colours that number superpixels or objects do."""
    import numpy as np

    packed = array.astype(np.int32) @ np.array([65536, 256, 1], dtype=np.int32)
    if packed.size > 8 * _MAX_COMPARED or _equal_neighbours(packed) < _MIN_EQUAL_NEIGHBOURS:
        return False
    colours, numbers = np.unique(packed, return_inverse=True)
    return _count_instances(numbers.reshape(packed.shape) + 1, len(colours)) > 0


def _write(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _is_whole(plane: Any) -> bool:
    import numpy as np

    return plane.dtype.kind in "iu" or bool((plane == np.round(plane)).all())


def _count_levels(plane: Any, low: float, high: float) -> dict[float, float] | None:
    """Each value and its share; None if there are more than `MAX_LEVELS`."""
    import numpy as np

    flat = plane.ravel()
    if plane.dtype.kind == "f":
        if len(np.unique(flat[:: max(flat.size // 4096, 1)])) > MAX_LEVELS:
            return None
        values, counts = np.unique(flat, return_counts=True)
    elif high - low < 65536:
        table = np.bincount((flat.astype(np.int64) - int(low)) if low else flat.astype(np.intp, copy=False))
        values = np.flatnonzero(table)
        counts, values = table[values], values + int(low)
    else:
        values, counts = np.unique(flat[:: max(flat.size // _MAX_COMPARED, 1)], return_counts=True)
    if len(values) > MAX_LEVELS:
        return None
    total = float(counts.sum())
    return {float(value): float(count) / total for value, count in zip(values, counts, strict=True)}


def _equal_neighbours(plane: Any) -> float:
    """Share of pixels that equal the next one along the first axis longer than 1."""
    axis = 0 if plane.shape[0] > 1 else 1
    if plane.shape[axis] < 2:
        return 0.0
    ahead = plane[1:] if axis == 0 else plane[:, 1:]
    behind = plane[:-1] if axis == 0 else plane[:, :-1]
    return float((ahead == behind).mean())


def _is_label_map(plane: Any, levels: dict[float, float]) -> bool:
    """Whether few whole values lie in areas, and are not the noise of compression around two levels."""
    if any(value != int(value) for value in levels) or len(levels) > max(plane.size // 16, 3):
        return False
    values = sorted(levels)
    span = values[-1] - values[0]
    # Compression leaves values close to one another at both ends of a wide range, scattered along the borders; scribbles (0 and 1 in
    # thin lines, 255 elsewhere) do so at one end alone.
    nearest = min(after - before for before, after in itertools.pairwise(values))
    n_lower = sum(value <= (values[0] + values[-1]) / 2 for value in values)
    is_compressed = min(n_lower, len(values) - n_lower) > 1
    if span >= 64 and nearest < 8 and _find_two_levels(plane, values[0], values[-1]):
        if not is_compressed:
            return True
        if _coherence(plane, levels) < _MIN_COHERENCE:
            return False
    if len(values) > 8 and _is_smooth(plane, nearest):
        return False
    return _equal_neighbours(plane) >= _MIN_EQUAL_NEIGHBOURS


def _coherence(plane: Any, levels: dict[float, float]) -> float:
    """Of the pixels beside the most frequent values of the lower and the upper half of the range, the share that equals both
    neighbours."""
    middle = (min(levels) + max(levels)) / 2
    low, high = (
        max((value for value in levels if (value > middle) == is_upper), key=lambda value: levels[value])
        for is_upper in (False, True)
    )
    minor = (plane != low) & (plane != high)
    equal = (plane[1:, 1:] == plane[:-1, 1:]) & (plane[1:, 1:] == plane[1:, :-1])
    count = int(minor[1:, 1:].sum())
    return float((equal & minor[1:, 1:]).sum()) / count if count else 1.0


def _is_smooth(plane: Any, nearest: float) -> bool:
    """Whether most neighbours that differ do so by the least steps, as grey values do along every axis; the numbers of labels that
    lie in a row do so along this row alone.

    Args:
        nearest: the least difference of two values of the image.
    """
    import numpy as np

    shares = []
    for axis in range(plane.ndim):
        steps = np.abs(np.diff(plane.astype(np.float64), axis=axis))
        differing = steps[steps > 0]
        if differing.size:
            shares.append(float((differing <= 2 * nearest).mean()))
    return bool(shares) and min(shares) > 0.6


def _find_two_levels(plane: Any, low: float, high: float) -> dict[float, float] | None:
    """The centres of two levels with noise around them, and their shares; None if there is more between.

    The lower level of a mask is 0: that of a CT volume of air and soft tissue lies far below.
    """
    import numpy as np

    if plane.dtype.kind == "f" and high <= 1.001 and low >= -0.001:
        return None  # probabilities have such ends too
    noise = _LOSSY_NOISE * (high - low)
    if low < -noise:
        return None
    below, above = plane <= low + noise, plane >= high - noise
    lower, upper = float(below.mean()), float(above.mean())
    if lower + upper < _MIN_AT_LEVELS or upper < 5e-5 or lower < 5e-5:
        return None
    if 1 - lower - upper > _MAX_BETWEEN * min(lower, upper):
        return None  # a dark picture with bright spots has more between than at the bright end
    # A dark picture with a few bright marks has its low values spread; noise around a level lies close to it.
    dark, bright = plane[below], plane[above]
    if float(np.mean(np.abs(dark - np.median(dark)) <= noise / 3)) < 0.9:
        return None
    if float(np.mean(np.abs(bright - np.median(bright)) <= noise / 2)) < 0.75:
        return None
    return {float(np.median(dark)): lower, float(np.median(bright)): upper}


def _describe_mask(kind: ValueKind, plane: Any, levels: dict[float, float], cut: float | None = None) -> ValueStructure:
    low, high = float(plane.min()), float(plane.max())
    background = 0.0 if cut is None and 0.0 in levels else low
    marked = plane > cut if cut is not None else plane != background
    return ValueStructure(
        kind,
        low,
        high,
        {_write(value): share for value, share in levels.items()},
        cut,
        float(marked.mean()),
        _count_objects(marked),
        _count_instances(plane, high) if kind == "few_integers" else 0,
    )


def _count_instances(plane: Any, high: float) -> int:
    """How many objects the values number: 1 to n without a gap, and nearly all of them in one piece."""
    import numpy as np
    from scipy import ndimage

    if not 1 <= high <= _MAX_INSTANCES or plane.size > 8 * _MAX_COMPARED or float(plane.min()) < 0:
        return 0
    if _equal_neighbours(plane) < 0.5:
        return 0
    numbers = plane.astype(np.int32)
    boxes = ndimage.find_objects(numbers)
    present = [(number, box) for number, box in enumerate(boxes, 1) if box is not None]
    if len(present) < 0.9 * len(boxes) or (len(boxes) <= MAX_LEVELS and len(present) < len(boxes)):
        return 0
    areas = sum(math.prod(side.stop - side.start for side in box) for _, box in present)
    if areas > 4 * plane.size and len(present) > 8:
        return 0  # values that occur all over the picture are grey values
    pieces = sum(ndimage.label(numbers[box] == number)[1] == 1 for number, box in present)
    return len(present) if pieces >= _MIN_WHOLE_INSTANCES * len(present) else 0


def _count_objects(marked: Any) -> int:
    from scipy import ndimage

    steps = tuple(slice(None, None, max(side // 256, 1)) for side in marked.shape)
    return int(ndimage.label(marked[steps])[1])
