"""Label Studio's JSON and JSON-MIN exports: coordinates are percent of the image (https://labelstud.io/guide/export)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet
from m3b.dataset.annotations.builder import SetBuilder
from m3b.dataset.annotations.documents import load_each, read_json
from m3b.dataset.annotations.geometry import Bitmap, Polygon, check_pixels, ellipse
from m3b.dataset.annotations.names import clean_name, split_suffix
from m3b.errors import DataError

UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-(?=.)")
LABEL_KEYS = ("rectanglelabels", "polygonlabels", "ellipselabels", "brushlabels", "keypointlabels", "labels", "choices")


class LabelStudio(AnnotationFormat):
    """Rectangles, polygons, ellipses, brush masks, points and choices of Label Studio."""

    name = "label_studio"
    suffixes = (".json",)
    unnamed_images = "not_annotated"

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether a list begins with words of the export."""
        words = (
            *(f'"{key}"'.encode() for key in LABEL_KEYS[:5]),
            b'"completed_by"',
            b'"original_width"',
            b'"from_name"',
        )
        return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and any(word in head for word in words)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the regions of exports; coordinates are turned into pixels of the size that each region states."""
        builder = SetBuilder(self.name)

        def add(path: str) -> None:
            tasks = _check(read_json(root, path), path)
            for task in tasks:
                _add_task(builder, path, task)

        load_each(paths, self.name, add, builder.notes)
        return builder.finish()


def _check(document: Any, path: str) -> list[dict[str, Any]]:
    tasks = document if isinstance(document, list) else [document]
    if not tasks or not all(isinstance(task, dict) and _get_image(task) for task in tasks):
        raise DataError(f"{path} is no export of Label Studio: it has no tasks with an image.", code="not_this_format")
    return tasks


def _get_image(task: Mapping[str, Any]) -> str:
    """Return the text of a task that names its image: the one with the suffix of a file."""
    data = task["data"] if isinstance(task.get("data"), dict) else task
    texts = [value for value in data.values() if isinstance(value, str)]
    file_texts = [text for text in texts if split_suffix(PurePosixPath(_locate(text)).name)[1]]
    return next(iter(file_texts), str(data.get("image") or ""))


def _locate(text: str) -> str:
    """Return the path of an address: that of local files stands behind `?d=`."""
    parts = urlsplit(text)
    local = parse_qs(parts.query).get("d")
    return clean_name(local[0] if local else unquote(parts.path) or text)


def _add_task(builder: SetBuilder, path: str, task: Mapping[str, Any]) -> None:
    name = _locate(_get_image(task))
    if not _is_answered(task):
        return  # nobody has said that there is nothing on the image
    file_name = UPLOAD_PREFIX.sub("", PurePosixPath(name).name)
    if isinstance(task.get("file_upload"), str):
        file_name = UPLOAD_PREFIX.sub("", task["file_upload"])
    regions = list(_list_regions(builder, name, task))
    sizes = {
        (int(region["original_width"]), int(region["original_height"]))
        for region in regions
        if region.get("original_width") and region.get("original_height")
    }
    image = builder.add_image(name, path, (name, file_name), sizes.pop() if len(sizes) == 1 else None)
    for region in regions:
        try:
            _add_region(builder, image, region)
        except (ValueError, TypeError, KeyError, OverflowError):
            builder.notes.add("damaged_mark", name)


def _is_answered(task: Mapping[str, Any]) -> bool:
    """Whether somebody annotated a task; in exports that list annotations, all may be missing or cancelled."""
    annotations = task.get("annotations", task.get("completions"))
    if not isinstance(annotations, list):
        return True
    return any(isinstance(annotation, dict) and not annotation.get("was_cancelled") for annotation in annotations)


def _list_regions(builder: SetBuilder, name: str, task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the regions of the annotation that counts: that of the ground truth, else the first that was not cancelled."""
    annotations = task.get("annotations", task.get("completions"))
    if isinstance(annotations, list):
        valid = [
            annotation
            for annotation in annotations
            if isinstance(annotation, dict) and not annotation.get("was_cancelled")
        ]
        valid.sort(key=lambda annotation: not annotation.get("ground_truth"))
        if len(valid) > 1:
            builder.notes.add("several_annotators", name)
        for region in (valid[0].get("result") or ()) if valid else ():
            value = region.get("value") if isinstance(region, dict) else None
            if isinstance(value, dict):
                yield {
                    **{key: region.get(key) for key in ("original_width", "original_height", "image_rotation")},
                    **value,
                }
        return
    for value in task.values():  # JSON-MIN: lists of regions beside the image
        if isinstance(value, list):
            yield from (region for region in value if isinstance(region, dict) and "original_width" in region)


