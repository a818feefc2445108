"""HDF5: datasets with shapes, types and ranges; links to other files are not followed."""

from __future__ import annotations

from io import BufferedReader
from pathlib import Path
from typing import Any

from m3b.data.phi import Phi, is_personal
from m3b.dataset.formats.description import describe_values, sizes
from m3b.tools.paths import open_for_reading
from m3b.tools.previews.numbers import LOOKED_AT
from m3b.tools.text import pluralize, shorten

_MOST = 40


def preview(path: Path, phi: Phi) -> list[str]:
    """Lines about an HDF5 file, its first 40 datasets one a line."""
    import h5py

    with open_for_reading(path, path.name) as raw, h5py.File(BufferedReader(raw), "r") as file:
        names: list[str] = []
        file.visititems(lambda name, one: names.append(name) if isinstance(one, h5py.Dataset) else None)
        lines = [f"HDF5, {pluralize(len(names), 'dataset')}"]
        lines += [f"{name}: {_dataset(file[name], name, phi)}" for name in names[:_MOST]]
        if len(names) > _MOST:
            lines.append(f"... {len(names) - _MOST:,} more datasets, up to {names[-1]}")
        attributes = [
            f"{key}={shorten(str(value), 60)}" for key, value in list(file.attrs.items())[:10] if not is_personal(key)
        ]
        if attributes:
            lines.append("attributes: " + ", ".join(attributes))
    return lines


def _dataset(dataset: Any, name: str, phi: Phi) -> str:
    text = f"{sizes(dataset.shape)}, {dataset.dtype}" if dataset.shape is not None else "empty"
    if dataset.shape is None or dataset.external or dataset.is_virtual:
        return text + (" (its values lie in other files: not read)" if dataset.shape is not None else "")
    if not dataset.size:
        return text
    per = max(dataset.dtype.itemsize, 1) * dataset.size
    part: Any = dataset[()] if per <= LOOKED_AT or not dataset.shape else None
    note = ""
    if part is None:
        rows = max(int(dataset.shape[0] * LOOKED_AT / per), 1)
        part, note = dataset[:rows], f" (of the first {rows:,} of {dataset.shape[0]:,})"
    if dataset.dtype.kind == "O" or dataset.dtype.kind == "S":
        return f"{text}; {_texts(part, name, phi)}{note}"
    found = describe_values(part)
    return f"{text}; {found}{note}" if found else text


def _texts(values: Any, name: str, phi: Phi) -> str:
    import numpy as np

    flat = np.asarray(values).reshape(-1)
    words = [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in flat[:100_000]]
    if phi == "mask" and is_personal(name.rsplit("/", 1)[-1], words):
        return "looks like personal data: masked"
    return describe_values(np.asarray([shorten(word, 60) for word in words], dtype=str))
