"""NPY, NPZ, HDF5, pickles and PyTorch files: arrays by name with shapes, types, ranges and class counts."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from m3b.data.phi import Phi, cell, is_personal
from m3b.dataset.formats import DataError, get_format
from m3b.dataset.formats.arrays import ArrayFormat
from m3b.dataset.formats.description import describe_values, sizes
from m3b.errors import ToolError
from m3b.tools.text import pluralize, shorten

_MAX_ARRAYS = 20
_MAX_BYTES = 64 * 2**20
"""Bytes of an array whose values are described; of a longer one only the first item is."""


def preview(path: Path, phi: Phi) -> list[str]:
    """Return the arrays of a file, one a line; nothing in it is executed.

    Raises:
        ToolError: it cannot be read.
    """
    array_format = get_format(path)
    if not isinstance(array_format, ArrayFormat):
        raise ToolError(f"it is {array_format.name}, not the arrays that its name says")
    values = array_format.values(path)
    try:
        arrays = array_format.arrays(path)
    except DataError as error:
        if not values:
            raise ToolError(str(error).removeprefix(f"{path}: ")) from None
        arrays = {}
    lines = [f"{array_format.name} file, {pluralize(len({*arrays, *values}), 'array')}"]
    for name, array in islice(arrays.items(), _MAX_ARRAYS):
        lines.append(f"{name or 'array'}: {_describe(array_format, path, name, array, phi)}")
    for name, texts in islice((item for item in values.items() if item[0] not in arrays), _MAX_ARRAYS):
        lines.append(f"{name}: {sizes(texts.shape)}, {texts.dtype}; {_describe_values(name, texts, phi)}")
    if len(arrays) > _MAX_ARRAYS:
        lines.append(f"... {len(arrays) - _MAX_ARRAYS:,} more arrays, up to {list(arrays)[-1]}")
    return lines


def _describe(array_format: ArrayFormat, path: Path, name: str, array: Any, phi: Phi) -> str:
    """Return shape, type and values of one array."""
    shape = getattr(array, "shape", (len(array),))
    text = f"{sizes(shape)}, {getattr(array, 'dtype', 'list of arrays')}"
    if not hasattr(array, "dtype") or not all(shape):
        return text
    is_whole = array.dtype.itemsize * np.prod(shape, dtype=np.int64) <= _MAX_BYTES
    if not is_whole and len(shape) < 2:
        return f"{text}; values not read"
    try:
        values = array_format.read_array(path, name if is_whole else f"{name}[0]")
    except DataError as error:
        return f"{text}; values not read: {shorten(str(error).replace(f'{path}', ''), 120)}"
    found = _describe_values(name, values, phi)
    return f"{text}; {found}{'' if is_whole else ' (of the first item)'}" if found else text


def _describe_values(name: str, values: np.ndarray, phi: Phi) -> str:
    """Return the range or the counts of values; of vectors, tables with few columns and booleans each number counts as a label."""
    if values.dtype.names:
        parts = {field: _describe_values(field, values[field], phi) for field in values.dtype.names[:_MAX_ARRAYS]}
        return "; ".join(f"{field}: {text}" for field, text in parts.items() if text)
    is_text = values.dtype.kind in "SUO"
    texts = [_to_text(value) for value in values.reshape(-1)] if is_text else []
    if phi == "mask" and is_personal(name, texts):
        return "looks like personal data: masked"
    if is_text:
        values = np.array([shorten(cell(text) if phi == "mask" else text, 60) for text in texts], dtype=str)
    is_table = values.ndim == 2 and values.shape[1] <= 64
    return describe_values(values, counts=values.ndim != 2 or is_table or values.dtype.kind == "b")


def _to_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
