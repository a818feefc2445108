"""COCO: one JSON document with `images`, `annotations` and `categories` (https://cocodataset.org/#format-data).

Several documents of a folder are parts of one set. If two of them annotate the same images with the same kinds of marks, the newer
one (`info.date_created`), else the larger one, counts; the other is a stale copy.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import (
    UNNAMED,
    AnnotatedImage,
    AnnotationFormat,
    AnnotationSet,
    Mark,
    NoteBook,
    ShapeKind,
)
from m3b.dataset.annotations.builder import SetBuilder, parse_size, polygon_from_flat
from m3b.dataset.annotations.documents import load_each, read_json
from m3b.dataset.annotations.geometry import Bitmap, Polygon, Region, Union, check_pixels, decode_runs, overlap
from m3b.dataset.annotations.names import clean_name
from m3b.errors import DataError

MIN_COMMON_IMAGES = 0.5
"""Share of the smaller document's images that both must list to be about the same images."""
MIN_SAME_MARKS = 0.5
"""Share of the boxes of common images, in the document that has fewer, with a box at the same place in the other document from which
on one is a copy of the other."""
_COMPRESSED = re.compile(r"(?:[P-o]{0,6}[0-O])*")
"""Numbers of five bits a letter; `P` to `o` say that more bits follow. pycocotools reads beyond the end of a text whose last letter
says so."""
MAX_CORNER_DISTANCE = 0.5
"""Pixels between a point of an outline and a corner of the box up to which they are the same."""
SAME_PLACE = 0.8
"""Intersection over union of two boxes at the same place; boxes of different images rarely meet so closely, even if they are dense."""


