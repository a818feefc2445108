"""Boxes in tables: which columns hold them, what their numbers mean, and the boxes of each image.

Names of columns propose roles; values and the sizes of images decide: a corner lies
above and left of the other, a box lies in its image.
What stays open after that is named, so that a proposal can ask.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from m3b.dataset.annotations.geometry import MIN_REACH, SLACK, Box, ImageSize, VolumeGrid
from m3b.dataset.tables.columns import MISSING_WORDS, fold
from m3b.dataset.tables.model import FILE_COLUMN, ROW_COLUMN
from m3b.errors import DataError

if TYPE_CHECKING:
    import polars as pl

Form = Literal["corners", "sides", "centres"]
"""Two corners; a corner and the sizes; a middle and the sizes."""
TableSpace = Literal["pixels", "shares", "percent", "lps", "ras"]
Reading = tuple[Form, TableSpace]
FORMS: tuple[Form, ...] = ("corners", "sides", "centres")
AXES = (("x", "width"), ("y", "height"), ("z", "depth"))

MIN_NUMERIC = 0.98
"""Share of filled cells that must be numbers for a column of coordinates."""
MIN_FIT = 0.98
"""Share of boxes that must lie in their images; tables have a few boxes that do not."""
MAX_SHARE = 1.05
MAX_MEASURED_IMAGES = 60
MIN_IMAGES_FOR_PERCENT = 6
MAX_CHANCE = 1e-3
"""Probability that a box of each image lies within the first hundred pixels of its sides, if boxes were spread evenly; below it
they are percent."""
MIN_DISTINCT_BOXES = 6
"""Different places from which on fractions are no accident."""

# --- roles of columns -------------------------------------------------------------------------------------------------

_NOISE = re.compile(
    r"^(?:bounding|bbox(?:es)?|bndbox|box|bb|rect(?:angle)?|roi|coords?|coordinates?|pos(?:ition)?|px|pixels?|vox(?:els?)?|mm|world|"
    r"percent|pct|rel(?:ative)?|norm(?:alized|alised)?|nodule|nod|lesion|object|region|image|img|of|the|in)$"
)
_TOKEN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
_AXIS_WORDS = {"x": "x", "y": "y", "z": "z", "col": "x", "column": "x", "row": "y", "slice": "z"}
_LOW = "min|minimum|start|begin|low|lower|from|tl|ul"
_HIGH = "max|maximum|end|stop|high|upper|to|br|lr"
_MIDDLE = "c|ctr|center|centre|mid|middle|mean"
_PLACE = re.compile(
    rf"^(?P<before>{_LOW}|{_HIGH}|{_MIDDLE})?(?P<axis>col(?:umn)?|row|slice|[xyz])(?P<after>{_LOW}|{_HIGH}|{_MIDDLE}|[0-9])?$"
)
_EDGES = {"left": "xmin", "top": "ymin", "right": "xmax", "bottom": "ymax"}
_SIZES = {
    "width": ("width", "w", "dx", "breite", "largeur", "ancho", "anchura", "sizex", "xsize"),
    "height": ("height", "h", "dy", "hoehe", "höhe", "hauteur", "alto", "altura", "sizey", "ysize"),
    "depth": ("depth", "dz", "tiefe", "profondeur", "profundidad", "sizez", "zsize"),
    "radius": ("radius", "rad", "r", "rayon", "radio"),
    "diameter": ("diameter", "diam", "d", "durchmesser", "diamètre", "diametre", "diámetro", "diametro"),
}
_SIZE_WORDS = {word: role for role, words in _SIZES.items() for word in words}
_IMAGE_WORDS = frozenset(("image", "img", "picture", "frame", "orig", "original", "source", "full", "bild", "imagen"))
"""Words of columns that hold the size of the image, and not of a box."""
_FORM_WORDS: dict[str, Form] = {
    "xyxy": "corners", "xywh": "sides", "cxcywh": "centres", "xyzxyz": "corners", "xyzwhd": "sides", "cxcyczwhd": "centres",
}  # fmt: skip
_CLASS_WORDS = (
    re.compile(
        r"class|label|categor|finding|lesion|abnormalit|patholog|disease|diagnos|klasse|befund|clase|hallazgo|类|标签",
        re.I,
    ),
    re.compile(r"type|target|kind|object", re.I),
    re.compile(r"name", re.I),
)
"""Words of columns of classes, the clearest first."""
_BOX_WORDS = re.compile(r"box|rect|roi", re.I)
"""Words of columns of boxes."""
MAX_CLASSES = 200
IMAGE_SIZE_ROLES = ("image_width", "image_height")
"""Roles of the size of the image on which boxes were drawn, if the images were reduced afterwards."""


@dataclass(frozen=True)
class BoxColumns:
    """Columns of a table that hold boxes.

    Args:
        columns: role -> column, as `Boxes.columns` of a manifest.
        form: what the names say of the numbers; empty if they say nothing.
        is_ball: whether a box is given as a middle with radius or diameter.
        sizes_mm: whether names of sizes end in mm.
        in_mm: whether names of places do.
        in_percent: whether names say percent.
        image_size: columns of width and height of the image on which a box was drawn; empty if there are none.
    """

    columns: dict[str, str]
    form: Form | Literal[""] = ""
    is_ball: bool = False
    sizes_mm: bool = False
    in_mm: bool = False
    in_percent: bool = False
    image_size: tuple[str, ...] = ()

    @property
    def list_column(self) -> str:
        """The column of lists of numbers; empty if each number has its column."""
        return next((self.columns[form] for form in FORMS if form in self.columns), "")

    @property
    def axes(self) -> int:
        """2, or 3 if the columns say a place along the third axis; of lists 0, since only their cells say it."""
        if self.list_column:
            return 0
        return 3 if {"zmin", "z", "cz"} & self.columns.keys() else 2


def propose_box_columns(frame: pl.DataFrame) -> BoxColumns | None:
    """Return the columns of boxes of a table of texts; None if it has none.

    Corners go before sizes, since tables with both often hold the size of the image in `width` and `height`.
    """
    roles = find_roles(frame)
    box_columns = _propose_columns(frame, roles)
    if box_columns is None:
        return None
    for names in (IMAGE_SIZE_ROLES, ("width", "height")):
        image_size = tuple(roles.get(name, "") for name in names)
        if all(image_size) and not set(image_size) & set(box_columns.columns.values()):
            return replace(box_columns, image_size=image_size)
    return box_columns


def _propose_columns(frame: pl.DataFrame, roles: Mapping[str, str]) -> BoxColumns | None:
    for places, sizes, form in (
        (("{}min",), ("{}max",), "corners"),
        (("c{}",), (), "centres"),
        (("{}", "{}min"), (), "sides"),
    ):
        for place in places:
            pairs = [(place.format(axis), sizes[0].format(axis) if sizes else size) for axis, size in AXES]
            if all(role in roles for pair in pairs[:2] for role in pair):
                named_pairs = pairs if all(role in roles for role in pairs[2]) else pairs[:2]
                columns = {role: roles[role] for pair in named_pairs for role in pair}
                return _describe(BoxColumns(columns, form))  # type: ignore[arg-type]
    for place in ("c{}", "{}"):
        names = [place.format(axis) for axis in "xyz" if place.format(axis) in roles]
        size = next((role for role in ("radius", "diameter") if role in roles), "")
        if size and names[:2] == [place.format("x"), place.format("y")]:
            columns = {**{role: roles[role] for role in names}, size: roles[size]}
            return _describe(BoxColumns(columns, "centres", is_ball=True))
    list_columns = [column for column in frame.columns if _holds_box_lists(frame[column])]
    if not list_columns:
        return None
    column = next((column for column in list_columns if _BOX_WORDS.search(column)), list_columns[0])
    words = re.sub(r"[^a-z]", "", column.casefold())
    declared = [name for word, name in _FORM_WORDS.items() if word in words][-1:]
    return _describe(BoxColumns({(declared or ["sides"])[0]: column}, declared[0] if declared else ""))


def _holds_box_lists(series: pl.Series) -> bool:
    """Whether each filled cell is a list of boxes, all with four numbers or all with six."""
    cells = [text for text in series.drop_nulls().to_list() if not _is_missing(text)]
    lists = [parse_box_lists(text) for text in cells]
    return all(boxes is not None for boxes in lists) and len({len(box) for boxes in lists for box in boxes or ()}) == 1


def propose_class_column(frame: pl.DataFrame, box_columns: Iterable[str]) -> str:
    """Return the column of classes: texts of few values whose name says so, else the only such column that has several; empty
    if there is none."""
    columns_left = [
        column
        for column in frame.columns
        if column not in {*box_columns, ROW_COLUMN, FILE_COLUMN} and not _holds_numbers(frame[column])
    ]
    candidates_of_few = [
        column
        for column in columns_left
        if 1 <= frame[column].drop_nulls().n_unique() <= min(MAX_CLASSES, max(frame.height // 2, 2))
    ]
    texts = [column for column in candidates_of_few if not is_numeric(frame[column])]
    for candidates in (texts, candidates_of_few):
        for words in _CLASS_WORDS:
            by_word = [column for column in candidates if words.search(column)]
            if by_word:
                return min(by_word, key=lambda column: frame[column].n_unique())
    varied_texts = [column for column in texts if frame[column].drop_nulls().n_unique() > 1]
    return varied_texts[0] if len(varied_texts) == 1 else ""


def find_paired_column(frame: pl.DataFrame, columns: BoxColumns) -> str:
    """Return the column whose cells list as many texts as their row has boxes, in rows of several boxes, else one that lists as
    many whole numbers and is called like classes; empty if there is none."""
    counts = [len(boxes or ()) for boxes in _parse_rows(frame, columns)]
    names = [name for name in frame.columns if name not in {*columns.columns.values(), ROW_COLUMN, FILE_COLUMN}]
    texts = [name for name in names if not _holds_numbers(frame[name])]
    codes = [name for name in names if name not in texts and _CLASS_WORDS[0].search(name.rpartition(".")[2])]
    for name in (*texts, *codes):
        rows = [(cell, count) for cell, count in zip(frame[name].to_list(), counts, strict=True) if cell and count > 1]
        lists = [_cut_labels(cell) for cell, _ in rows]
        is_paired = all(len(labels) == count for labels, (_, count) in zip(lists, rows, strict=True))
        if rows and is_paired and (name in texts or all(label.isdecimal() for labels in lists for label in labels)):
            return name
    return ""


def _holds_numbers(series: pl.Series) -> bool:
    """Whether each filled cell is a list of numbers."""
    cells = series.drop_nulls().unique().to_list()
    return all(_LIST.fullmatch(cell) and len(_NUMBER.findall(cell)) > 1 for cell in cells)


def find_roles(frame: pl.DataFrame) -> dict[str, str]:
    """Return role -> first column of numbers, or of lists of numbers, that has it by its name."""
    roles: dict[str, str] = {}
    numbered: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for column in frame.columns:
        if not is_numeric(frame[column]) and not _holds_number_lists(frame[column]):
            continue
        words = _split_words(column)
        text = "".join(token for token in words if not _NOISE.match(token))
        size_of_image = _SIZE_WORDS.get(text.removeprefix("original").removeprefix("orig"), "")
        if _IMAGE_WORDS & set(words) and size_of_image in ("width", "height"):
            roles.setdefault(f"image_{size_of_image}", column)
        elif text in _EDGES:
            roles.setdefault(_EDGES[text], column)
        elif text in _SIZE_WORDS:
            roles.setdefault(_SIZE_WORDS[text], column)
        elif match := _PLACE.match(text):
            axis, word = _AXIS_WORDS[match["axis"]], match["before"] or match["after"] or ""
            if word.isdigit():
                numbered[axis].append((int(word), column))
            elif re.fullmatch(_LOW, word):
                roles.setdefault(f"{axis}min", column)
            elif re.fullmatch(_HIGH, word):
                roles.setdefault(f"{axis}max", column)
            else:
                roles.setdefault(f"c{axis}" if word else axis, column)
    for axis, columns in numbered.items():
        if len(columns) == 2:
            (_, low), (_, high) = sorted(columns)
            roles.setdefault(f"{axis}min", low)
            roles.setdefault(f"{axis}max", high)
        elif len(columns) == 1:
            roles.setdefault(f"{axis}min", columns[0][1])
    return roles


def _holds_number_lists(series: pl.Series) -> bool:
    """Whether each filled cell is a number or a list of numbers."""
    cells = [cell for cell in series.drop_nulls().unique().to_list() if not _is_missing(cell)]
    return bool(cells) and all(_parse_list(cell) for cell in cells)


def _split_words(column: str) -> list[str]:
    return [token.casefold() for token in _TOKEN.findall(column.rpartition(".")[2] or column)]


def is_numeric(series: pl.Series) -> bool:
    """Return whether nearly all filled cells are numbers."""
    import polars as pl

    filled = series.drop_nulls()
    filled = filled.filter(~filled.str.to_lowercase().is_in(MISSING_WORDS))
    if not len(filled):
        return False
    return bool(parse_numbers(filled).is_not_null().sum() >= MIN_NUMERIC * len(filled)) and series.dtype == pl.String


def parse_numbers(series: pl.Series) -> pl.Series:
    """Return texts as numbers, with a decimal comma if no text has a point; null if one is none."""
    import polars as pl

    points = series.str.contains(".", literal=True).any()
    cleaned = series if points else series.str.replace(",", ".", literal=True)
    numbers = cleaned.str.strip_chars().cast(pl.Float64, strict=False)
    return numbers.set(~numbers.is_finite(), None) if len(numbers) else numbers


def _describe(columns: BoxColumns) -> BoxColumns:
    """Return the columns with what their names say of units."""
    words = {role: set(_split_words(column)) for role, column in columns.columns.items()}
    size_roles = ("width", "height", "depth", "radius", "diameter")
    places = [tokens for role, tokens in words.items() if role not in size_roles]
    percent = {"percent", "pct", "rectanglelabels"}
    return replace(
        columns,
        in_mm=bool(places) and all(tokens & {"mm", "world"} for tokens in places),
        sizes_mm=any("mm" in tokens for role, tokens in words.items() if role in size_roles),
        in_percent=any(tokens & percent for tokens in words.values())
        or any("%" in name for name in columns.columns.values()),
    )


# --- rows -------------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_LIST = re.compile(r"[\s\[\](){},;|\"'\d.eE+-]*")


def parse_box_lists(cell: str) -> list[tuple[float, ...]] | None:
    """Return the boxes of one cell, each of four or six numbers: `[1, 2, 3, 4]`, `1 2 3 4; 5 6 7 8`, `[[...], [...]]`.

    None if it holds something else.
    """
    if len(cell) > 2**20 or not _LIST.fullmatch(cell):
        return None
    boxes = []
    pieces = [piece for piece in re.split(r"[\])};|]", cell) if piece.strip()]
    if len(pieces) in (4, 6) and all(len(_NUMBER.findall(piece)) == 1 for piece in pieces):
        pieces = [" ".join(pieces)]  # a list of numbers, as documents write one box
    for piece in pieces:
        numbers = tuple(float(number) for number in _NUMBER.findall(piece))
        if numbers and len(numbers) not in (4, 6):
            return None
        if numbers:
            boxes.append(numbers)
    return boxes


@dataclass
class BoxRows:
    """Boxes of a table as numbers.

    Args:
        names: image of each row, as the table names it.
        labels: class of each box.
        numbers: (boxes, 4 or 6): two corners, or a place and the sizes.
        columns: where they come from.
        image_sizes: (boxes, 2): width and height of the images on which they were drawn, as the table says; NaN if it does not.
    """

    names: list[str]
    labels: list[str]
    numbers: Any
    columns: BoxColumns
    image_sizes: Any = None


def read_box_rows(
    frame: pl.DataFrame, columns: BoxColumns, names: Sequence[str | None], class_column: str = "", label: str = ""
) -> BoxRows:
    """Return the boxes of a table.

    Args:
        names: image of each row.
        label: class of all boxes, if there is no column of classes.

    Raises:
        DataError: code `damaged`: boxes of two axes stand beside boxes of three.
    """
    import numpy as np

    labels = frame[class_column].to_list() if class_column else [label] * frame.height
    rows = BoxRows([], [], np.zeros((0, 4)), columns)
    numbers: list[tuple[float, ...]] = []
    sizes = read_image_sizes(frame, columns.image_size)
    image_sizes = []
    for place, boxes in enumerate(_parse_rows(frame, columns)):
        if boxes and names[place]:
            box_labels = split_labels(labels[place], len(boxes))
            numbers += boxes
            image_sizes += [sizes[place]] * len(boxes)
            rows.names += [str(names[place])] * len(boxes)
            rows.labels += box_labels
    if len({len(box) for box in numbers}) > 1:
        raise DataError("boxes.columns: some boxes have four numbers and some six.", code="damaged")
    if numbers:
        rows.numbers = np.array(numbers, float)
    rows.image_sizes = np.array(image_sizes, float).reshape(-1, 2)
    return rows


def read_image_sizes(frame: pl.DataFrame, columns: Sequence[str]) -> list[tuple[float, float]]:
    """Return width and height of the image of each row by two columns; NaN if a cell has no positive number."""
    import polars as pl

    if len(columns) != 2:
        return [(float("nan"), float("nan"))] * frame.height
    sides = [parse_numbers(frame[column]).fill_null(float("nan")) for column in columns]
    sides = [side.set(side <= 0, float("nan")).cast(pl.Float64) for side in sides]
    return list(zip(*sides, strict=True))


def split_labels(text: str | None, count: int) -> list[str]:
    """Return the labels of the boxes of one row: a list of as many texts, else one for all."""
    cleaned = (text or "").strip()
    pieces = _cut_labels(cleaned)
    return pieces if len(pieces) == count > 1 else [cleaned] * count


def _cut_labels(text: str) -> list[str]:
    return [piece.strip() for piece in re.split(r"[\[\],;|\"']+", text) if piece.strip()]


def _parse_rows(frame: pl.DataFrame, columns: BoxColumns) -> Iterable[list[tuple[float, ...]] | None]:
    """Yield the boxes of each row: none of empty cells, None of cells that hold something else."""
    if columns.list_column:
        for cell in frame[columns.list_column].to_list():
            yield [] if _is_missing(cell) else parse_box_lists(cell)
        return
    for boxes in _parse_sides(frame, columns.columns):
        yield None if boxes is None else [_complete(columns, sides) for sides in boxes]


def _is_missing(cell: str | None) -> bool:
    return not cell or fold(cell) in MISSING_WORDS


def _parse_sides(frame: pl.DataFrame, columns: Mapping[str, str]) -> Iterable[list[dict[str, float]] | None]:
    """Yield the boxes of each row as role -> number: one, or as many as each of its cells lists."""
    values = [parse_numbers(frame[column]).to_list() for column in columns.values()]
    texts = [frame[column].to_list() for column in columns.values()]
    for numbers, cells in zip(zip(*values, strict=True), zip(*texts, strict=True), strict=True):
        if any(map(_is_missing, cells)):
            yield []
            continue
        lists = [
            [number] if number is not None else _parse_list(cell) for number, cell in zip(numbers, cells, strict=True)
        ]
        same_length = bool(lists[0]) and len(set(map(len, lists))) == 1
        yield [dict(zip(columns, box, strict=True)) for box in zip(*lists, strict=True)] if same_length else None


def _parse_list(cell: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(cell)] if _LIST.fullmatch(cell) else []


def _complete(columns: BoxColumns, sides: Mapping[str, float]) -> tuple[float, ...]:
    """Return places, then corners or sizes; a ball is as wide as high."""
    axes = AXES[: columns.axes]
    low = [next(sides[role] for role in (f"{axis}min", axis, f"c{axis}") if role in sides) for axis, _ in axes]
    if columns.is_ball or not {"xmax", "width"} & sides.keys():
        size = 2 * sides["radius"] if "radius" in sides else sides["diameter"]
        return (*low, *[size] * len(axes))
    return (*low, *(sides[f"{axis}max"] if f"{axis}max" in sides else sides[size] for axis, size in axes))


def read_corners(frame: pl.DataFrame, columns: Mapping[str, str]) -> list[list[Box]] | None:
    """Return the boxes of each row as lower and upper corners in the table's own unit; None if the columns give no box.

    Args:
        columns: role -> column, as `Boxes.columns` of a manifest without the class.
    """
    form = next((form for form in FORMS if form in columns), None)
    if form is not None:
        cells = frame[columns[form]].to_list()
        return [[] if _is_missing(cell) else [form_box(form, box) for box in _cut_boxes(cell)] for cell in cells]
    if _to_corners(dict.fromkeys(columns, 0.0)) is None:
        return None
    return [
        [box for sides in boxes or () if (box := _to_corners(sides)) is not None]
        for boxes in _parse_sides(frame, columns)
    ]


def _cut_boxes(cell: str) -> list[tuple[float, ...]]:
    """Return the boxes of a cell; numbers that nothing separates are cut into boxes of four, or of six."""
    boxes = parse_box_lists(cell)
    if boxes is not None:
        return boxes
    numbers = tuple(float(number) for number in _NUMBER.findall(cell))
    count = 6 if len(numbers) % 4 and not len(numbers) % 6 else 4
    return [numbers[at : at + count] for at in range(0, len(numbers) - count + 1, count)]


def _to_corners(sides: Mapping[str, float]) -> Box | None:
    """Return the box that numbers of roles give; None if they leave an axis of the picture open."""
    radius = sides.get("radius", sides["diameter"] / 2 if "diameter" in sides else None)
    low, high = [], []
    for axis, size in AXES:
        middle = sides.get(f"c{axis}", sides.get(axis) if radius is not None else None)
        half = sides[size] / 2 if size in sides else radius
        if f"{axis}min" in sides and f"{axis}max" in sides:
            ends = sides[f"{axis}min"], sides[f"{axis}max"]
        elif middle is not None and half is not None:
            ends = middle - half, middle + half
        elif (start := sides.get(axis, sides.get(f"{axis}min"))) is not None and size in sides:
            ends = start, start + sides[size]
        elif axis != "z":
            return None
        else:
            continue
        low.append(ends[0])
        high.append(ends[1])
    return (*low, *high)


# --- what numbers mean ------------------------------------------------------------------------------------------------

ImageGrid = ImageSize | VolumeGrid
MeasuredBoxes = Sequence[tuple[Any, ImageGrid]]
"""Numbers of boxes, each with the grid of its image."""


@dataclass(frozen=True)
class BoxReading:
    """What the numbers of boxes mean, measured on their images.

    Args:
        form, space: that fit best.
        fit: share of measured boxes that lie in their images.
        rivals: others that fit as well and give other boxes.
        sizes_mm: whether sizes are mm though places are not.
        scale: pixels of the image to one unit of the numbers, along columns and rows; not 1 if images were reduced.
        is_of_image_size: whether numbers are pixels of an image of the size that the table says.
        n_measured: boxes whose image was measured.
    """

    form: Form
    space: TableSpace
    fit: float
    rivals: tuple[Reading, ...] = ()
    sizes_mm: bool = False
    scale: tuple[float, float] = (1.0, 1.0)
    is_of_image_size: bool = False
    n_measured: int = 0


def measure_boxes(rows: BoxRows, sizes: Mapping[str, ImageGrid], originals: Sequence[OriginalSize] = ()) -> BoxReading:
    """Return what the numbers of boxes mean.

    Args:
        sizes: image as the table names it -> its size or grid; a sample suffices.
        originals: sizes of the images on which boxes may have been drawn; one is taken if boxes lie outside the images that are
            there, and inside originals of this size alone.
    """
    reading = _measure_as_given(rows, sizes)
    flat_sizes = {name: grid for name, grid in sizes.items() if isinstance(grid, ImageSize)}
    is_fitting = reading.fit >= MIN_FIT and (reading.space != "percent" or rows.columns.in_percent)
    if not reading.n_measured or is_fitting or rows.numbers.shape[1] != 4 or len(flat_sizes) < len(sizes):
        return reading
    places = [place for place, name in enumerate(rows.names) if name in flat_sizes]
    measured_rows = replace(
        rows, names=[rows.names[place] for place in places], labels=[], numbers=rows.numbers[places], image_sizes=None
    )
    if rows.image_sizes is not None and (
        in_size := _measure_in_sizes(measured_rows, flat_sizes, rows.image_sizes[places])
    ):
        return replace(in_size, is_of_image_size=True)
    scales = {scale for original in originals for scale in original.list_scales(list(flat_sizes.values()))}
    readings = []
    for scale in scales:
        size_by_name = {name: (grid.width / scale[0], grid.height / scale[1]) for name, grid in flat_sizes.items()}
        if in_size := _measure_in_sizes(
            measured_rows, flat_sizes, [size_by_name[name] for name in measured_rows.names]
        ):
            readings.append(replace(in_size, scale=scale))
    return readings[0] if len(readings) == 1 else reading


def _measure_in_sizes(
    rows: BoxRows, sizes: Mapping[str, ImageSize], image_sizes: Sequence[tuple[float, float]]
) -> BoxReading | None:
    """Return what numbers mean if they are pixels of images of other sizes, one a box; None if they do not fit these.

    Boxes that keep to a corner of the originals may be those of smaller ones.
    """
    import numpy as np

    grids = np.array([(sizes[name].width, sizes[name].height) for name in rows.names], float)
    scales = grids / np.array(image_sizes, float)
    if not np.isfinite(scales).all():
        return None
    scaled_rows = replace(rows, numbers=rows.numbers * np.hstack([scales, scales]))
    reading = _measure_as_given(scaled_rows, sizes)
    corners = np.array([form_box(reading.form, numbers) for numbers in scaled_rows.numbers])
    has_reach = bool(((corners[:, 2:] / grids).max(axis=0) > MIN_REACH).all())
    return reading if reading.fit >= MIN_FIT and reading.space == "pixels" and has_reach else None


@dataclass(frozen=True)
class OriginalSize:
    """The size of the images on which boxes were drawn, as notes state it.

    Args:
        width, height: in pixels; 0 if only the factor is stated.
        factor: how many times as large as the images they are.
    """

    width: int = 0
    height: int = 0
    factor: float = 0.0

    def list_scales(self, sizes: Sequence[ImageSize]) -> list[tuple[float, float]]:
        """Return the scales from the originals to all images; none if images differ in theirs, or if they are no smaller.

        Notes write a size as width and height, and as rows and columns: the order in which images have the proportions goes first.
        """
        if self.factor > 1:
            return [(1 / self.factor, 1 / self.factor)]
        if self.factor or len({(size.width, size.height) for size in sizes}) != 1:
            return []
        orders = dict.fromkeys(((self.width, self.height), (self.height, self.width)))
        scales = [(sizes[0].width / width, sizes[0].height / height) for width, height in orders]
        in_proportion = [scale for scale in scales if abs(scale[0] / scale[1] - 1) <= SLACK]
        return [scale for scale in in_proportion or scales if max(scale) < 1]


def _measure_as_given(rows: BoxRows, sizes: Mapping[str, ImageGrid]) -> BoxReading:
    """Return what numbers mean if they count the pixels, shares or mm of the images that are there."""
    places = [place for place, name in enumerate(rows.names) if name in sizes]
    names = list(dict.fromkeys(rows.names[place] for place in places))
    sample = set(names[:: max(1, len(names) // MAX_MEASURED_IMAGES)][:MAX_MEASURED_IMAGES])
    places = [place for place in places if rows.names[place] in sample]
    boxes = [(rows.numbers[place], sizes[rows.names[place]]) for place in places]
    spaces = _list_spaces(rows, boxes)
    forms = _list_forms(rows)
    if not boxes:
        return BoxReading(
            forms[0], spaces[0], 0.0, tuple((form, spaces[0]) for form in forms[1:] if not rows.columns.form)
        )
    ball = rows.columns.is_ball
    fits = {
        (form, space): sum(_lies_inside(form, space, numbers, grid, ball=ball) for numbers, grid in boxes) / len(boxes)
        for form in forms
        for space in spaces
    }
    good = [reading for reading, fit in fits.items() if fit >= MIN_FIT] or [
        max(fits, key=lambda reading: fits[reading])
    ]
    if not rows.columns.form and rows.numbers.shape[1] == 4:  # lists of a middle and sizes are rare
        good = [reading for reading in good if reading[0] != "centres"] or good

    def rank(reading: Reading) -> tuple[float, ...]:
        is_declared = bool(rows.columns.form) and not _is_vague(rows.columns, reading[1])
        place = forms.index(reading[0])
        space_rank = _rank_space(rows.columns, reading[1], boxes)
        return space_rank, place if is_declared else 0, -fits[reading], place, spaces.index(reading[1])

    best = min(good, key=rank)
    rivals = tuple(
        reading
        for reading in good
        if reading != best
        and rank(reading)[0] == rank(best)[0]
        and fits[reading] >= fits[best]
        and (reading[1] != best[1] or not rows.columns.form or _is_vague(rows.columns, best[1]))
        and _gives_other_boxes(best, reading, boxes, ball=ball)
    )
    sizes_mm = rows.columns.sizes_mm and best[1] == "pixels" and all(isinstance(grid, VolumeGrid) for _, grid in boxes)
    return BoxReading(*best, fits[best], rivals, sizes_mm, n_measured=len(boxes))


def _list_forms(rows: BoxRows) -> list[Form]:
    """Return the forms that numbers may have, the one that names say first."""
    if rows.columns.is_ball:
        return ["centres"]
    declared = rows.columns.form
    half = rows.numbers.shape[1] // 2
    ordered = bool(len(rows.numbers)) and bool((rows.numbers[:, half:] >= rows.numbers[:, :half]).all())
    if declared == "corners":
        return ["corners"] if ordered else ["corners", "sides", "centres"]
    if declared:
        return ["sides", "centres"] if declared == "sides" else ["centres", "sides"]
    return ["corners", "sides", "centres"] if ordered else ["sides", "centres"]


def _list_spaces(rows: BoxRows, boxes: MeasuredBoxes) -> list[TableSpace]:
    """Return the spaces that numbers may be in; a box within one pixel is none, so that small numbers are shares."""
    largest = abs(rows.numbers).max() if len(rows.numbers) else 0.0
    if len(rows.numbers) and largest <= MAX_SHARE:
        return ["shares"]
    if rows.numbers.shape[1] == 6 and boxes and all(isinstance(grid, VolumeGrid) for _, grid in boxes):
        return ["pixels", "lps", "ras"]
    return ["pixels", "percent"] if len(rows.numbers) and largest <= 100 * MAX_SHARE else ["pixels"]


def _rank_space(columns: BoxColumns, space: TableSpace, boxes: MeasuredBoxes) -> int:
    """Return how far names and values speak against a space; 0 if nothing does."""
    if space in ("lps", "ras"):
        return 0 if columns.in_mm or _has_fractions(boxes) else 2
    is_percent = columns.in_percent or _is_cramped(boxes)
    if space == "percent":
        return 0 if is_percent else 2
    is_volume = all(isinstance(grid, VolumeGrid) for _, grid in boxes)
    return 1 if space == "pixels" and (is_percent or (columns.in_mm and is_volume)) else 0


def _is_cramped(boxes: MeasuredBoxes) -> bool:
    """Return whether boxes keep to the first hundred pixels of larger images, which is improbable for pixels."""
    sizes = {id(grid): grid for _, grid in boxes if isinstance(grid, ImageSize)}
    chance = 1.0
    for grid in sizes.values():
        chance *= min(1.0, 100 / grid.width) * min(1.0, 100 / grid.height)
    return len(sizes) >= MIN_IMAGES_FOR_PERCENT and chance < MAX_CHANCE


def _has_fractions(boxes: MeasuredBoxes) -> bool:
    """Return whether places may be no voxels: most are not whole."""
    import numpy as np

    places = np.array([numbers[: len(numbers) // 2] for numbers, _ in boxes])
    return len(np.unique(places, axis=0)) >= MIN_DISTINCT_BOXES and bool((places % 1 != 0).mean() > 0.5)


def _gives_other_boxes(first: Reading, second: Reading, boxes: MeasuredBoxes, *, ball: bool) -> bool:
    """Return whether two readings differ by more than a pixel."""
    for numbers, grid in boxes:
        one_box, other_box = (
            to_pixels(form_box(form, numbers), grid, space, is_ball=ball) for form, space in (first, second)
        )
        if max(abs(a - b) for a, b in zip(one_box, other_box, strict=True)) > 1:
            return True
    return False


def _is_vague(columns: BoxColumns, space: TableSpace) -> bool:
    """Return whether a place is called neither corner nor middle; shares, coordinates and positions are written both ways."""
    if "x" not in columns.columns:
        return False
    return space == "shares" or bool(re.search(r"coord|pos", columns.columns["x"], re.I))


def _lies_inside(form: Form, space: TableSpace, numbers: Any, grid: ImageGrid, *, ball: bool) -> bool:
    """Return whether a box, of a ball its middle, lies in its image and has an area."""
    try:
        box = to_pixels(form_box(form, numbers), grid, space, is_ball=ball)
    except DataError:
        return False
    half = len(box) // 2
    low, high = box[:half], box[half:]
    if any(end < start for start, end in zip(low, high, strict=True)):
        return False
    if ball:
        low = high = tuple((start + end) / 2 for start, end in zip(low, high, strict=True))
    extent = _get_extent(grid)[:half]
    return all(
        start >= -SLACK * side - 1 and end <= side * (1 + SLACK) + 1
        for start, end, side in zip(low, high, extent, strict=True)
    )


def form_box(form: Form, numbers: Sequence[float]) -> Box:
    """Return the corners that numbers of a form give."""
    half = len(numbers) // 2
    first, second = [float(number) for number in numbers[:half]], [float(number) for number in numbers[half:]]
    if form == "corners":
        return (*first, *second)
    if form == "sides":
        return (*first, *(place + size for place, size in zip(first, second, strict=True)))
    low = (place - size / 2 for place, size in zip(first, second, strict=True))
    return (*low, *(place + size / 2 for place, size in zip(first, second, strict=True)))


def _get_extent(grid: ImageGrid) -> tuple[float, ...]:
    if isinstance(grid, VolumeGrid):
        rows, columns, slices = grid.shape
        return float(columns), float(rows), float(slices)
    return float(grid.width), float(grid.height)


def to_pixels(
    box: Box, grid: ImageGrid, space: TableSpace = "pixels", *, is_ball: bool = False, sizes_mm: bool = False
) -> Box:
    """Return a box in pixels of the upright image, or in voxels (x along columns, y along rows, z along slices).

    Args:
        is_ball: whether it encloses a ball, which no rotation of the grid makes larger.
        sizes_mm: whether its sizes are mm though its middle is not.

    Raises:
        DataError: code `flat_boxes` (a volume needs six numbers), `needs_grid` (mm of an image without a place in the patient).
    """
    import numpy as np

    extent = _get_extent(grid)
    if len(box) > 2 * len(extent):
        box = (*box[:2], *box[3:5])
    if len(box) < 2 * len(extent):
        raise DataError("The boxes have two axes, and the image is a volume.", code="flat_boxes")
    if space in ("shares", "percent"):
        unit = 1.0 if space == "shares" else 100.0
        return tuple(value * side / unit for value, side in zip(box, extent * 2, strict=True))
    if space == "pixels" and not sizes_mm:
        return box
    if not isinstance(grid, VolumeGrid):
        raise DataError(
            "The boxes are in mm, and the image does not say where it lies in the patient.", code="needs_grid"
        )
    affine = np.asarray(grid.affine, float)
    half = len(box) // 2
    low, high = np.array(box[:half]), np.array(box[half:])
    middle, radius = (low + high) / 2, (high - low) / 2
    order = [1, 0, 2]
    if space == "pixels":
        spacing = np.linalg.norm(affine[:3, :3], axis=0)[order]
        return tuple(float(value) for value in (*(middle - radius / spacing), *(middle + radius / spacing)))
    if space == "ras":
        middle = middle * (-1, -1, 1)
    inverse = np.linalg.inv(affine)
    index = (inverse[:3, :3] @ middle + inverse[:3, 3] + 0.5)[order]  # a voxel's index is that of its middle
    scale = np.linalg.norm(inverse[:3, :3], axis=1)[order]
    reach = radius * scale if is_ball else (np.abs(inverse[:3, :3]) @ radius)[order]
    return tuple(float(value) for value in (*(index - reach), *(index + reach)))
