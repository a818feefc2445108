"""What a reader of one format hands over of the marks it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from m3b.data.box_places import Space
from m3b.data.run_lengths import RunRule
from m3b.data.survey.annotations.outline import DrawnOutline

Format = Literal[
    "coco",
    "yolo",
    "voc",
    "labelme",
    "aperio",
    "cvat",
    "via",
    "csv_boxes",
    "csv_circles",
    "csv_lists",
    "csv_runs",
    "json_boxes",
    "rtstruct",
    "dicom_seg",
]
UNNAMED = "(none)"
"""The class of marks that nothing names."""
IN_PERCENT = "rectanglelabels"
"""How exports of Label Studio call the class of a box, whose numbers are percent of the image (labelstud.io, export formats)."""
OPEN = "?"
"""The form of boxes whose numbers may be two corners, or a corner with sizes."""


@dataclass
class Marks:
    """Marks of one format. `named` are the images as they are named, `marked` how many have a mark.

    Args:
        numbers: where classes are numbers in the files, what each is called.
        drawn: of boxes in tables, the image as it is named and the numbers in their form.
        form: of these numbers (`corners`, `sides`, `centres`); `?`: not known yet; empty for other formats.
        unsure: whether a corner and a middle are called alike, so that what fits both is open.
        ball: whether a box is given as a middle and a diameter.
        in_mm: whether names say that coordinates are mm of the patient.
        sizes_mm: whether names say that sizes are mm.
        labels: the class of each that is drawn.
        volumes: whether the images that were measured are volumes.
        runs: of masks as run lengths, the image as it is named and the numbers.
        run_rule: how these are counted.
    """

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
    drawn: list[tuple[str, tuple[float, ...]]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    form: str = ""
    unsure: bool = False
    ball: bool = False
    in_mm: bool = False
    sizes_mm: bool = False
    volumes: bool = False
    space: Space = "pixels"
    runs: list[tuple[str, list[int]]] = field(default_factory=list)
    run_rule: RunRule | None = None

    def settle(self, form: str) -> None:
        """Take a form, and call the columns after it."""
        if self.form == "sides" and form == "centres":
            turned = {"x": "cx", "y": "cy", "z": "cz"}
            self.columns = [(turned.get(role, role), name) for role, name in self.columns]
        self.columns = [(form if role == OPEN else role, name) for role, name in self.columns]
        self.form = form


def named_outlines(format: Format, path: str, group: str, outlines: Iterable[DrawnOutline]) -> Marks:
    """The marks of a file that names its images itself."""
    every = list(outlines)
    drawn = [one for one in every if one.points]
    marks = Marks(format, path, 1, len(drawn), group=group, class_source="label")
    marks.shapes = {"polygon" if one.bounds else "box" for one in drawn}
    marks.classes.update(one.label or UNNAMED for one in drawn)
    marks.named = sorted({one.image for one in every})
    marks.marked = len({one.image for one in drawn})
    return marks


def numbers(cells: Iterable[str]) -> list[float] | None:
    """Cells as numbers; None where one is none."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return None
