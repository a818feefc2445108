"""Sets whose score counts any finding alike: truth and answers merged into one class, whatever classes a model has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.data.index import Index, Record
from m3b.data.reading import read_mask, shared_masks
from m3b.models import Prediction

from .naming import image, write

FOLDER = "union"


def merged_index(index: Index, name: str, base: Path) -> Index:
    """The index with every mask merged into the class `name`; the merged files are kept in `base`/union."""
    train, test = (tuple(_merged(record, base) for record in part) for part in (index.train, index.test))
    return Index(train, test, (name,), index.task, {name: 1})


def _merged(record: Record, base: Path) -> Record:
    if not isinstance(record.mask, str):
        return record
    place = base / FOLDER / record.mask
    found = list(place.parent.glob(f"{place.name}.union*"))
    if not found:
        place.parent.mkdir(parents=True, exist_ok=True)
        marked = (read_mask(record.mask, str(base)).array > 0).astype(np.uint8)
        found = [Path(shared_masks().write_mask(marked, image(record), f"{place}.union", str(base)))]
    return replace(record, mask=str(found[0].relative_to(base)))


def merged_answer(answer: Prediction, name: str, record: Record, base: Path, scratch: Path) -> Prediction:
    """The answer with everything that it marks as the one class `name`."""
    files = [answer.mask] if answer.mask is not None else list(answer.masks.values())
    marked: NDArray[np.bool_] | None = None
    for file in files:
        array = np.asarray(read_mask(str(file)).array > 0)
        marked = array if marked is None else marked | array
    if marked is None:
        return answer
    return replace(answer, mask=None, masks={name: write(marked.astype(np.uint8), record, base, scratch)})
