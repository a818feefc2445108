"""The VGG Image Annotator's JSON: images by a key, each with regions of some shape and attributes (version 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.annotations.marks import UNNAMED, Marks, named_outlines
from m3b.data.survey.annotations.outline import DrawnOutline, Point, ellipse, rectangle
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.tables import TOGETHER
from m3b.isolation.untrusted import parse_data_json

PROJECT = "_via_img_metadata"
MAX_BYTES = 512 * 2**20


def find(found: Gathering) -> Iterator[Marks]:
    """The documents of that form among JSON files that are few; those with rectangles alone are tables of boxes."""
    for group in found.groups:
        if group.fact.kind != "json" or group.merged.count > TOGETHER:
            continue
        for path in group.paths:
            marks = named_outlines("via", path, group.id, _outlines(found, path))
            if "polygon" in marks.shapes:
                yield marks


def _outlines(found: Gathering, path: str) -> list[DrawnOutline]:
    file = found.tree.root / path
    try:
        if file.stat().st_size > MAX_BYTES:
            return []
        return attempt(lambda: list(in_document(parse_data_json(file.read_bytes()))), found.tree.root, path)
    except (Unreadable, ValueError, OSError, RecursionError):
        return []


def in_document(document: Any) -> Iterator[DrawnOutline]:
    """The images of a document, and what is marked on them.

    Raises:
        ValueError: it is another document, or a place is no number.
    """
    if isinstance(document, dict):
        document = document.get(PROJECT, document)
    if not isinstance(document, dict) or not document:
        raise ValueError("it is no document of the VGG Image Annotator")
    for image in document.values():
        if not isinstance(image, dict) or "regions" not in image or "filename" not in image:
            raise ValueError("it is no document of the VGG Image Annotator")
        named = str(image["filename"])
        yield DrawnOutline(named)
        regions = image["regions"]
        for one in regions.values() if isinstance(regions, dict) else regions or ():
            shape = one["shape_attributes"]
            if points := _points(shape):
                yield DrawnOutline(named, _label(one.get("region_attributes") or {}), points, shape["name"] != "rect")


def _label(attributes: Mapping[str, Any]) -> str:
    """The value of the first attribute that has one; of boxes to tick the first that is ticked."""
    for value in attributes.values():
        if isinstance(value, dict):
            value = next((name for name, ticked in value.items() if ticked), "")
        if str(value).strip():
            return str(value).strip()
    return UNNAMED


def _points(shape: Mapping[str, Any]) -> tuple[Point, ...]:
    """The outline of one region; none of points and lines."""
    match shape.get("name"):
        case "polygon":
            return tuple(
                (float(x), float(y)) for x, y in zip(shape["all_points_x"], shape["all_points_y"], strict=True)
            )
        case "rect":
            x, y = float(shape["x"]), float(shape["y"])
            return rectangle((x, y), (x + float(shape["width"]), y + float(shape["height"])))
        case "circle":
            return ellipse((float(shape["cx"]), float(shape["cy"])), float(shape["r"]), float(shape["r"]))
        case "ellipse":
            turned = math.degrees(float(shape.get("theta") or 0))
            return ellipse((float(shape["cx"]), float(shape["cy"])), float(shape["rx"]), float(shape["ry"]), turned)
    return ()
