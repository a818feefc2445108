"""What a survey states about tables and annotations."""

from __future__ import annotations

from typing import Literal

from m3b.data.box_places import Space
from m3b.data.run_lengths import Order
from m3b.data.survey.facts import Fact, Sensitive, Value

ColumnType = Literal["empty", "integer", "number", "boolean", "date", "category", "identifier", "path", "text"]


class Column(Fact):
    """A column of a table, or a field of records (`Case.Findings`; lists of plain values count item by item)."""

    name: str
    """As it is spelled; "0", "1", ... where a table has no header."""
    type: ColumnType
    filled: int
    missing: int
    distinct: int
    folded: int
    """Distinct values with case and surrounding and repeated spaces folded."""
    values: tuple[Value, ...] = ()
    """Folded vocabulary where it is at most 60 values, else none; texts as most often spelled."""
    examples: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    lists: bool = False
    """Whether a cell holds several values (a JSON list, or "a|b", "a;b")."""
    separator: str = ""
    sensitive: Sensitive = ""


class Table(Fact):
    """One table, or a group of small files of the same form (a CSV an image)."""

    id: str
    path: str
    """Of the file, or of the first of a group; `sheet` where a workbook has several."""
    sheet: str = ""
    record_path: str = ""
    """Where in a JSON or XML document the records lie, such as "images" or "[]"; "" for tables of text."""
    format: Literal["csv", "xlsx", "json", "jsonl", "xml", "list", "text"]
    group: str = ""
    """The file group it belongs to."""
    files: int = 1
    delimiter: str = ""
    encoding: str = ""
    header: bool = True
    rows: int
    exact: bool = True
    """Whether every row was read."""
    columns: tuple[Column, ...] = ()


class Annotation(Fact):
    """Marks that somebody drew: boxes, outlines, circles, contours or coded masks."""

    id: str
    format: Literal[
        "coco",
        "yolo",
        "voc",
        "labelme",
        "aperio",
        "cvat",
        "via",
        "csv_boxes",
        "csv_circles",
        "csv_lists",
        "csv_runs",
        "json_boxes",
        "rtstruct",
        "dicom_seg",
    ]
    shapes: tuple[str, ...]
    """Of "box", "polygon", "circle", "point", "contour", "mask", "rle", "caption"."""
    path: str
    group: str = ""
    table: str = ""
    files: int
    """Files that hold the marks."""
    items: int
    classes: tuple[Value, ...]
    """Class names (ids where a format has no names) and the marks of each."""
    class_source: str = ""
    """Where the names come from: "names.txt", "categories", a column."""
    images_named: int
    images_marked: int
    images: str = ""
    """The group of the images that they name, if one was found."""
    images_found: int = 0
    """Named images that are there."""
    images_without: int = 0
    """Images of that group that no mark names."""
    columns: tuple[tuple[str, str], ...] = ()
    """Of CSV: what each role is called, ("image", "filename"), ("xmin", "xmin"), ("class", "cell_type"), ..."""
    faults: tuple[tuple[str, int], ...] = ()
    """("no_area", 2), ("outside", 1), ("unknown_class", 3), ..."""
    numbers: tuple[tuple[str, str], ...] = ()
    """Where classes are numbers in the files: each as it is written, and what it is called."""
    space: Space = "pixels"
    """Of boxes in tables: what their coordinates count, as far as the images that they name bear it out."""
    sizes_mm: bool = False
    """Whether their sizes are in mm though their coordinates are not."""
    volumes: bool = False
    """Whether the images that they name are volumes."""
    runs: tuple[Order, int, bool] | None = None
    """Of masks as run lengths: down columns or along rows, the number of the first pixel, whether each start counts from the run
    before."""
    exact: bool = True


class Legend(Fact):
    """What numbers mean, as a document in the folder says.

    Args:
        place: where in it, such as "labels"; "" for all of it.
        names: number and name; of a plain list the place in it, from 0.
        numbered: whether the document itself gives the numbers.
    """

    path: str
    place: str = ""
    names: tuple[tuple[int, str], ...]
    numbered: bool
