"""One look at the boxes of an image: do they lie in it?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.reading import boxes_to_array
from m3b.data.records import Record
from m3b.errors import DataError


@dataclass(frozen=True)
class BoxLook:
    """What is wrong with the boxes of one image, in words; empty where nothing is."""

    error: str = ""
    wrong_dims: str = ""
    outside: str = ""
    beyond: str = ""


def look_at_boxes(record: Record, work: Path, image: Any) -> BoxLook | None:
    """Hold the boxes of a case against its image, `(C, H, W[, D])`; None where there are none."""
    sizes = image.shape[1:]
    found = {"wrong_dims": "", "outside": "", "beyond": ""}
    for one in record.boxes or ():
        words = f"{one.label} {list(one.box)}"
        if len(one.box) != 2 * len(sizes):
            found["wrong_dims"] = found["wrong_dims"] or words
            continue
        try:
            box = boxes_to_array(one.box, record.reference, str(work))
        except DataError as error:
            return BoxLook(error=str(error))
        half = len(sizes)
        edges = list(zip(box[:half], box[half:], sizes, strict=True))
        if any(upper <= 0 or lower >= size for lower, upper, size in edges):
            found["outside"] = found["outside"] or words
        elif any(lower < -1 or upper > size + 1 for lower, upper, size in edges):
            found["beyond"] = found["beyond"] or words
    return BoxLook(**found) if record.boxes else None
