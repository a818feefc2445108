"""CVAT for images: one XML document that names its images, each with boxes, outlines and ellipses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.annotations.marks import Marks
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.reading_documents import xml_root
from m3b.data.survey.tables import TOGETHER

Shape = tuple[str, str, tuple[float, ...]]
"""The image, the class, and the lower and upper corner; no class for an image itself."""


def find(found: Gathering) -> Iterator[Marks]:
    """The documents of that form among XML files that are few."""
    for group in found.groups:
        if group.fact.kind != "xml" or group.merged.count > TOGETHER:
            continue
        for path in group.paths:
            shapes = _shapes(found, path)
            if any(name for _, name, _ in shapes):
                yield _marks(path, group.id, shapes)


def _shapes(found: Gathering, path: str) -> list[Shape]:
    file = found.tree.root / path
    try:
        return attempt(lambda: list(in_root(xml_root(file))), found.tree.root, path)
    except Unreadable:
        return []


def _marks(path: str, group: str, shapes: list[Shape]) -> Marks:
    drawn = [(image, name) for image, name, _ in shapes if name]
    marks = Marks("cvat", path, 1, len(drawn), group=group, shapes={"box"}, class_source="label")
    marks.classes.update(name for _, name in drawn)
    marks.named = sorted({image for image, _, _ in shapes})
    marks.marked = len({image for image, _ in drawn})
    return marks


def in_root(root: Any) -> Iterator[Shape]:
    """The images of a document and the boxes around what is marked on them.

    Raises:
        ValueError: it is another document, or a place is no number.
    """
    if root.tag != "annotations" or root.find("./image") is None:
        raise ValueError("it has no images")
    for image in root.findall("./image"):
        named = str(image.get("name", ""))
        yield named, "", ()
        for one in image:
            box = _box(one)
            if box is not None:
                yield named, str(one.get("label", "")).strip(), box


def _box(one: Any) -> tuple[float, ...] | None:
    """The box around one mark; None for tags, points and masks."""
    if one.tag == "box":
        return tuple(float(one.get(side, "?")) for side in ("xtl", "ytl", "xbr", "ybr"))
    if one.tag == "ellipse":
        x, y, wide, high = (float(one.get(side, "?")) for side in ("cx", "cy", "rx", "ry"))
        return x - wide, y - high, x + wide, y + high
    if one.tag == "polygon":
        points = [[float(value) for value in point.split(",")] for point in str(one.get("points", "")).split(";")]
        columns, rows = [x for x, _ in points], [y for _, y in points]
        return min(columns), min(rows), max(columns), max(rows)
    return None
