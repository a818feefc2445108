"""LabelMe: a JSON document an image with `shapes` (https://github.com/wkentaro/labelme)."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder, parse_size
from m3b.dataset.annotations.documents import load_each, read_json
from m3b.dataset.annotations.geometry import Bitmap, Polygon, ellipse, rectangle
from m3b.dataset.annotations.names import clean_name
from m3b.dataset.annotations.yolo import add_stem_image
from m3b.errors import DataError


class LabelMe(AnnotationFormat):
    """LabelMe's polygons, rectangles, circles, masks and points."""

    name = "labelme"
    suffixes = (".json",)
    per_image = True

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the document begins like LabelMe's."""
        return b'"shapes"' in head and any(
            word in head for word in (b'"shape_type"', b'"imagePath"', b'"points"', b'"flags"')
        )

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the shapes of documents; one without shapes is an image without marks."""
        builder = SetBuilder(self.name)

        def add(path: str) -> None:
            document = _check(read_json(root, path), path)
            image = _add_image(builder, path, document)
            flags = document.get("flags")
            tags = [tag for tag, is_set in flags.items() if is_set is True] if isinstance(flags, dict) else []
            builder.set.captions[image] = tags
            for shape in document["shapes"]:
                try:
                    _add_shape(builder, image, shape)
                except (ValueError, TypeError, KeyError, OverflowError):
                    builder.notes.add("damaged_mark", path)

        load_each(paths, self.name, add, builder.notes)
        return builder.finish()


def _check(document: Any, path: str) -> dict[str, Any]:
    shapes = document.get("shapes") if isinstance(document, dict) else None
    if not isinstance(shapes, list) or not all(isinstance(shape, dict) and "points" in shape for shape in shapes):
        raise DataError(f"{path} is no LabelMe document: it has no `shapes` with `points`.", code="not_this_format")
    return dict(document)


def _add_image(builder: SetBuilder, path: str, document: Mapping[str, Any]) -> AnnotatedImage:
    keys = add_stem_image(SetBuilder("labelme"), path).keys
    name = clean_name(str(document.get("imagePath") or ""))
    if name:
        folder = PurePosixPath(path).parent
        keys = (*([str(folder / name)] if ".." not in name else []), PurePosixPath(name).name, *keys)
    size = parse_size(document.get("imageWidth"), document.get("imageHeight"))
    return builder.add_image(PurePosixPath(name).name or keys[-1], path, keys, size)


def _add_shape(builder: SetBuilder, image: AnnotatedImage, shape: Mapping[str, Any]) -> None:
    """Add one shape; LabelMe's coordinates are edges of pixels: a rectangle from 2 to 5 holds the pixels 2 to 4."""
    label = str(shape.get("label") or "").strip()
    group = "" if shape.get("group_id") in (None, "") else str(shape["group_id"])
    points = [(float(x), float(y)) for x, y in shape["points"]]
    kind = str(shape.get("shape_type") or "polygon")
    if kind == "polygon" or (kind == "rectangle" and len(points) == 4):
        builder.add_region(image, label, Polygon.from_points(points), group=group)
    elif kind == "rectangle":
        (x0, y0), (x1, y1) = points
        builder.add_region(image, label, rectangle(x0, y0, x1, y1), "box", group=group)
    elif kind == "circle":
        (x, y), edge = points
        radius = math.dist((x, y), edge)
        builder.add_region(image, label, ellipse(x, y, radius, radius), group=group)
    elif kind == "mask":
        builder.add_region(image, label, _parse_mask(str(shape["mask"]), points), group=group)
    elif kind in ("point", "points"):
        for x, y in points:
            builder.add_point(image, label, x, y)
    else:
        builder.notes.add("line_without_area", image.name)


def _parse_mask(text: str, points: Sequence[tuple[float, float]]) -> Bitmap:
    """Return the mask of a PNG between two corners, both of which belong to it."""
    (x0, y0), (x1, y1) = points
    first_column, top = round(x0), round(y0)
    width, height = round(x1) - first_column + 1, round(y1) - top + 1

    def decode() -> Any:
        import numpy as np
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(io.BytesIO(base64.b64decode(text, validate=True)), formats=["PNG"]) as picture:
                if picture.size != (width, height):
                    raise DataError(
                        f"A mask of {picture.size[0]} x {picture.size[1]} pixels is declared as {width} x {height}.",
                        code="damaged_mask",
                    )
                return np.asarray(picture.convert("L")) > 0
        except (ValueError, OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise DataError(f"The mask of a shape cannot be decoded: {error}.", code="damaged_mask") from error

    return Bitmap(first_column, top, width, height, decode)