@dataclass
class _Document:
    """One parsed document."""

    path: str
    created: str
    annotations: AnnotationSet
    has_images_beside: bool
    by_name: dict[str, AnnotatedImage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name = {clean_name(image.name).casefold(): image for image in self.annotations.images}

    @property
    def rank(self) -> tuple[str, int, int, str]:
        """Newest, then largest."""
        marks = sum(map(len, self.annotations.marks.values()))
        return self.created, marks, len(self.annotations.images), self.path


class Coco(AnnotationFormat):
    """COCO instances, keypoints and captions."""

    name = "coco"
    suffixes = (".json",)
    unnamed_images = "not_annotated"

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether a JSON document begins like one of COCO."""
        words = (b'"images"', b'"annotations"', b'"categories"', b'"file_name"', b'"image_id"')
        return head.lstrip().startswith((b"{", b"\xef\xbb\xbf{")) and any(word in head for word in words)

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the merged annotations of all parts."""
        notes = NoteBook()
        documents = [parsed for _, parsed in load_each(paths, self.name, lambda path: _parse(root, path), notes)]
        return _merge(documents, notes)


def _parse(root: Path, path: str) -> _Document:
    raw = read_json(root, path)
    images = raw.get("images") if isinstance(raw, dict) else None
    if (
        not isinstance(images, list)
        or not any(isinstance(raw.get(key), list) for key in ("annotations", "categories"))
        or not all(isinstance(image, dict) and "file_name" in image and "id" in image for image in images)
    ):
        raise DataError(
            f"{path} is no COCO document: it has no images with `id` and `file_name`.", code="not_this_format"
        )
    builder = SetBuilder("coco")
    folder = PurePosixPath(path).parent
    by_id: dict[Any, AnnotatedImage] = {}
    for entry in images:
        name = str(entry["file_name"])
        size = parse_size(entry.get("width"), entry.get("height"))
        if entry["id"] in by_id:
            builder.notes.add("repeated_image_id", name)
        by_id[entry["id"]] = builder.add_image(name, path, (str(folder / clean_name(name)),), size)
    categories = {entry["id"]: entry for entry in raw.get("categories") or ()}
    names_by_key = _list_category_keys(raw)
    for entry in raw.get("annotations") or ():
        image = by_id.get(entry.get("image_id"))
        if image is None:
            builder.notes.add("unknown_image_id", str(entry.get("image_id")))
            continue
        _add(builder, image, entry, categories, names_by_key)
    builder.set.category_keys = {key: tuple(dict.fromkeys(names.values())) for key, names in names_by_key.items()}
    if len(names_by_key) == 1:
        categories = {number: {"name": name} for names in names_by_key.values() for number, name in names.items()}
    if _has_only_box_outlines(builder.set):
        builder.set.shapes.discard("outline")
    names = [str(category.get("name", number)) for number, category in categories.items()]
    info = raw.get("info")
    created = str(info.get("date_created", "") or "") if isinstance(info, dict) else ""
    has_images_beside = any(
        (root / image.keys[0]).is_file() for image in builder.set.images[:3] if ".." not in image.keys[0]
    )
    return _Document(path, created, builder.finish(names), has_images_beside)


def _has_only_box_outlines(annotations: AnnotationSet) -> bool:
    """Return whether each outline is the rectangle of its box, which tools write for boxes."""
    marks = [mark for image_marks in annotations.marks.values() for mark in image_marks if mark.region is not None]
    return bool(marks) and all(_is_box_outline(mark) for mark in marks)


def _is_box_outline(mark: Mark) -> bool:
    if mark.box is None or not isinstance(mark.region, Polygon) or len(mark.region.rings) != 1:
        return False
    x0, y0, x1, y1 = mark.box
    is_corner = [
        min(abs(x - x0), abs(x - x1)) <= MAX_CORNER_DISTANCE and min(abs(y - y0), abs(y - y1)) <= MAX_CORNER_DISTANCE
        for x, y in mark.region.rings[0]
    ]
    return len(is_corner) in (4, 5) and all(is_corner)


def _list_category_keys(raw: Mapping[str, Any]) -> dict[str, dict[Any, str]]:
    """Return the keys by which annotations name a category, such as `category_id_2` for `categories_2`, with number -> name."""
    annotations = [entry for entry in raw.get("annotations") or () if isinstance(entry, dict)]
    keys: dict[str, dict[Any, str]] = {}
    for name, entries in raw.items():
        key = name.replace("categories", "category_id", 1)
        is_list = name.startswith("categories") and isinstance(entries, list)
        if is_list and any(key in annotation for annotation in annotations):
            identified_entries = [entry for entry in entries if isinstance(entry, dict) and "id" in entry]
            keys[key] = {entry["id"]: str(entry.get("name", entry["id"])) for entry in identified_entries}
    return keys


def _add(
    builder: SetBuilder,
    image: AnnotatedImage,
    entry: Mapping[str, Any],
    categories: Mapping[Any, Any],
    names_by_key: Mapping[str, Mapping[Any, str]],
) -> None:
    """Add one annotation; numbers that are damaged leave it out."""
    if "caption" in entry:
        builder.add_caption(image, str(entry["caption"]))
        return
    keyed = {key: names.get(entry[key], str(entry[key])) for key, names in names_by_key.items() if key in entry}
    number = entry.get("category_id")
    category = categories.get(number)
    if category is None and len(keyed) == 1:
        category = {"name": next(iter(keyed.values()))}
    unknown = [entry[key] for key, names in names_by_key.items() if key in entry and entry[key] not in names]
    for unknown_number in unknown if keyed or category is not None else [number]:
        builder.notes.add("unknown_category_id", str(unknown_number))
    label = str(category.get("name", number)) if category is not None else UNNAMED if number is None else str(number)
    crowd = bool(entry.get("iscrowd"))
    if crowd:
        builder.notes.add("crowd", image.name)
    try:
        region = _parse_segmentation(entry.get("segmentation"))
        points = _parse_keypoints(entry.get("keypoints"), category, multiple=len(categories) > 1)
        box = entry.get("bbox")
        if box is not None and len(box) == 4:
            x, y, width, height = map(float, box)
            corners = (x, y, x + width, y + height)
            if builder.add_box(image, label, corners, region=region, crowd=crowd, points=points, categories=keyed):
                builder.set.shapes.update({"point"} if points else ())
                return
        elif box:
            builder.notes.add("damaged_mark", image.name)
    except (TypeError, ValueError, KeyError, OverflowError):
        builder.notes.add("damaged_mark", image.name)
        return
    if region is not None:
        kind: ShapeKind = "mask" if isinstance(region, Bitmap) else "outline"
        builder.add(image, Mark(label, region=region, crowd=crowd, points=points, categories=keyed), kind)
    elif points:
        builder.add(image, Mark(label, points=points, categories=keyed), "point")
    elif not entry.get("bbox"):
        builder.notes.add("no_shape", image.name)


def _parse_segmentation(segmentation: Any) -> Region | None:
    """Return polygons, which are united, or run lengths, plain or compressed."""
    if not segmentation:
        return None
    if isinstance(segmentation, list):
        polygons = [polygon_from_flat(numbers) for numbers in segmentation if len(numbers) >= 6]
        if not polygons:
            return None
        return polygons[0] if len(polygons) == 1 else Union(tuple(polygons))
    height, width = (int(side) for side in segmentation["size"])
    return decode_coco_runs(segmentation["counts"], width, height)


def decode_coco_runs(counts: str | Sequence[int], width: int, height: int) -> Bitmap:
    """Return the mask of COCO's run lengths, which count down the columns; a text is compressed.

    Raises:
        DataError: code `image_too_large` or `invalid_size`. What is damaged is an error when the mask is drawn.
    """
    check_pixels(width, height)

    def decode() -> Any:
        if not isinstance(counts, str):
            return decode_runs(counts, width * height).reshape(width, height).T
        if not _COMPRESSED.fullmatch(counts):
            raise DataError("Compressed run lengths are cut off or hold other characters.", code="damaged_mask")
        from pycocotools import mask as coco_mask

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # pycocotools 2.0.11 with NumPy 2
                # pycocotools compares the runs with the size before it writes a pixel (since 2.0.8)
                mask = coco_mask.decode({"size": [height, width], "counts": counts.encode("ascii")})
        except (ValueError, TypeError) as error:
            raise DataError(f"Compressed run lengths cannot be decoded: {error}.", code="damaged_mask") from error
        return mask.astype(bool)

    return Bitmap(0, 0, width, height, decode, is_whole=True)


def _parse_keypoints(keypoints: Any, category: Any, *, multiple: bool) -> tuple[tuple[str, tuple[float, float]], ...]:
    """Return named points; those with the visibility 0 are not marked."""
    if not keypoints:
        return ()
    names = category.get("keypoints") if category else None
    points = []
    for place, (x, y, visibility) in enumerate(zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True)):
        if visibility and math.isfinite(float(x)) and math.isfinite(float(y)):
            name = str(names[place]) if names and place < len(names) else str(place)
            points.append((f"{category['name']}:{name}" if multiple and category else name, (float(x), float(y))))
    return tuple(points)


