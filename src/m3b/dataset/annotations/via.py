"""The VGG Image Annotator, version 1 and 2: a JSON document or CSV table of images with regions
(https://www.robots.ox.ac.uk/~vgg/software/via)."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder
from m3b.dataset.annotations.documents import load_each, read_json, read_text
from m3b.dataset.annotations.geometry import Polygon, ellipse, rectangle
from m3b.dataset.annotations.names import clean_name
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_json

PROJECT = "_via_img_metadata"
MAX_CELL = 16 * 2**20
CSV_COLUMNS = ("filename", "region_shape_attributes", "region_attributes")
IMAGE_ATTRIBUTES = "file_attributes"
Entry = tuple[str, Mapping[str, Any] | None, Mapping[str, Any]]
"""Image, shape (None: the image alone is named) and attributes of the region, or of the image."""


class Via(AnnotationFormat):
    """Documents and CSV exports of the VGG Image Annotator."""

    name = "via"
    suffixes = (".json", ".csv")
    unnamed_images = "not_annotated"

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the words of the format stand at its start."""
        if path.suffix.lower() == ".csv":
            return all(column.encode() in head.split(b"\n", 1)[0] for column in CSV_COLUMNS)
        return (
            PROJECT.encode() in head or b'"_via_settings"' in head or (b'"regions"' in head and b'"filename"' in head)
        )

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the regions of documents."""
        builder = SetBuilder(self.name)

        def parse(path: str) -> list[Entry]:
            if path.casefold().endswith(".csv"):
                return list(_parse_rows(read_text(root, path), path))
            return list(_parse_document(read_json(root, path), path))

        documents = load_each(paths, self.name, parse, builder.notes)
        attribute = _choose_attribute([entry for _, entries in documents for entry in entries], builder)
        for path, entries in documents:
            folder = PurePosixPath(path).parent
            for name, shape, attributes in entries:
                image = builder.add_image(name, path, (str(folder / clean_name(name)),))
                if shape is None:
                    _add_tags(builder, image, attributes)
                    continue
                try:
                    _add_shape(builder, image, _get_label(attributes.get(attribute)), shape)
                except (ValueError, TypeError, KeyError, OverflowError):
                    builder.notes.add("damaged_mark", name)
        return builder.finish()


def _parse_document(document: Any, path: str) -> Iterator[Entry]:
    if isinstance(document, dict):
        document = document.get(PROJECT, document)
    images = document.values() if isinstance(document, dict) else ()
    if not images or not all(
        isinstance(image, dict) and "filename" in image and "regions" in image for image in images
    ):
        raise DataError(
            f"{path} is no document of the VGG Image Annotator: no images with `regions`.", code="not_this_format"
        )
    for image in images:
        name, regions = str(image["filename"]), image["regions"] or ()
        yield name, None, _check_object(image.get(IMAGE_ATTRIBUTES))
        for region in regions.values() if isinstance(regions, dict) else regions:
            yield name, _check_object(region["shape_attributes"]), _check_object(region.get("region_attributes"))


def _parse_rows(text: str, path: str) -> Iterator[Entry]:
    csv.field_size_limit(MAX_CELL)
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise DataError(f"{path} is no CSV table: {error}.", code="damaged") from error
    if not rows or not set(CSV_COLUMNS) <= rows[0].keys():
        raise DataError(f"{path} has not the columns {', '.join(CSV_COLUMNS)}.", code="not_this_format")
    for row in rows:
        name = str(row["filename"]).lstrip("#")
        yield name, None, _check_object(parse_json(row.get(IMAGE_ATTRIBUTES) or "{}"))
        shape, attributes = (_check_object(parse_json(row[column] or "{}")) for column in CSV_COLUMNS[1:])
        if shape:
            yield name, shape, attributes


def _check_object(value: Any) -> dict[str, Any]:
    """Return an object of JSON; an empty one for nothing.

    Raises:
        ValueError: it is none.
    """
    if value is None or isinstance(value, dict):
        return value or {}
    raise ValueError(f"{str(value)[:40]!r} is no object")


def _choose_attribute(entries: Sequence[Entry], builder: SetBuilder) -> str:
    """Return the attribute that most regions have; of several such, the first."""
    filled = Counter(
        name for _, shape, attributes in entries if shape for name, value in attributes.items() if _get_label(value)
    )
    if len(filled) > 1:
        builder.notes.add("several_attributes", ", ".join(filled)[:200], len(filled))
    return filled.most_common(1)[0][0] if filled else ""


def _get_label(value: Any) -> str:
    """Return the value of an attribute; of boxes to tick the first that is ticked."""
    if isinstance(value, dict):
        value = next((name for name, ticked in value.items() if ticked), "")
    return "" if value is None else str(value).strip()


def _add_tags(builder: SetBuilder, image: AnnotatedImage, attributes: Mapping[str, Any]) -> None:
    """Add the attributes of an image as texts such as `gradable: no`."""
    tags = [f"{name}: {label}" for name, value in attributes.items() if (label := _get_label(value))]
    builder.set.captions[image] = list(dict.fromkeys([*builder.set.captions.get(image, ()), *tags]))


def _add_shape(builder: SetBuilder, image: AnnotatedImage, label: str, shape: Mapping[str, Any]) -> None:
    match shape.get("name"):
        case "polygon":
            points = list(zip(shape["all_points_x"], shape["all_points_y"], strict=True))
            builder.add_region(image, label, Polygon.from_points(points))
        case "rect":
            x, y = float(shape["x"]), float(shape["y"])
            region = rectangle(x, y, x + float(shape["width"]), y + float(shape["height"]))
            builder.add_region(image, label, region, "box")
        case "circle":
            radius = float(shape["r"])
            builder.add_region(image, label, ellipse(float(shape["cx"]), float(shape["cy"]), radius, radius))
        case "ellipse":
            degrees = math.degrees(float(shape.get("theta") or 0))
            radii = float(shape["rx"]), float(shape["ry"])
            builder.add_region(image, label, ellipse(float(shape["cx"]), float(shape["cy"]), *radii, degrees))
        case "point":
            builder.add_point(image, label, float(shape["cx"]), float(shape["cy"]))
        case "polyline":
            builder.notes.add("line_without_area", image.name)
        case _:
            builder.notes.add("damaged_mark", image.name)
