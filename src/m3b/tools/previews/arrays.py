"""NPY and NPZ: keys, shapes, types, ranges, class counts."""

from __future__ import annotations

import zipfile
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from m3b.data.phi import Phi
from m3b.dataset.formats.description import describe_values, sizes
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.archives import open_zip
from m3b.tools.previews.numbers import LOOKED_AT
from m3b.tools.text import pluralize

_MAX_KEYS = 40


def preview(path: Path, phi: Phi) -> list[str]:
    """Lines about an array file; arrays of Python objects are not opened, for that would run code."""
    with open_for_reading(path, path.name) as raw:
        file = BufferedReader(raw)
        if zipfile.is_zipfile(file):
            return _archive(file)
        file.seek(0)
        return ["NPY array, " + _array(file)]


def _archive(source: IO[bytes]) -> list[str]:
    with open_zip(source) as archive:
        names = archive.namelist()
        lines = [f"NPZ archive, {pluralize(len(names), 'array')}"]
        for name in names[:_MAX_KEYS]:
            with archive.open(name) as file:
                lines.append(f"{name.removesuffix('.npy')}: {_array(file)}")
    if len(names) > _MAX_KEYS:
        lines.append(f"... {len(names) - _MAX_KEYS} more, such as {names[-1].removesuffix('.npy')}")
    return lines


def _array(file: IO[bytes]) -> str:
    """One array from a stream: its header, then as much of its values as is looked at."""
    import numpy as np

    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    dims, fortran, dtype = read(file)
    text = f"{sizes(dims)}, {dtype}"
    if dtype.hasobject:
        return f"{text} (Python objects: not opened, loading them runs code)"
    total = dtype.itemsize
    for one in dims:
        total *= one
    wanted = min(total, max(LOOKED_AT // max(dtype.itemsize, 1), 1) * dtype.itemsize)
    data = _exactly(file, wanted)
    if len(data) < wanted:
        return f"{text}; cut off: {len(data):,} of {total:,} bytes are there"
    values: Any = np.frombuffer(data, dtype=dtype)
    if total == wanted and not fortran:
        values = values.reshape(dims)
    note = "" if total == wanted else f" (of the first {wanted // 2**20} of {total // 2**20} MiB)"
    found = describe_values(values, counts=_are_labels(dims, dtype))
    return f"{text}; {found}{note}" if found else text


def _are_labels(dims: tuple[int, ...], dtype: Any) -> bool:
    """Vectors, and tables with few columns, may be labels; pictures are not counted value by value."""
    return len(dims) <= 1 or (len(dims) == 2 and dims[1] <= 64) or dtype.kind == "b"


def _exactly(file: IO[bytes], wanted: int) -> bytearray:
    data = bytearray()
    while len(data) < wanted and (block := file.read(min(wanted - len(data), 1 << 22))):
        data += block
    return data
