"""What a reader of one format hands over of the marks it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Format = Literal["coco", "yolo", "voc", "labelme", "csv_boxes", "csv_circles", "json_boxes", "rtstruct", "dicom_seg"]


@dataclass
class Marks:
    """Marks of one format. `named` are the images as they are named, `marked` how many have a mark."""

    format: Format
    path: str
    files: int
    items: int = 0
    shapes: set[str] = field(default_factory=set)
    classes: Counter[str] = field(default_factory=Counter)
    class_source: str = ""
    named: list[str] = field(default_factory=list)
    marked: int = 0
    group: str = ""
    table: str = ""
    images: str = ""
    """The images' group where the format says it by other means than names."""
    images_found: int = 0
    columns: list[tuple[str, str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    exact: bool = True
    numbers: dict[str, str] = field(default_factory=dict)
    """Where classes are numbers in the files: what each is called."""


FRACTIONS = "fractions"
"""The fault of boxes whose numbers are shares of an image's width and height, which the format does not say."""


def are_fractions(boxes: Iterable[Iterable[float]]) -> bool:
    """Whether the numbers of boxes are shares: none above 1, and some that are no whole numbers."""
    every = [number for box in boxes for number in box]
    return bool(every) and min(every) >= 0 and max(every) <= 1 and any(number % 1 for number in every)


def numbers(cells: Iterable[str]) -> list[float] | None:
    """Cells as numbers; None where one is none."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return None
