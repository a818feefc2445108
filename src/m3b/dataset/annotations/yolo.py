"""YOLO: a text file an image; each line is a class number and shares of the image's sides: a box (middle and size), the corners of an
outline, or a box with keypoints (https://docs.ultralytics.com/datasets)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.dataset.annotations.base import AnnotatedImage, AnnotationFormat, AnnotationSet, Mark
from m3b.dataset.annotations.builder import SetBuilder, polygon_from_flat
from m3b.dataset.annotations.documents import load_each, read_text
from m3b.errors import DataError

MAX_LABEL_BYTES = 16 * 2**20
MAX_CLASS_FILE_BYTES = 2**20
MAX_FOLDER_ENTRIES = 5_000
"""Entries of a folder among which a list of class names is looked for."""
TOLERANCE = 0.05
"""How far shares may lie outside of 0 to 1: tools round, and outlines reach over the border."""
ANNOTATION_FOLDERS = frozenset(("labels", "label", "annotations", "annotation"))
CLASS_FILES = (
    "classes.txt",
    "obj.names",
    "names.txt",
    "classes.names",
    "labels.txt",
    "_darknet.labels",
    "predefined_classes.txt",
)


@dataclass(frozen=True)
class ClassNames:
    """Names of class numbers, and the numbers of a keypoint (2: x, y; 3: with visibility) with their count."""

    names: Mapping[int, str]
    source: str = ""
    keypoints: tuple[int, int] = (0, 0)


class Yolo(AnnotationFormat):
    """YOLO boxes, outlines and keypoints."""

    name = "yolo"
    suffixes = (".txt",)
    per_image = True
    needs_image = True
    unnamed_images = "negative"  # "If no objects in an image, no *.txt file is required" (https://docs.ultralytics.com/datasets/detect)

    def detect(self, path: Path, head: bytes) -> bool:
        """Return whether each line is a class number with shares."""
        lines = split_lines(head)
        return (
            bool(lines)
            and path.name.casefold() not in CLASS_FILES
            and all(_parse_line(line) is not None for line in lines)
        )

    def load(self, paths: Sequence[str], root: Path) -> AnnotationSet:
        """Return the marks of label files; an empty file is an image without marks."""
        labels = [
            path
            for path in paths
            if PurePosixPath(path).name.casefold() not in CLASS_FILES and path.endswith((".txt", ".TXT"))
        ]
        builder = SetBuilder(self.name, "shares")
        classes = find_class_names(root, labels)
        texts = load_each(labels, self.name, lambda path: read_text(root, path, MAX_LABEL_BYTES), builder.notes)
        for path, text in texts:
            image = add_stem_image(builder, path)
            lines = [line for line in text.splitlines() if line.strip()]
            for line in lines:
                row = _parse_line(line)
                if row is None:
                    builder.notes.add("damaged_line", path)
                else:
                    _add(builder, image, row, classes)
        if builder.notes.counts["damaged_line"] and not any(builder.set.marks.values()):
            raise DataError(f"{labels[0]}: no line is a class number with shares of an image.", code="not_this_format")
        return builder.finish(classes.names[number] for number in sorted(classes.names))


def split_lines(head: bytes) -> list[str]:
    """Return the lines of the start of a file; without the last one, which may be cut."""
    lines = head.decode("utf-8-sig", "replace").splitlines()
    if len(lines) > 1 and len(head) >= 4000 and not head.endswith(b"\n"):
        lines.pop()
    return [line for line in lines if line.strip()]


def add_stem_image(builder: SetBuilder, path: str) -> AnnotatedImage:
    """Return the image of an annotation file that has its stem: beside it, or in a folder that stands for its own (`images` for
    `labels`)."""
    *folders, own_name = path.split("/")
    stem = own_name.rpartition(".")[0] or own_name
    keys = ["/".join((*folders, stem))]
    for place, folder in enumerate(folders):
        if folder.casefold() in ANNOTATION_FOLDERS:
            below = folders[place + 1 :]
            keys.insert(0, "/".join((*folders[:place], "images", *below, stem)))
            keys.append("/".join((*below, stem)))
    return builder.add_image(stem, path, (*keys, stem))


def _parse_line(line: str) -> tuple[int, list[float]] | None:
    cells = line.split()
    try:
        number, values = int(cells[0]), [float(cell) for cell in cells[1:]]
    except (ValueError, IndexError):
        return None
    if number < 0 or len(values) < 4 or not all(map(math.isfinite, values)):
        return None
    places = values[:4] if len(values) < 6 else values
    shares = all(-TOLERANCE <= value <= 1 + TOLERANCE for value in places)
    if len(values) >= 6 and not shares:  # keypoints have a visibility of 0, 1 or 2
        shares = all(-TOLERANCE <= value <= 1 + TOLERANCE or value == 2 for value in places)
    return (number, values) if shares else None


def _add(builder: SetBuilder, image: AnnotatedImage, row: tuple[int, list[float]], classes: ClassNames) -> None:
    number, values = row
    label = classes.names.get(number, str(number))
    if classes.names and number not in classes.names:
        builder.notes.add("unknown_category_id", str(number))
    count, numbers_per_point = classes.keypoints
    if len(values) in (4, 5):  # a fifth is a score
        _add_box(builder, image, label, values)
    elif count and len(values) == 4 + count * numbers_per_point:
        tail = values[4:]
        places = [tail[start : start + numbers_per_point] for start in range(0, len(tail), numbers_per_point)]
        points = tuple(
            (str(place), (point[0], point[1])) for place, point in enumerate(places) if len(point) < 3 or point[2] > 0
        )
        if _add_box(builder, image, label, values):
            builder.add(image, Mark(label, points=points), "point")
    else:
        try:
            builder.add_region(image, label, polygon_from_flat(values[: len(values) // 2 * 2]))
        except ValueError:
            builder.notes.add("damaged_mark", image.name)


def _add_box(builder: SetBuilder, image: AnnotatedImage, label: str, values: Sequence[float]) -> bool:
    x, y, width, height = values[:4]
    return builder.add_box(image, label, (x - width / 2, y - height / 2, x + width / 2, y + height / 2))


# --- class names ------------------------------------------------------------------------------------------------------


def find_class_names(root: Path, paths: Sequence[str]) -> ClassNames:
    """Return the names of class numbers from the list that lies closest above the label files; none if there is no list."""
    folders = dict.fromkeys(str(PurePosixPath(path).parent) for path in paths[:1000])
    shared = os.path.commonpath(list(folders)) if folders else ""
    searched = [*list(folders)[:20], *_ancestors(shared)]
    for folder in dict.fromkeys(searched):
        for path in _list_class_files(root, folder):
            try:
                classes = _read_class_names(root, path)
            except DataError:
                continue
            if classes.names:
                return classes
    return ClassNames({})


def _ancestors(folder: str) -> Iterator[str]:
    pure = PurePosixPath(folder or ".")
    yield str(pure)
    yield from map(str, pure.parents)


def _list_class_files(root: Path, folder: str) -> list[str]:
    """Return YAML documents first, then lists by name."""
    try:
        with os.scandir(root / folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_FOLDER_ENTRIES))
    except OSError:
        return []
    documents = [name for name in names if name.casefold().endswith((".yaml", ".yml"))]
    documents.sort(key=lambda name: not name.casefold().startswith(("data", "dataset")))
    lists = [name for name in names if name.casefold() in CLASS_FILES or name.casefold().endswith(".names")]
    return [str(PurePosixPath(folder) / name) for name in (*documents, *lists)]


def _read_class_names(root: Path, path: str) -> ClassNames:
    text = read_text(root, path, MAX_CLASS_FILE_BYTES)
    if not path.casefold().endswith((".yaml", ".yml")):
        return ClassNames(dict(enumerate(line.strip() for line in text.splitlines() if line.strip())), path)
    import yaml

    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DataError(f"{path} is not YAML: {error}.", code="damaged") from error
    names = raw.get("names") if isinstance(raw, dict) else None
    shape = raw.get("kpt_shape") if isinstance(raw, dict) else None
    return ClassNames(_number_names(names), path, _parse_keypoint_shape(shape))


def _number_names(names: Any) -> dict[int, str]:
    if isinstance(names, list):
        return {number: str(name) for number, name in enumerate(names)}
    if isinstance(names, dict):
        return {int(number): str(name) for number, name in names.items() if str(number).isdecimal()}
    return {}


def _parse_keypoint_shape(shape: Any) -> tuple[int, int]:
    if isinstance(shape, list) and len(shape) == 2 and all(isinstance(side, int) and 0 < side < 1000 for side in shape):
        return shape[0], shape[1]
    return 0, 0
