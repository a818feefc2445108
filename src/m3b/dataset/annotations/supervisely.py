"""Supervisely: a JSON document an image, `ann/NAME.png.json` for `img/NAME.png` (https://docs.supervisely.com, annotation format)."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder, parse_size
from m3b.dataset.annotations.documents import load_each, read_json
from m3b.dataset.annotations.geometry import Bitmap, Polygon, rectangle
from m3b.errors import DataError

MAX_BITMAP_BYTES = 64 * 2**20


class Supervisely(AnnotationFormat):
    """Supervisely's polygons, rectangles, bitmaps and points."""

    name = "supervisely"
    suffixes = (".json",)
    per_image = True

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether the document begins like Supervisely's."""
        return b'"size"' in head and b'"objects"' in head and b'"description"' in head

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the objects of documents; one without objects is an image without marks."""
        builder = SetBuilder(self.name)

        def add(path: str) -> None:
            document = read_json(root, path)
            if not isinstance(document, dict) or not isinstance(document.get("objects"), list):
                raise DataError(f"{path} is no Supervisely document: it has no `objects`.", code="not_this_format")
            image = _add_image(builder, path, document)
            for entry in document["objects"]:
                try:
                    _add_object(builder, image, entry)
                except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
                    builder.notes.add("damaged_mark", path)

        load_each(paths, self.name, add, builder.notes)
        return builder.finish()


def _add_image(builder: SetBuilder, path: str, document: Mapping[str, Any]) -> AnnotatedImage:
    """Return the image whose name the document has without `.json`; it lies in `img` for `ann`."""
    *folders, file_name = path.split("/")
    name = file_name.rpartition(".")[0] or file_name
    image_folders = ["img" if folder.casefold() == "ann" else folder for folder in folders]
    size = document.get("size")
    keys = ("/".join((*image_folders, name)), "/".join((*folders, name)))
    stated_size = parse_size(size.get("width"), size.get("height")) if isinstance(size, dict) else None
    return builder.add_image(name, path, keys, stated_size)


def _add_object(builder: SetBuilder, image: AnnotatedImage, entry: Mapping[str, Any]) -> None:
    label, kind = str(entry.get("classTitle") or "").strip(), entry.get("geometryType")
    if kind == "bitmap":
        builder.add_region(image, label, _parse_bitmap(entry["bitmap"]))
        return
    points = entry["points"]["exterior"]
    if kind == "polygon":
        builder.add_region(image, label, Polygon.from_points(points, *(entry["points"].get("interior") or ())))
    elif kind == "rectangle":
        (x0, y0), (x1, y1) = points
        builder.add_region(image, label, rectangle(float(x0), float(y0), float(x1), float(y1)), "box")
    elif kind == "point":
        builder.add_point(image, label, float(points[0][0]), float(points[0][1]))
    else:
        builder.notes.add("line_without_area", image.name)


def _parse_bitmap(bitmap: Mapping[str, Any]) -> Bitmap:
    """Return the mask of a compressed PNG whose upper left pixel lies at `origin`."""
    from PIL import Image

    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(base64.b64decode(bitmap["data"]), MAX_BITMAP_BYTES)
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            width, height = picture.size
    except (zlib.error, OSError) as error:
        raise ValueError(f"a bitmap cannot be unpacked: {error}") from error
    first_column, first_row = (int(place) for place in bitmap["origin"])

    def decode() -> Any:
        import numpy as np

        try:
            with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
                pixels = np.asarray(picture.convert("RGBA"))
                return pixels[..., :3].any(axis=2) & (pixels[..., 3] > 0)
        except (ValueError, OSError) as error:
            raise DataError(f"A bitmap cannot be decoded: {error}.", code="damaged_mask") from error

    return Bitmap(first_column, first_row, width, height, decode)
