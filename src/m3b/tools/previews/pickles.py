"""PKL and PT files, looked at without running them: keys, shapes, types, ranges, class counts."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from m3b.data.phi import Phi, cell, is_personal, mask
from m3b.dataset.formats.description import describe_values, sizes
from m3b.errors import ToolError
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.archives import open_zip
from m3b.tools.previews.numbers import LOOKED_AT
from m3b.tools.previews.unpickle import Array, Scalar, Tensor, UnsafePickle, load
from m3b.tools.text import pluralize, shorten

_LARGEST = 2**30
_MAX_ITEMS = 40
_MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of a torch file of before version 1.6."""


def preview(path: Path, phi: Phi) -> list[str]:
    """Lines about a pickle. One that needs more than containers, numpy and tensors is refused with a hint."""
    with open_for_reading(path, path.name) as raw:
        return _preview(BufferedReader(raw), phi)


def _preview(file: BufferedReader, phi: Phi) -> list[str]:
    reader = None
    try:
        if zipfile.is_zipfile(file):
            reader = open_zip(file)
            value, kind = _torch(reader), "torch file"
        else:
            file.seek(0)
            value, kind = _plain(file)
        lines: list[str] = []
        _describe(value, "", lines, _Look(reader, phi), 0)
        return [f"{kind}, read without running it: {lines[0].strip()}", *lines[1:120]]
    except UnsafePickle as error:
        return [
            f"pickle, not opened: {error}",
            "look at it with run_script if it is needed; scripts run confined",
        ]
    finally:
        if reader:
            reader.close()


def _torch(archive: zipfile.ZipFile) -> Any:
    names = [name for name in archive.namelist() if name.endswith("data.pkl")]
    if not names:
        raise ToolError("a ZIP archive without the data.pkl of a torch file")
    if archive.getinfo(names[0]).file_size > _LARGEST:
        raise ToolError("its structure alone is larger than 1 GiB")
    found = load(archive.read(names[0]))
    return found[0] if found else None


def _plain(file: BufferedReader) -> tuple[Any, str]:
    data = bytearray()
    while len(data) <= _LARGEST and (block := file.read(1 << 24)):
        data += block
    if len(data) > _LARGEST:
        raise ToolError("a pickle larger than 1 GiB; look at it with run_script")
    found = load(bytes(data))
    if found and found[0] == _MAGIC:
        return (found[3] if len(found) > 3 else None), "torch file (old format)"
    return (found[0] if found else None), "pickle"


class _Look:
    """What is needed to look at values: the archive with the memory of tensors, and whether to mask."""

    def __init__(self, archive: zipfile.ZipFile | None, phi: Phi) -> None:
        self.archive, self.phi = archive, phi

    def tensor(self, tensor: Tensor) -> str:
        """Range and class counts of a tensor that is stored in one piece and is not too large."""
        import numpy as np

        storage = tensor.storage
        count, width = 1, 1
        for one in tensor.shape:
            count *= one
        for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=False):
            if size > 1 and stride != width:
                return ""
            width *= size
        if self.archive is None or not storage.dtype.startswith(("<", "|")):
            return ""
        names = [name for name in self.archive.namelist() if name.endswith(f"/data/{storage.key}")]
        dtype = np.dtype(storage.dtype)
        if not names or not 0 < count * dtype.itemsize <= LOOKED_AT:
            return ""
        with self.archive.open(names[0]) as file:
            file.seek(tensor.offset * dtype.itemsize)
            data = file.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            return "cut off"
        return describe_values(np.frombuffer(data, dtype), counts=len(tensor.shape) <= 1)


def _describe(value: Any, indent: str, lines: list[str], look: _Look, depth: int) -> None:
    lines.append(indent + _one(value, look))
    if depth >= 4 or len(lines) > 120:
        return
    if isinstance(value, Mapping):
        keys = [str(key) for key in list(value)[:200]]
        for key, item in list(value.items())[:_MAX_ITEMS]:
            held = [*item[:200], item] if isinstance(item, list | tuple) else [item]
            if look.phi == "mask" and is_personal(str(key), held, keys):
                lines.append(f"{indent}  {key}: looks like personal data: masked")
                continue
            before = len(lines)
            _describe(item, indent + "  ", lines, look, depth + 1)
            lines[before] = f"{indent}  {_key(key)}: {lines[before].strip()}"
        if len(value) > _MAX_ITEMS:
            lines.append(f"{indent}  ... {len(value) - _MAX_ITEMS:,} more keys")
    elif isinstance(value, list | tuple) and any(
        isinstance(one, Mapping | list | tuple | Array | Tensor) for one in value[:5]
    ):
        _describe(value[0], indent + "  ", lines, look, depth + 1)
        if len(value) > 1:
            lines.append(f"{indent}  ... {pluralize(len(value) - 1, 'more item')}")


def _key(key: Any) -> str:
    return shorten(cell(str(key)), 80)


def _one(value: Any, look: _Look) -> str:
    """One value in a line."""
    if isinstance(value, Array):
        values = value.values()
        text = f"array {sizes(value.shape)}, {value.dtype.code}"
        found = describe_values(values, counts=len(value.shape) <= 1) if values is not None else ""
        return f"{text}; {found}" if found else text
    if isinstance(value, Tensor):
        text = f"tensor {sizes(value.shape)}, {value.storage.dtype}"
        found = look.tensor(value)
        return f"{text}; {found}" if found else text
    if isinstance(value, Scalar):
        return f"numpy scalar, {value.dtype.code}"
    if isinstance(value, Mapping):
        return f"dictionary with {pluralize(len(value), 'key')}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"{type(value).__name__} of {pluralize(len(value), 'item')}{_vocabulary(value, look)}"
    if isinstance(value, bytes | bytearray):
        return f"{len(value):,} bytes"
    if isinstance(value, str):
        return f"text {mask(value) if look.phi == 'mask' and is_personal('', [value]) else shorten(cell(value), 80)!r}"
    return shorten(
        f"{type(value).__name__} {value!r}" if isinstance(value, int | float | bool) else str(type(value).__name__), 80
    )


def _vocabulary(value: Any, look: _Look) -> str:
    """Value counts of a list of labels."""
    items = list(value)[:100_000]
    if not items or not all(isinstance(one, str | int) for one in items):
        return ""
    words = [one for one in items[:200] if isinstance(one, str)]
    if look.phi == "mask" and is_personal("", words):
        return "; looks like personal data: masked"
    counts = Counter(items)
    if len(counts) > 20:
        return f" such as {shorten(cell(str(items[0])), 60)!r}"
    return ": " + ", ".join(f"{shorten(cell(str(one)), 60)} x {number:,}" for one, number in counts.most_common())
