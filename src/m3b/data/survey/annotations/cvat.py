"""CVAT for images: one XML document that names its images, each with boxes, outlines and ellipses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.annotations.marks import Marks, named_outlines
from m3b.data.survey.annotations.outline import DrawnOutline, Point, ellipse, rectangle
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.reading_documents import xml_root
from m3b.data.survey.tables import TOGETHER


def find(found: Gathering) -> Iterator[Marks]:
    """The documents of that form among XML files that are few."""
    for group in found.groups:
        if group.fact.kind != "xml" or group.merged.count > TOGETHER:
            continue
        for path in group.paths:
            marks = named_outlines("cvat", path, group.id, _outlines(found, path))
            if marks.items:
                yield marks


def _outlines(found: Gathering, path: str) -> list[DrawnOutline]:
    file = found.tree.root / path
    try:
        return attempt(lambda: list(in_root(xml_root(file))), found.tree.root, path)
    except Unreadable:
        return []


def in_root(root: Any) -> Iterator[DrawnOutline]:
    """The images of a document, and what is marked on them.

    Raises:
        ValueError: it is another document, or a place is no number.
    """
    if root.tag != "annotations" or root.find("./image") is None:
        raise ValueError("it has no images")
    for image in root.findall("./image"):
        named = str(image.get("name", ""))
        yield DrawnOutline(named)
        for one in image:
            if points := _points(one):
                yield DrawnOutline(named, str(one.get("label", "")).strip(), points, one.tag != "box")


def _points(one: Any) -> tuple[Point, ...]:
    """The outline of one mark; none of tags, lines, points and masks."""
    turned = float(one.get("rotation") or 0)
    if one.tag == "box":
        x0, y0, x1, y1 = (float(one.get(side, "?")) for side in ("xtl", "ytl", "xbr", "ybr"))
        return rectangle((x0, y0), (x1, y1), turned)
    if one.tag == "ellipse":
        x, y, wide, high = (float(one.get(side, "?")) for side in ("cx", "cy", "rx", "ry"))
        return ellipse((x, y), wide, high, turned)
    if one.tag == "polygon":
        return tuple(_point(text) for text in str(one.get("points", "")).split(";"))
    return ()


def _point(text: str) -> Point:
    x, y = (float(value) for value in text.split(","))
    return x, y
