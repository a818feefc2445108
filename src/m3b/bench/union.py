"""Sets whose score counts any finding alike: truth and answers merged into one class, whatever classes a model has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from m3b.data.index import Index, Record
from m3b.data.reading import read_mask, shared_masks
from m3b.models import Prediction

from .naming import image_reference, write_mask_file

MERGED_FOLDER = "union"


def merge_index(index: Index, name: str, base: Path) -> Index:
    """The index with every mask merged into the class `name`; the merged files are kept in `base`/union."""
    train, test = (tuple(_merge_record(record, base) for record in part) for part in (index.train, index.test))
    return Index(train, test, (name,), index.task, {name: 1})


def _merge_record(record: Record, base: Path) -> Record:
    if not isinstance(record.mask, str):
        return record
    mask_path = base / MERGED_FOLDER / record.mask
    merged_files = list(mask_path.parent.glob(f"{mask_path.name}.union*"))
    if not merged_files:
        mask_path.parent.mkdir(parents=True, exist_ok=True)
        merged_mask = (read_mask(record.mask, str(base)).array > 0).astype(np.uint8)
        merged_files = [
            Path(shared_masks().write_mask(merged_mask, image_reference(record), f"{mask_path}.union", str(base)))
        ]
    return replace(record, mask=str(merged_files[0].relative_to(base)))


def merge_answer(answer: Prediction, name: str, record: Record, base: Path, scratch: Path) -> Prediction:
    """The answer with everything that it marks as the one class `name`."""
    files = [answer.mask] if answer.mask is not None else list(answer.masks.values())
    merged_mask: NDArray[np.bool_] | None = None
    for file in files:
        array = np.asarray(read_mask(str(file)).array > 0)
        merged_mask = array if merged_mask is None else merged_mask | array
    if merged_mask is None:
        return answer
    return replace(
        answer, mask=None, masks={name: write_mask_file(merged_mask.astype(np.uint8), record, base, scratch)}
    )
