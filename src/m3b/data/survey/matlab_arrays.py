"""What MATLAB stores otherwise than others: structures, texts as numbers, and rows before columns."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from m3b.data.survey.array_members import Inner

MAX_TEXT = 256
"""Characters of a MATLAB text that is stored as their numbers."""


def fields_of(name: str, held: Any) -> list[tuple[str, Any]]:
    """The arrays of a MATLAB structure (`cjdata/image`), those of structures in it too; of lists of structures none."""
    if held.dtype.names is None:
        return [(name, held)] if held.dtype.kind != "O" else []
    if held.size != 1:
        return []
    inner = held.reshape(-1)[0]
    return [one for field in held.dtype.names for one in fields_of(f"{name}/{field}", inner[field])]


def as_text(inner: Inner) -> Inner | None:
    """A row of letters and digits as MATLAB 7.3 stores a text: their numbers in 16 bits; None for other data."""
    row = len(inner.shape) == 2 and min(inner.shape) == 1 and 0 < max(inner.shape) <= MAX_TEXT
    if inner.dtype != "uint16" or not row or inner.matlab not in ("", "char"):
        return None
    if not inner.matlab and max(inner.shape) < 3:  # written by another program: few numbers may be numbers
        return None
    codes = [int(code) for code in inner.read(None).ravel()]
    text = "".join(map(chr, codes))
    if max(codes) > 126 or not re.fullmatch(r"[\w .:-]+", text):
        return None

    def read(part: tuple[slice, ...] | None) -> Any:
        import numpy as np

        return np.asarray(text)

    return Inner(inner.key, (), f"<U{len(text)}", read)


def turned(inner: Inner) -> Inner:
    """A dataset of MATLAB 7.3 with rows before columns, as it was written."""

    def read(part: tuple[slice, ...] | None) -> Any:
        import numpy as np

        if len(inner.shape) > 2:  # items first
            return np.asarray(inner.read(part)).swapaxes(-1, -2)
        whole = np.asarray(inner.read(None)).T
        return whole if part is None else whole[part[0]]

    return replace(inner, shape=(*inner.shape[:-2], *inner.shape[:-3:-1]), read=read)
