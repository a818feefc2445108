"""Pascal VOC: an XML document an image with `object/name` and `object/bndbox` (http://host.robots.ox.ac.uk/pascal/VOC)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder, parse_size
from m3b.dataset.annotations.documents import load_each, read_xml
from m3b.dataset.annotations.geometry import Polygon
from m3b.dataset.annotations.names import clean_name, split_suffix
from m3b.dataset.annotations.yolo import add_stem_image
from m3b.errors import DataError

SIDES = ("xmin", "ymin", "xmax", "ymax")


class Voc(AnnotationFormat):
    """Pascal VOC boxes, with the polygons that some tools add."""

    name = "voc"
    suffixes = (".xml",)
    per_image = True

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the root is `annotation`, with words of the format."""
        words = (b"<filename", b"<object", b"<size")
        return b"<annotation" in head and b"<annotations" not in head and any(word in head for word in words)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the objects of documents; one without objects is an image without marks."""
        builder = SetBuilder(self.name)
        documents = load_each(paths, self.name, lambda path: _check(read_xml(root, path), path), builder.notes)
        names = Counter(_get_file_name(document) for _, document in documents)
        for path, document in documents:
            name = _get_file_name(document)
            image = _add_image(builder, path, document, name if names[name] == 1 else "")
            if name and names[name] > 1:
                builder.notes.add("repeated_file_name", name)
            for entry in document.iter("object"):
                _add_object(builder, image, entry)
        return builder.finish()


def _check(document: Any, path: str) -> Any:
    if document.tag != "annotation":
        raise DataError(f"{path}: the root is {document.tag!r} and not 'annotation'.", code="not_this_format")
    return document


def _get_file_name(document: Any) -> str:
    return clean_name(document.findtext("filename") or "")


def _add_image(builder: SetBuilder, path: str, document: Any, name: str) -> AnnotatedImage:
    size = parse_size(document.findtext("size/width"), document.findtext("size/height"))
    stem = split_suffix(PurePosixPath(path).name)[0]
    template = add_stem_image(SetBuilder("voc"), path)
    if not name or split_suffix(PurePosixPath(name).name)[0] == stem:
        return builder.add_image(name or stem, path, template.keys, size)
    builder.notes.add("name_differs", f"{path}: {name}")
    return builder.add_image(name, path, (name, *template.keys), size)


def _add_object(builder: SetBuilder, image: AnnotatedImage, entry: Any) -> None:
    label = (entry.findtext("name") or "").strip()
    box = entry.find("bndbox")
    region = None
    try:
        polygon = entry.find("polygon")
        if polygon is not None:
            region = _parse_polygon(polygon)
        if box is not None:
            x0, y0, x1, y1 = (float(box.findtext(side) or "nan") for side in SIDES)
            builder.add_box(image, label, (x0, y0, x1, y1), region=region)
        elif region is not None:
            builder.add_region(image, label, region)
        else:
            builder.notes.add("no_shape", image.name)
    except ValueError:
        builder.notes.add("damaged_mark", image.name)


def _parse_polygon(polygon: Any) -> Polygon | None:
    """Return the polygon of `x1`, `y1`, `x2`, ... or of `pt/x`, `pt/y`."""
    points = [
        (float(point.findtext("x") or "nan"), float(point.findtext("y") or "nan")) for point in polygon.findall("pt")
    ]
    number = 1
    while (x := polygon.findtext(f"x{number}")) is not None:
        points.append((float(x), float(polygon.findtext(f"y{number}") or "nan")))
        number += 1
    return Polygon.from_points(points) if len(points) >= 3 else None
