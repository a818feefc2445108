"""Single values in array files as texts: what a file says of its case, or a vector of each of its items."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.array_files import opened_members

Values = dict[str, str]
"""A text by path."""


def text_of(value: Any) -> str | None:
    """One number or text, whatever array it is wrapped in; whole numbers without a point. A vector of zeros with a single
    one is the place of that one. None where it holds several values."""
    import numpy as np

    flat = np.asarray(value).ravel()
    if flat.size > 1 and flat.dtype.kind in "biuf" and (flat != 0).sum() == 1 and flat.max() == 1:
        return str(int(flat.argmax()))
    if flat.size != 1:
        return None
    one = flat[0].item() if hasattr(flat[0], "item") else flat[0]
    if isinstance(one, bytes):
        one = one.decode("utf-8", "replace")
    return (str(int(one)) if isinstance(one, float) and one.is_integer() else str(one)).strip()


def texts_of(array: Any) -> list[str | None]:
    """The text of each item along the first axis, as `text_of` gives it."""
    return [text_of(one) for one in array]


def single_values(
    root: Path, paths: Sequence[str], suffix: str, keys: Collection[str], late: Callable[[], bool]
) -> dict[str, Values]:
    """Key -> the text that each file has under it; files that do not open, or lack it, have none.

    Args:
        late: whether there is no time left; what was read until then is given.
    """
    found: dict[str, Values] = {key: {} for key in keys}
    for path in paths:
        if late():
            break
        try:
            held = attempt(partial(_held, root / path, suffix, keys), root / path)
        except Unreadable:
            continue
        for key, text in held.items():
            found[key][path] = text
    return found


def _held(path: Path, suffix: str, keys: Collection[str]) -> Values:
    with opened_members(path, suffix) as (_, inners):
        small = [one for one in inners if one.key in keys and max(one.shape, default=1) == 1]
        return {one.key: text for one in small if (text := text_of(one.read(None))) is not None}