def _merge(documents: Sequence[_Document], notes: NoteBook) -> AnnotationSet:
    """Return one set of all parts; a stale copy is left out, other marks of the same images are joined."""
    ranked = sorted(documents, key=lambda document: document.rank, reverse=True)
    merged = AnnotationSet("coco")
    accepted: list[_Document] = []
    names: dict[str, None] = {}
    for document in ranked:
        newer = next((accepted for accepted in accepted if _lists_same_images(document, accepted)), None)
        if newer is None:
            accepted.append(document)
        elif not _get_kinds(document) - _get_kinds(newer) and _is_copy(document, newer):
            notes.add("stale_duplicate", f"{document.path} -> {newer.path}")
        elif _get_kinds(document) & _get_kinds(newer) and not _is_copy(document, newer):
            notes.add("same_names_in_parts", f"{document.path}, {newer.path}")
            accepted.append(document)
        else:
            _join(document, newer)
            notes.add("documents_joined", f"{document.path} + {newer.path}")
            names.update(dict.fromkeys(document.annotations.class_names))
            notes.extend(document.annotations.notes)
    for document in sorted(accepted, key=lambda document: document.path):
        annotations = document.annotations
        merged.images += annotations.images
        merged.marks.update(annotations.marks)
        merged.captions.update(annotations.captions)
        merged.shapes |= annotations.shapes
        for key, key_names in annotations.category_keys.items():
            merged.category_keys[key] = tuple(dict.fromkeys((*merged.category_keys.get(key, ()), *key_names)))
        names = {**dict.fromkeys(annotations.class_names), **names}
        notes.extend(annotations.notes)
    if len(accepted) > 1:
        for document in accepted:
            notes.add("parts_merged", document.path)
    merged.class_names = tuple(names)
    merged.notes = notes.notes()
    return merged


def _get_kinds(document: _Document) -> set[str]:
    return {"text"} if document.annotations.captions else set(document.annotations.shapes)


def _lists_same_images(document: _Document, accepted: _Document) -> bool:
    """Return whether both list the same images, by equal names and sizes, unless each has its images beside it."""
    in_other_folders = PurePosixPath(document.path).parent != PurePosixPath(accepted.path).parent
    if in_other_folders and document.has_images_beside and accepted.has_images_beside:
        return False
    common = document.by_name.keys() & accepted.by_name.keys()
    same_count = sum(document.by_name[name].size in (None, accepted.by_name[name].size) for name in common)
    smaller = min(len(document.by_name), len(accepted.by_name))
    return bool(smaller) and same_count >= MIN_COMMON_IMAGES * smaller


def _is_copy(document: _Document, accepted: _Document) -> bool:
    """Return whether the marks of common images lie at the same places; True if there is nothing to compare."""
    same_count = compared = 0
    for name in document.by_name.keys() & accepted.by_name.keys():
        fewer_boxes, more_boxes = sorted(
            (
                [box for mark in part.annotations.marks[part.by_name[name]] if (box := mark.bounds()) is not None]
                for part in (document, accepted)
            ),
            key=len,
        )
        compared += len(fewer_boxes)
        same_count += sum(any(overlap(box, other_box) >= SAME_PLACE for other_box in more_boxes) for box in fewer_boxes)
    return same_count >= MIN_SAME_MARKS * compared


def _join(document: _Document, accepted: _Document) -> None:
    """Add the other kinds of marks of a document to those of the same images."""
    other_box = document.annotations
    new_kinds = other_box.shapes - accepted.annotations.shapes
    for name, image in document.by_name.items():
        target = accepted.by_name.get(name)
        if target is None:
            target = image
            accepted.annotations.images.append(image)
            accepted.by_name[name] = image
            accepted.annotations.marks[image] = []
        for mark in other_box.marks[image]:
            if target is image:
                accepted.annotations.marks[target].append(mark)
            elif "point" in new_kinds and mark.points:
                accepted.annotations.marks[target].append(
                    Mark(mark.label, points=mark.points, categories=mark.categories)
                )
            elif mark.region is not None and new_kinds & {"mask", "outline"}:
                accepted.annotations.marks[target].append(
                    Mark(mark.label, region=mark.region, crowd=True, categories=mark.categories)
                )
        if image in other_box.captions:
            accepted.annotations.captions.setdefault(target, []).extend(other_box.captions[image])
    accepted.annotations.shapes |= other_box.shapes
