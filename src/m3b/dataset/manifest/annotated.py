"""Which annotations belong to which image: those of annotation formats, and tables with a row a box or a mask."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from m3b.dataset.annotations.box_tables import IMAGE_SIZE_ROLES, read_corners, read_image_sizes, split_labels
from m3b.dataset.manifest.image_frame import ImageFrame, JoinedTable
from m3b.dataset.manifest.model import Boxes, ClassCodes, Masks
from m3b.dataset.manifest.patterns import match_any, parse_pattern
from m3b.dataset.manifest.problems import PatternError, Problem, list_names, unknown_column
from m3b.dataset.manifest.templates import fold, match_keys

if TYPE_CHECKING:
    from m3b.dataset.annotations import AnnotatedImage, AnnotationSet

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "place": pl.UInt32,
    "name": pl.String,
    "classes": pl.List(pl.String),
    "count": pl.UInt32,
}
ANY = "*"
"""Code of a class that takes everything that is marked."""
UNNAMED = "(none)"
ROW_FORMAT = "table"
_ROLES = (
    "Needed: xmin, ymin, xmax, ymax; or x, y (corner) or cx, cy (middle) with width, height; or a middle with radius or diameter; "
    "or corners, sides or centres."
)


@dataclass(frozen=True)
class MarkRow:
    """A row of a table that marks something on an image: `corners` of a box (lower, then upper), or `runs` of a mask."""

    label: str
    corners: tuple[float, ...] = ()
    runs: str = ""


@dataclass(frozen=True)
class AnnotatedImages:
    """What annotations say of images.

    Args:
        frame: one row an image that has an annotation: `place` of it in the frame of images, `name` of the annotation, `classes`
            of the manifest that are marked, and `count` of their marks.
        files: the annotation files.
        source: the annotations, if a format has them; `images` is then path -> annotated image.
        rows: reference of an image (`path`, `path#item`) -> rows, if a table has them.
        strange: names in the files that are of no class -> marks.
        set_aside: path -> reason, of images that nobody could or did annotate by their tags.
    """

    frame: pl.DataFrame
    files: tuple[str, ...] = ()
    source: AnnotationSet | None = None
    images: Mapping[str, AnnotatedImage] = field(default_factory=dict)
    rows: Mapping[str, tuple[MarkRow, ...]] = field(default_factory=dict)
    strange: Mapping[str, int] = field(default_factory=dict)
    set_aside: Mapping[str, str] = field(default_factory=dict)


class ClassLookup:
    """From a name or number in the files to a class of the manifest.

    Args:
        names: that the files list in order, of which a manifest may give the numbers.
    """

    def __init__(self, classes: ClassCodes, names: Sequence[str] = ()) -> None:
        self._known: dict[str, str] = {}
        self._any: str | None = None
        for name, codes in classes.items():
            for code in codes or (name,):
                if code == ANY:
                    self._any = self._any or name
                else:
                    self._known.setdefault(_fold_label(str(code)), name)
        for number, name in enumerate(names):
            if str(number) in self._known:
                self._known.setdefault(_fold_label(name), self._known[str(number)])

    def find(self, label: str) -> str | None:
        """The class of a name; None if it is of none."""
        return self._known.get(_fold_label(label), self._any)


def _fold_label(label: str) -> str:
    """A name as it is compared; whole numbers without a point."""
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", fold(label))


def find_annotated(images: ImageFrame, part: Masks | Boxes, name: str) -> AnnotatedImages:
    """The annotations of each image; problems go to those of the frame.

    Args:
        name: of the part, `masks` or `boxes`.
    """
    if part.format == ROW_FORMAT:
        return _find_rows(images, part, name)
    return _find_in_format(images, part, name)


def _count_marks(
    labels: Mapping[str, Sequence[str]], names: Mapping[str, str], keys: Sequence[str], lookup: ClassLookup
) -> tuple[pl.DataFrame, dict[str, int]]:
    """The frame of `AnnotatedImages`, and names of no class.

    Args:
        labels: key of an image -> the name of each mark.
        names: key of an image -> name of the annotation.
        keys: of all images: their paths or references.
    """
    class_of_label: dict[str, str | None] = {}
    strange: dict[str, int] = defaultdict(int)
    rows = []
    for place, key in enumerate(keys):
        if key not in names:
            continue
        classes: list[str] = []
        for label in labels.get(key, ()):
            if label not in class_of_label:
                class_of_label[label] = lookup.find(label)
            if (class_name := class_of_label[label]) is None:
                strange[label] += 1
            else:
                classes.append(class_name)
        rows.append((place, names[key], list(dict.fromkeys(classes)), len(classes)))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row"), dict(strange)


def _select_category_key(source: AnnotationSet, key: str, part: str) -> AnnotationSet:
    if key not in source.category_keys:
        raise PatternError(
            Problem(
                code="unknown_category_key",
                part=f"{part}.category_key",
                finding=f"the annotations have no category key {key!r}; there are {list_names(sorted(source.category_keys), 30)}.",
                remedy="Name one of these, or leave it empty.",
                values={"category_key": key},
            )
        )
    return source.select_category_key(key)


def _set_images_apart(images: ImageFrame, format: str, file_frame: pl.DataFrame) -> pl.DataFrame:
    """Return the annotation files among files some of which are images: those that are of the format by their content."""
    is_image = file_frame["path"].is_in(images.frame["path"].implode())
    if not is_image.any():
        return file_frame
    for part in (file_frame.filter(~is_image), file_frame):
        selected = images.readers.select_annotations(format, part["path"].to_list())
        if selected:
            return part.filter(pl.col("path").is_in(pl.Series(selected).implode()))
    return file_frame


def _find_in_format(images: ImageFrame, part: Masks | Boxes, name: str) -> AnnotatedImages:
    empty = AnnotatedImages(pl.DataFrame(schema=SCHEMA))
    patterns = (part.files,) if isinstance(part.files, str) else part.files
    try:
        file_frame = match_any(
            images.readers.inventory.files.select("path"), [parse_pattern(text, f"{name}.files") for text in patterns]
        )
        if isinstance(part, Masks):
            for text in part.exclude:
                excluded = parse_pattern(text, f"{name}.exclude").match(file_frame.select("path"))
                file_frame = file_frame.join(excluded.select("path"), on="path", how="anti", maintain_order="left")
        if not len(file_frame):
            images.problems.append(
                Problem(
                    code="pattern_matches_nothing",
                    part=f"{name}.files",
                    finding=f"no file matches {' or '.join(map(repr, patterns))}.",
                    remedy="Name the annotation files of the folder.",
                    values={"pattern": list(patterns)},
                )
            )
            return empty
        file_frame = _set_images_apart(images, part.format, file_frame)
        source = images.readers.annotations(part.format, tuple(file_frame["path"].to_list()), f"{name}.format")
        if part.category_key:
            source = _select_category_key(source, part.category_key, name)
        source = replace(source, resized=part.resized)
    except PatternError as error:
        images.problems.append(error.problem)
        return empty
    files = tuple(file_frame["path"].to_list())
    paths = images.frame["path"].to_list()
    set_aside: dict[str, str] = {}
    for path, image in source.match(paths).items() if part.unassessable else ():
        tags = [tag for tag in part.unassessable if tag in source.captions.get(image, ())]
        if tags and not source.marks.get(image):
            set_aside[path] = f"could not be assessed: {', '.join(tags)}"
    if part.finished:
        finished = [image for image in source.images if part.finished in source.captions.get(image, ())]
        set_aside |= {
            path: f"not looked at: it lacks the tag {part.finished}"
            for path, image in source.match(paths).items()
            if image not in set(finished)
        }
        source = replace(source, images=finished, _names=None)
    if part.key:
        matched = _match_files(images, part, name, file_frame, source)
    elif any(image.series for image in source.images):
        images.add_columns(["tag.SeriesInstanceUID"], name)
        series = images.frame["tag.SeriesInstanceUID"].to_list()
        matched = {
            path: hits[0] for path, uid in zip(paths, series, strict=True) if uid and (hits := source.find_series(uid))
        }
    else:
        matched = source.match(paths)
    labels = {path: [mark.label or UNNAMED for mark in source.marks.get(image, ())] for path, image in matched.items()}
    frame, strange = _count_marks(
        labels,
        {path: image.name for path, image in matched.items()},
        images.frame["path"].to_list(),
        ClassLookup(part.classes, source.class_names),
    )
    if not len(frame) and paths:
        images.problems.append(
            Problem(
                code="join_matches_nothing",
                part=name,
                finding=f"the annotations name no image of this manifest. They name "
                f"{list_names([image.name for image in source.images][:3])}; "
                f"images: {list_names(paths[:3])}.",
                remedy="Check `images.files`, or pair the files by `key` and `image`.",
                values={"annotations": [image.name for image in source.images][:5], "images": paths[:5]},
            )
        )
    _note_strange(images, part.classes, strange, name)
    return AnnotatedImages(frame, files, source, matched, {}, strange, set_aside)


def _match_files(
    images: ImageFrame, part: Masks | Boxes, name: str, file_frame: pl.DataFrame, source: AnnotationSet
) -> dict[str, AnnotatedImage]:
    """Annotation files by a key that they share with the image."""
    annotation_files = ImageFrame(file_frame.with_columns(ref="path"), images.readers, images.problems)
    pairs = match_keys(
        images.keys(part.image or part.key, part.match, f"{name}.image"),
        annotation_files.keys(part.key, part.match, f"{name}.key"),
        part.match,
    )
    of_file: dict[str, list[AnnotatedImage]] = defaultdict(list)
    for image in source.images:
        of_file[image.source].append(image)
    paths, files = images.frame["path"].to_list(), file_frame["path"].to_list()
    matched = {}
    for image_place, file_place in pairs.iter_rows():
        candidates = of_file.get(files[file_place], [])
        if len(candidates) == 1:
            matched[paths[image_place]] = candidates[0]
    return matched


def _note_strange(images: ImageFrame, classes: ClassCodes, strange: Mapping[str, int], name: str) -> None:
    """Names in the files that are of no class are said; they are not used."""
    if not strange:
        return
    by_count = sorted(strange.items(), key=lambda item: (-item[1], item[0]))
    images.problems.append(
        Problem(
            code="text_without_class",
            part=f"{name}.classes",
            severity="warning",
            finding=f"marks of no class are not used: {list_names(f'{label} ({count:,})' for label, count in by_count)}.",
            remedy=f"Classes here: {list_names(classes)}. Add the names to one, if they are meant.",
            values={"names": [label for label, _ in by_count][:20], "marks": sum(strange.values())},
        )
    )


# --- tables ------------------------------------------------------------------------------------------------------------------


def _find_rows(images: ImageFrame, part: Masks | Boxes, name: str) -> AnnotatedImages:
    table = images.tables.get(part.table)
    empty = AnnotatedImages(pl.DataFrame(schema=SCHEMA))
    if table is None:
        images.problems.append(
            Problem(
                code="unknown_table",
                part=f"{name}.table",
                finding=f"there is no table {part.table!r}; there are {list_names(images.tables)}.",
                remedy="Name one of `tables`.",
                values={"table": part.table},
            )
        )
        return empty
    frame = table.table.frame
    missing = [column for column in part.columns.values() if column not in frame.columns]
    if missing:
        images.problems += [unknown_column(f"{name}.columns", column, table.table.columns) for column in missing]
        return empty
    marks = _run_rows(table, part) if isinstance(part, Masks) else _box_rows(frame, part)
    if marks is None:
        images.problems.append(
            Problem(
                code="missing_roles",
                part=f"{name}.columns",
                finding=f"these columns give no box: {list_names(part.columns)}.",
                remedy=_ROLES if name == "boxes" else "Needed: runs.",
                values={"roles": list(part.columns)},
            )
        )
        return empty
    places = {number: place for place, number in enumerate(images.frame["(image)"].to_list())}
    refs = images.frame["ref"].to_list()
    rows: dict[str, list[MarkRow]] = defaultdict(list)
    for image_number, row_number in table.pairs.iter_rows():
        if image_number in places:
            rows[refs[places[image_number]]] += marks[row_number]
    labels = {ref: [mark.label for mark in labels_of_row] for ref, labels_of_row in rows.items()}
    counts, strange = _count_marks(labels, dict.fromkeys(rows, part.table), refs, ClassLookup(part.classes))
    _note_strange(images, part.classes, strange, name)
    marks_of_ref = {ref: tuple(labels_of_row) for ref, labels_of_row in rows.items()}
    return AnnotatedImages(counts, (), None, {}, marks_of_ref, strange)


def _label_column(frame: pl.DataFrame, part: Masks | Boxes) -> list[str]:
    """The class of each row; without such a column all are of the one class."""
    if "class" in part.columns:
        return [text or UNNAMED for text in frame[part.columns["class"]].to_list()]
    only = next(iter(part.classes), UNNAMED)
    codes = part.classes.get(only, ())
    return [str(codes[0]) if codes and codes[0] != ANY else only] * len(frame)


def _run_rows(table: JoinedTable, masks: Masks) -> list[list[MarkRow]] | None:
    if "runs" not in masks.columns:
        return None
    frame = table.table.frame
    runs = frame[masks.columns["runs"]].to_list()
    return [
        [MarkRow(label, runs=text)] if text and text.strip() not in ("-1", "nan", "NaN") else []
        for label, text in zip(_label_column(frame, masks), runs, strict=True)
    ]


def has_image_sizes(boxes: Boxes) -> bool:
    """Return whether a table has the size of the image on which each box was drawn."""
    return set(IMAGE_SIZE_ROLES) <= boxes.columns.keys()


def _box_rows(frame: pl.DataFrame, boxes: Boxes) -> list[list[MarkRow]] | None:
    """The boxes of each row as lower and upper corners; None if its columns give no box.

    They are in the table's own unit, and shares of the image's sides if it has the size of the image that they were drawn on.
    A cell of the class with as many names as its row has boxes gives one name to each.
    """
    columns = {role: column for role, column in boxes.columns.items() if role not in {"class", *IMAGE_SIZE_ROLES}}
    corners = read_corners(frame, columns)
    if corners is None:
        return None
    if has_image_sizes(boxes):
        sizes = read_image_sizes(frame, [boxes.columns[role] for role in IMAGE_SIZE_ROLES])
        corners = [
            [tuple(value / side for value, side in zip(box, size * 2, strict=True)) for box in row]
            for row, size in zip(corners, sizes, strict=True)
        ]
    return [
        [MarkRow(name, corners=box) for name, box in zip(split_labels(label, len(row)), row, strict=True)]
        for label, row in zip(_label_column(frame, boxes), corners, strict=True)
    ]
