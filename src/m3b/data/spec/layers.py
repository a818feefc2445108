"""Masks of which every class is a layer along the last axis of an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.reading import shared
from m3b.errors import DataError


def layers_of(root: Path, reference: str, places: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Class -> `(H, W)` bool: where one of its layers is above 0.

    Args:
        reference: of an array, or its item, `(H, W, K)`, below `root`.
        places: class -> its layers, from 0.

    Raises:
        DataError: it cannot be read, or has no such layer.
    """
    arrays = shared().arrays
    named = arrays.parse_reference(reference)
    try:
        array = arrays.read_array(
            root / (named.file if named else reference), *((named.key, named.index) if named else ())
        )
    except arrays.ArrayError as error:
        raise DataError(str(error)) from error
    most = max((place for some in places.values() for place in some), default=0)
    if array.ndim != 3 or array.shape[-1] <= most:
        shape = "x".join(map(str, array.shape))
        raise DataError(f"masks.layers names layer {most}; a mask is of shape {shape}, its layers along the last axis")
    return {name: (array[..., list(some)] > 0).any(axis=-1) for name, some in places.items()}
