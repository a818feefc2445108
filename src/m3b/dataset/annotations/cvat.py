"""CVAT's XML for images and for videos, whose tracks give a shape a frame (https://docs.cvat.ai/docs/manual/advanced/xml_format)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder, parse_size
from m3b.dataset.annotations.documents import load_each, read_xml
from m3b.dataset.annotations.geometry import Bitmap, Polygon, decode_runs, ellipse, rectangle
from m3b.dataset.annotations.names import clean_name
from m3b.errors import DataError

MAX_FRAMES = 1_000_000
CORNERS = ("xtl", "ytl", "xbr", "ybr")


class Cvat(AnnotationFormat):
    """CVAT's images and tracks."""

    name = "cvat"
    suffixes = (".xml",)
    unnamed_images = "not_annotated"

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the root is `annotations`, with CVAT's words."""
        return b"<annotations" in head and any(
            word in head for word in (b"<image ", b"<track ", b"<meta>", b"<version>")
        )

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the shapes of documents."""
        builder = SetBuilder(self.name)
        names: dict[str, None] = {}

        def add(path: str) -> None:
            document = _check(read_xml(root, path), path)
            names.update(
                dict.fromkeys(
                    (element.text or "").strip() for element in document.iterfind("./meta//labels/label/name")
                )
            )
            folder = PurePosixPath(path).parent
            for element in document.iterfind("./image"):
                name = str(element.get("name", ""))
                size = parse_size(element.get("width"), element.get("height"))
                image = builder.add_image(name, path, (str(folder / clean_name(name)),), size)
                for shape in element:
                    _add(builder, image, str(shape.get("label", "")).strip(), shape)
            _add_tracks(builder, document, path)

        load_each(paths, self.name, add, builder.notes)
        return builder.finish(name for name in names if name)


def _check(document: Any, path: str) -> Any:
    if document.tag != "annotations" or (document.find("./image") is None and document.find("./track") is None):
        raise DataError(f"{path} is no CVAT document: it has neither images nor tracks.", code="not_this_format")
    return document


def _add_tracks(builder: SetBuilder, document: Any, path: str) -> None:
    """Add the shapes of tracks to the frames of their video; a frame is named as CVAT exports it (`frame_000012`)."""
    if document.find("./track") is None:
        return
    task = document.find("./meta/task") if document.find("./meta/task") is not None else document.find("./meta/job")
    size = None
    source = ""
    if task is not None:
        original = task.find("original_size")
        if original is not None:
            size = parse_size(original.findtext("width"), original.findtext("height"))
        source = (document.findtext("./meta/source") or task.findtext("source") or task.findtext("name") or "").strip()
    frames = str(task.findtext("size") or "") if task is not None else ""
    if frames.isdecimal() and int(frames) <= MAX_FRAMES:
        for number in range(int(frames)):
            _add_frame(builder, path, source, number, size)
    for track in document.iterfind("./track"):
        label = str(track.get("label", "")).strip()
        for shape in track:
            number_text = str(shape.get("frame", ""))
            if not number_text.isdecimal():
                builder.notes.add("damaged_mark", path)
            elif shape.get("outside") != "1":
                _add(builder, _add_frame(builder, path, source, int(number_text), size), label, shape)


def _add_frame(
    builder: SetBuilder, path: str, source: str, number: int, size: tuple[int, int] | None
) -> AnnotatedImage:
    name = f"{source or PurePosixPath(path).stem}#{number}"
    return builder.add_image(name, path, (f"frame_{number:06d}",), size)


def _add(builder: SetBuilder, image: AnnotatedImage, label: str, shape: Any) -> None:
    try:
        _add_shape(builder, image, label, shape)
    except (ValueError, TypeError, OverflowError):
        builder.notes.add("damaged_mark", image.name)


def _add_shape(builder: SetBuilder, image: AnnotatedImage, label: str, shape: Any) -> None:
    degrees = float(shape.get("rotation") or 0)
    group = str(shape.get("group_id") or "")
    group = "" if group == "0" else group
    match shape.tag:
        case "box":
            x0, y0, x1, y1 = (float(shape.get(side, "?")) for side in CORNERS)
            kind = None if degrees else "box"
            builder.add_region(image, label, rectangle(x0, y0, x1, y1, degrees), kind, group=group)  # type: ignore[arg-type]
        case "ellipse":
            x, y, rx, ry = (float(shape.get(side, "?")) for side in ("cx", "cy", "rx", "ry"))
            builder.add_region(image, label, ellipse(x, y, rx, ry, degrees), group=group)
        case "polygon":
            builder.add_region(image, label, Polygon.from_points(_parse_points(shape)), group=group)
        case "mask":
            builder.add_region(image, label, _parse_mask(shape), group=group)
        case "points":
            for x, y in _parse_points(shape):
                builder.add_point(image, label, x, y)
        case "skeleton":
            for point in shape.iterfind("./points"):
                if point.get("outside") != "1":
                    ((x, y),) = _parse_points(point)
                    builder.add_point(image, str(point.get("label", "")) or label, x, y)
        case "polyline":
            builder.notes.add("line_without_area", image.name)
        case "tag":
            builder.add_caption(image, label)


def _parse_points(shape: Any) -> list[tuple[float, float]]:
    pairs = [text.split(",") for text in str(shape.get("points", "")).split(";")]
    return [(float(x), float(y)) for x, y in pairs]


def _parse_mask(shape: Any) -> Bitmap:
    """Return run lengths along the rows of a part of the image, outside first."""
    lengths = [int(text) for text in str(shape.get("rle", "")).split(",")]
    x0, top, width, height = (int(float(shape.get(side, "?"))) for side in ("left", "top", "width", "height"))

    def decode() -> Any:
        return decode_runs(lengths, width * height).reshape(height, width)

    return Bitmap(x0, top, width, height, decode)
