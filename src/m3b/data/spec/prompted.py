"""Masks that were prompted for in the run: they stand in for those that images lack, in training alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.data.kinds.segmentation import BY_PROMPTS, ORIGIN
from m3b.data.reading import read_mask
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.places import PROMPTED
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_data_json

if TYPE_CHECKING:
    from m3b.data.spec.cases import CaseDraft
    from m3b.data.spec.masks import MaskSource

__all__ = ["BY_PROMPTS", "LIST", "NO_TRUTH", "ORIGIN", "listed", "mask_for"]

LIST = f"{PROMPTED}/masks.json"
NO_TRUTH = "a test case without a mask of its own: one that was prompted for is no truth"


def listed(work: Path) -> dict[str, list[tuple[str, str]]]:
    """Image as an index names it -> (what was marked, file below `work`), as `masks.json` has them; none where there is no
    such file.

    Raises:
        DataError: the file is not what m3b writes.
    """
    file = work / LIST
    if not file.is_file():
        return {}
    try:
        rows = parse_data_json(file.read_text(encoding="utf-8"))
        found: dict[str, list[tuple[str, str]]] = {}
        for row in rows:
            found.setdefault(str(row["image"]), []).append((str(row["target"]), str(row["file"])))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{LIST} cannot be read: {error}. Remove it, and prompt again.") from error
    return found


def mask_for(source: MaskSource, case: CaseDraft, made: list[tuple[str, str]]) -> str | Mapping[str, str]:
    """The mask of a case out of prompted ones, written with the number of its class.

    A target that is called like a class is that class; where there is one class alone, any target is.

    Raises:
        LeaveOut: no prompted mask is of a class of this index, or one cannot be read.
    """
    import numpy as np

    classes = source.masks.classes
    named = {name.casefold(): name for name in classes}
    layers: dict[str, np.ndarray] = {}
    for target, file in made:
        name = named.get(target.casefold()) or (next(iter(classes)) if len(classes) == 1 else None)
        if name is None or Path(file).parent.as_posix() != PROMPTED:
            continue
        try:
            marked = read_mask(file, str(source.work)).array != 0
        except DataError as error:
            raise LeaveOut("its prompted mask cannot be read") from error
        layers[name] = layers[name] | marked if name in layers else marked
    if not layers:
        raise LeaveOut("no mask; what was prompted for is no class of this index")
    if source.masks.combine == "classes":
        return {name: source.written(case, layers[name].astype(np.uint8)) for name in classes if name in layers}
    whole = np.zeros(next(iter(layers.values())).shape, np.uint16)
    for name, value in classes.items():
        if name in layers:
            whole[layers[name]] = value
    return source.written(case, whole)
