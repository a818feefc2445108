"""Array archives with some of their items only: same keys, shapes and indices, everything else zero or left out."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3b.data.archive_writers import WRITERS, Items
from m3b.data.reading import shared
from m3b.errors import DataError


def subset(source: Path, target: Path, keys: Mapping[str, Items]) -> bool:
    """Write the wanted items of an archive to `target`, in its format.

    Returns:
        False, with nothing written, where the archive holds nothing else, so that it can be taken as it is.

    Raises:
        DataError: it cannot be read, or has no such item.
    """
    arrays = shared().arrays
    try:
        held = arrays.open_arrays(source)
        chosen = {name: _normal(held[name], items) for name, items in _named(held, keys, source).items()}
        if _all(held, chosen):
            return False
        WRITERS[source.suffix.lower()](source, target, held, chosen)
    except (arrays.ArrayError, zipfile.BadZipFile, IndexError) as error:
        raise DataError(f"{source.name}: cannot be taken apart: {error}") from error
    return True


def _named(held: Mapping[str, Any], keys: Mapping[str, Items], source: Path) -> dict[str, Items]:
    """By the arrays' own names: a reference may leave out the name of the only one."""
    found: dict[str, Items] = {}
    for key, items in keys.items():
        chosen = shared().arrays.pick_array(source, key)
        name = next(name for name, array in held.items() if array is chosen)
        before = found.get(name, set())
        found[name] = None if items is None or before is None else before | items
    return found


def _normal(array: Any, items: Items) -> Items:
    if items is None:
        return None
    length = len(array)
    if bad := [item for item in items if not -length <= item < length]:
        raise IndexError(f"item {bad[0]} of {length}")
    return {item % length for item in items}


def _all(held: Mapping[str, Any], chosen: Mapping[str, Items]) -> bool:
    whole = (items is None or len(items) == len(held[name]) for name, items in chosen.items())
    return chosen.keys() == held.keys() and all(whole)