def _add_region(builder: SetBuilder, image: AnnotatedImage, region: Mapping[str, Any]) -> None:
    value: Any = next((region[key] for key in LABEL_KEYS if region.get(key)), [])
    labels: list[Any] = [value] if isinstance(value, str) else value
    if region.get("image_rotation"):
        builder.notes.add("rotated_image", image.name)
        return
    if region.get("choices"):
        for label in labels:
            builder.add_caption(image, str(label))
        return
    width, height = int(region["original_width"]), int(region["original_height"])
    check_pixels(width, height)
    for label in labels or [""]:
        _add_shape(builder, image, str(label), region, width, height)


def _add_shape(
    builder: SetBuilder, image: AnnotatedImage, label: str, region: Mapping[str, Any], width: int, height: int
) -> None:
    x_factor, y_factor = width / 100, height / 100
    if "rle" in region:
        builder.add_region(image, label, decode_brush(region["rle"], width, height))
    elif "points" in region:
        points = [(float(x) * x_factor, float(y) * y_factor) for x, y in region["points"]]
        builder.add_region(image, label, Polygon.from_points(points))
    elif "radiusX" in region:
        centre = float(region["x"]) * x_factor, float(region["y"]) * y_factor
        radii = float(region["radiusX"]) * x_factor, float(region["radiusY"]) * y_factor
        builder.add_region(image, label, ellipse(*centre, *radii, float(region.get("rotation") or 0)))
    elif "height" in region:
        x, y = float(region["x"]) * x_factor, float(region["y"]) * y_factor
        _add_rectangle(
            builder, image, label, region, (x, y, float(region["width"]) * x_factor, float(region["height"]) * y_factor)
        )
    elif "x" in region:
        builder.add_point(image, label, float(region["x"]) * x_factor, float(region["y"]) * y_factor)
    else:
        builder.notes.add("no_shape", image.name)


def _add_rectangle(
    builder: SetBuilder,
    image: AnnotatedImage,
    label: str,
    region: Mapping[str, Any],
    sides: tuple[float, float, float, float],
) -> None:
    """Add a rectangle, which Label Studio turns clockwise about its upper left corner."""
    x, y, width, height = sides
    radians = math.radians(float(region.get("rotation") or 0))
    along = (math.cos(radians) * width, math.sin(radians) * width)
    down = (-math.sin(radians) * height, math.cos(radians) * height)
    corners = [(0.0, 0.0), along, (along[0] + down[0], along[1] + down[1]), down]
    polygon = Polygon.from_points([(x + dx, y + dy) for dx, dy in corners])
    builder.add_region(image, label, polygon, None if radians else "box")


def decode_brush(numbers: Sequence[int], width: int, height: int) -> Bitmap:
    """Return the mask of Label Studio's brush: run lengths of RGBA bytes in words of a few bits; alpha is the mask.

    The layout is that of https://github.com/thi-ng/umbrella/tree/develop/packages/rle-pack, which Label Studio uses: 32 bits for the
    count of words, 5 for the bits of a word, 4 times 4 for the bits of counts; then runs (bit 1) and literals (bit 0).
    """
    check_pixels(width, height, 4)

    def decode() -> Any:
        import numpy as np

        try:
            packed = np.asarray(numbers, dtype=np.int64)
            if packed.ndim != 1 or (packed < 0).any() or (packed > 255).any():
                raise ValueError("a byte is not between 0 and 255")
            flat = _unpack(bytes(packed.astype(np.uint8)), width * height * 4)
        except (ValueError, IndexError, OverflowError, TypeError) as error:
            raise DataError(f"A brush mask cannot be decoded: {error}.", code="damaged_mask") from error
        return flat.reshape(height, width, 4)[:, :, 3] > 0

    return Bitmap(0, 0, width, height, decode, is_whole=True)


def _unpack(packed: bytes, expected: int) -> Any:
    import numpy as np

    position = 0

    def read(bits: int) -> int:
        nonlocal position
        end = position + bits
        if end > len(packed) * 8:
            raise ValueError("it ends too early")
        first, last = position // 8, (end + 7) // 8
        value = int.from_bytes(packed[first:last], "big") >> (last * 8 - end)
        position = end
        return value & ((1 << bits) - 1)

    count = read(32)
    if count != expected:
        raise ValueError(f"it has {count:,} bytes, the image {expected:,}")
    word_bits = read(5) + 1
    count_bits = [read(4) + 1 for _ in range(4)]
    values = np.zeros(count, np.uint8)
    place = 0
    while place < count:
        is_run = read(1)
        end = place + 1 + read(count_bits[read(2)])
        if end > count:
            raise ValueError("a run reaches beyond the image")
        if is_run:
            values[place:end] = min(read(word_bits), 255)
        else:
            for index in range(place, end):
                values[index] = min(read(word_bits), 255)
        place = end
    return values
