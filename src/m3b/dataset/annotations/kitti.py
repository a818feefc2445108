"""Boxes as lines of text, a file an image, with the class first: KITTI's 15 columns (of which 5 to 8 are the corners), and the plain
`class [score] x0 y0 x1 y1`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from m3b.dataset.annotations.base import AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder
from m3b.dataset.annotations.documents import load_each, read_text
from m3b.dataset.annotations.names import split_suffix
from m3b.dataset.annotations.yolo import MAX_LABEL_BYTES, add_stem_image, split_lines
from m3b.errors import DataError

_WORD = re.compile(r"[^\W\d][\w+.()/&'-]*")
KITTI_COLUMNS = (15, 16)
"""With the score of a detector: 16."""


class Kitti(AnnotationFormat):
    """KITTI's object labels (https://www.cvlibs.net/datasets/kitti)."""

    name = "kitti"
    suffixes = (".txt",)
    per_image = True
    columns: ClassVar[tuple[int, ...]] = KITTI_COLUMNS
    corners: ClassVar[dict[int, int]] = {15: 4, 16: 4}

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether each line has a word and the numbers of this format."""
        lines = split_lines(head)
        return bool(lines) and all(self._parse_line(line) is not None for line in lines)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the boxes of label files; an empty file is an image without marks."""
        builder = SetBuilder(self.name)

        def add(path: str) -> None:
            text = read_text(root, path, MAX_LABEL_BYTES)
            image = add_stem_image(builder, path)
            for line in text.splitlines():
                if not line.strip():
                    continue
                row = self._parse_line(line)
                if row is None:
                    builder.notes.add("damaged_line", path)
                else:
                    builder.add_box(image, row[0], row[1])

        load_each(paths, self.name, add, builder.notes)
        if builder.notes.counts["damaged_line"] and not any(builder.set.marks.values()):
            raise DataError(f"{paths[0]}: no line is a class with the numbers of a box.", code="not_this_format")
        return builder.finish()

    def _parse_line(self, line: str) -> tuple[str, tuple[float, float, float, float]] | None:
        """Return class and corners."""
        cells = line.split()
        if len(cells) not in self.columns or not _WORD.fullmatch(cells[0]) or split_suffix(cells[0])[1]:
            return None
        try:
            numbers = [float(cell) for cell in cells[1:]]
        except ValueError:
            return None
        start = self.corners[len(cells)] - 1
        x0, y0, x1, y1 = numbers[start : start + 4]
        ordered = all(map(math.isfinite, numbers)) and x1 >= x0 and y1 >= y0
        return (cells[0], (x0, y0, x1, y1)) if ordered else None


class LineBoxes(Kitti):
    """`class x0 y0 x1 y1` and `class score x0 y0 x1 y1` in pixels."""

    name = "line_boxes"
    needs_image = True
    columns: ClassVar[tuple[int, ...]] = (5, 6)
    corners: ClassVar[dict[int, int]] = {5: 1, 6: 2}
