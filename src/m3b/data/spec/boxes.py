"""The boxes of a case: what files mark on it, in pixels or voxels of its image."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from m3b.data.box_places import BoxGrid, Source, clipped, grid_for, to_voxels, upright
from m3b.data.records import BoxLabel
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.box_files import read_marks
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.labels import LeaveOut
from m3b.data.spec.model import Boxes as BoxesSpec
from m3b.data.spec.opened import UNREADABLE
from m3b.data.spec.patterns import PatternError, filled
from m3b.data.survey.keys import key as normal
from m3b.errors import DataError

Marks = dict[tuple[str, str], list[tuple[str, tuple[float, ...]]]]
"""The image's key, and the file where it has one of its own -> the class as it is named and the box."""
AN_IMAGE = ("yolo", "voc", "labelme", "aperio")
"""Formats of a file an image."""


@dataclass
class BoxSource:
    """Finds the boxes of cases.

    Args:
        cases: all of them: an annotation file is of that one which lies nearest, where several are called like it.
        notes: what was left out, by reason.
        told: how coordinates were read, where a format leaves that open.
    """

    spec: BoxesSpec
    folder: DataFolder
    accounting: Accounting
    cases: Sequence[CaseDraft] = ()
    notes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    told: str = ""
    _marks: Marks = field(default_factory=dict)
    _files: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _called: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        items = self.folder.items(self.spec.files)
        if not items:
            raise PatternError(f"No file matches boxes.files.pattern {self.spec.files.pattern!r}.")
        own = self.spec.format in AN_IMAGE
        marks: Marks = defaultdict(list)
        for item in items:
            for image, name, box in read_marks(self.spec, self.folder.root, item):
                key = normal(self.spec.rule, image)
                place = (key, item.path) if own else (key, "")
                self._files[key].add(place[1])
                if name:
                    marks[place].append((name, box))
                else:
                    marks.setdefault(place, [])
        self._marks = self._from_one(marks) if self.spec.format == "voc" else dict(marks)
        for case in self.cases:
            self._called[self._key(case)].append(case.name)
        self.accounting.use((item.path for item in items), "annotation")

    def _from_one(self, marks: Marks) -> Marks:
        """Pascal VOC counts pixels from 1 and includes the last, so that a box begins one earlier; files that have a 0
        count from 0."""
        if any(min(box[:2]) < 1 for listed in marks.values() for _, box in listed):
            self.told = "boxes of these VOC files count pixels from 0, as some begin at 0"
            return dict(marks)
        self.told = "Pascal VOC counts pixels from 1: 1 is taken off xmin and ymin"
        return {
            name: [(label, (box[0] - 1, box[1] - 1, *box[2:])) for label, box in listed]
            for name, listed in marks.items()
        }

    def boxes_of(self, case: CaseDraft) -> tuple[BoxLabel, ...]:
        """What is marked; empty for a healthy image.

        Raises:
            LeaveOut: no annotation names the image, where that does not mean that it is healthy; or it does not open, or
                does not say what its boxes take.
        """
        named = self._named()
        found: dict[BoxLabel, None] = {}
        marks = self._of(case)
        grid = _grid(case, self.folder) if marks else None
        if grid is not None and self.spec.format != "yolo" and self.spec.space == "pixels":
            boxes = upright([box for _, box in marks], grid)
            marks = [(name, box) for (name, _), box in zip(marks, boxes, strict=True)]
        for name, box in marks:
            wanted = named.get(normal("exact", name))
            if wanted is None:
                self.notes["of a class that is not asked for"] += 1
                continue
            assert grid is not None
            inside = self._inside(grid, box)
            if inside is None:
                self.notes["without area, or outside its image"] += 1
                continue
            if BoxLabel(wanted, inside) in found:
                self.notes["listed twice for the same image"] += 1
            found[BoxLabel(wanted, inside)] = None
        return tuple(found)

    def classes_of(self, case: CaseDraft) -> tuple[str, ...]:
        """The classes of what is marked, without a look at the image.

        Raises:
            LeaveOut: as `boxes_of`.
        """
        named = self._named()
        found = (named.get(normal("exact", name)) for name, _ in self._of(case))
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def named_classes(self) -> list[str]:
        """What the files call their classes."""
        return sorted({name for listed in self._marks.values() for name, _ in listed})

    def texts(self) -> list[str]:
        """What the reading takes for classes."""
        return [text for name, texts in self.spec.classes.items() for text in (texts or (name,))]

    def _named(self) -> dict[str, str]:
        """Folded name in the files -> class."""
        return {normal("exact", text): name for name, texts in self.spec.classes.items() for text in (texts or (name,))}

    def _of(self, case: CaseDraft) -> list[tuple[str, tuple[float, ...]]]:
        """The marks of a case, as its annotation has them."""
        key = self._key(case)
        files = self._files.get(key, set())
        if len(files) > 1 or (self.spec.format in AN_IMAGE and len(self._called.get(key, ())) > 1):
            files = {file for file in files if self._nearest(file, self._called[key]) == case.name}
        if not files and self.spec.empty != "healthy":
            raise LeaveOut("no annotation names it")
        if len(files) > 1:
            raise LeaveOut(f"{len(files)} annotations are called like it")
        return [one for file in files for one in self._marks[key, file]]

    def _key(self, case: CaseDraft) -> str:
        return normal(self.spec.rule, filled(self.spec.image, case.slots))

    def _nearest(self, file: str, cases: Sequence[str]) -> str:
        """The case that has most folders in common with a file; empty where several have as many."""
        own = set(file.split("/")[:-1])
        shared = sorted(((len(own & set(case.split("/")[:-1])), case) for case in cases), reverse=True)
        alone = len(shared) == 1 or (bool(shared) and shared[0][0] > shared[1][0])
        return shared[0][1] if alone else ""

    def _inside(self, grid: BoxGrid, box: tuple[float, ...]) -> tuple[float, ...] | None:
        """The box in pixels or voxels, clipped to its image; None where nothing is left of it."""
        spec = self.spec
        space = "fractions" if spec.format == "yolo" else spec.space
        ball = spec.format == "csv_circles"
        try:
            found = to_voxels(box, grid, space, ball=ball, sizes_mm=spec.sizes_mm)
        except DataError as error:
            raise LeaveOut(f"no boxes for this image: {error}") from error
        return clipped(found, grid) if all(map(math.isfinite, found)) else None


def _grid(case: CaseDraft, folder: DataFolder) -> BoxGrid:
    """The grid of a case's image.

    Raises:
        LeaveOut: it does not open.
    """
    slices = [item.reference for item in case.items]
    image: Source = case.folder if case.folder is not None else slices if len(slices) > 1 else slices[0]
    try:
        return grid_for(image, folder.root)
    except DataError as error:
        raise LeaveOut(UNREADABLE) from error
