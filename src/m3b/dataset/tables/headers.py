"""Which row of a grid names its columns, and what stands above and below the rows of data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

HEAD_ROWS = 200
"""Rows from which the header is found."""
_MIN_ROWS_OF_SHAPE = 3
"""Rows below from which on a first row of the same numbered shape (`case_01`) is one of them."""
MIN_ROWS_OF_TWO_HEADERS = 3
"""Rows of data from which on a second row of names is looked for."""
_MIN_SENTENCE = 4
"""Words of a cell that is rather a part of a title than a name."""
_COMMON_NAME_LIST = """
id ids name names file files filename filenames image images img path paths patient patients subject subjects case cases
study series scan slice label labels class classes target diagnosis finding findings category grade stage score age sex
gender date time status event split set fold subset site side view width height size x y z value values type group modality
text report no num nr index key url bild datei fall diagnose befund alter geschlecht datum klasse seite wert zeit gruppe
nummer fichier nom cas classe étiquette âge sexe valeur côté archivo nombre paciente caso clase etiqueta edad sexo fecha
lado valor 编号 姓名 图像 文件 病人 患者 标签 类别 诊断 年龄 性别 日期
"""
_COMMON_NAMES = frozenset(_COMMON_NAME_LIST.split())
"""Words that name columns in many tables."""
_WORD_GAP = re.compile(r"[\s_.-]+")
_NUMBER = re.compile(r"[<>≤≥~≈±]?\s*[+-]?(\d{1,3}([.,' ]\d{3})+|\d+)?([.,]\d+)?(e[+-]?\d+)?\s*%?", re.IGNORECASE)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]\d{1,2}:\d{2}.*)?")
_PATH = re.compile(
    r"[^\s]*[/\\][^\s]*|.*\.(png|jpe?g|tiff?|bmp|webp|gif|dcm|ima|nii(\.gz)?|nrrd|mh[ad]|npy|npz|mat|h5|avi|mp4|csv|txt|json|xml|svs)",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"[\[(]?(mm|cm|m|µm|um|nm|ml|l|g|kg|mg|µg|%|s|ms|min|h|days?|d|weeks?|months?|years?|y|yrs?|tage|monate|jahre|jours|mois|ans|años|meses|"
    r"días|岁|年|天|hu|px|pixels?|mmhg|bpm|kv|kvp|ma|mas|[µm]?g/(cm2|cm²|cm3|cm³|d?l|ml)|m[me]q?/l|mmol/l|cm2|cm²|cm3|cm³|mm2|mm²|mm3|mm³)[\])]?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Header:
    """Where the header of a grid is.

    Args:
        row: its number, of the upper one if two rows name the columns; -1 if no row does.
        names: one a column, unique.
        titles: texts of the rows above.
        first_row: number of the first row of data.
        units: column -> unit, if a row of units follows the header.
    """

    row: int
    names: list[str]
    titles: list[str] = field(default_factory=list)
    first_row: int = 0
    units: dict[str, str] = field(default_factory=dict)


def find_header(rows: Sequence[Sequence[str]], header: int | None = None) -> Header:
    """Find the header among the first rows of a grid, of which none is blank.

    Args:
        header: number of the row that the user named; -1 for none.
    """
    extents = [_count_extent(row) for row in rows]
    body_width = _find_body_width(extents)
    if header is None:
        start = _skip_titles(rows, body_width)
        is_header = start < len(rows) and _is_header(rows[start], rows[start + 1 : start + 51])
    else:
        if header >= len(rows):
            raise ValueError(
                f"header: {header} is not among the first {len(rows)} rows; rows are numbered from 0, without blank ones"
            )
        start, is_header = max(header, 0), header >= 0
    parent = next((row for row in (start, start - 1) if row >= 0 and _has_second_header(rows, row)), None)
    if parent is not None and (header is None or parent == header):
        rows = [*rows[: parent + 1], _join_header_rows(rows[parent], rows[parent + 1]), *rows[parent + 2 :]]
        extents[parent + 1] = _count_extent(rows[parent + 1])
        start, is_header = parent + 1, True
    titles = [
        " ".join(cell.strip() for cell in row if cell.strip()) for row in rows[: start if parent is None else parent]
    ]
    first_row = start + 1 if is_header else start
    common = [
        extent for extent, count in Counter(extents[first_row:]).items() if count * 20 >= len(extents[first_row:])
    ]
    width = max([body_width, *common, extents[start] if is_header else 0])
    if not is_header:
        return Header(-1, [str(index) for index in range(width)], titles, first_row)
    cells = [cell.strip() for cell in rows[start][: extents[start]]]
    if len(rows[start]) == len(cells) == body_width - 1 and len(rows) > first_row + 1 and all(cells):
        cells = ["", *cells]  # the names of rows have no column name, as R writes it
    cells += [""] * (width - len(cells))
    if titles and start and cells[0].startswith(("#", "%")):
        cells[0] = cells[0].lstrip("#% ")
    names = make_unique(cells)
    units = _read_units(rows[first_row:], names)
    return Header(start if parent is None else parent, names, titles, first_row + bool(units), units)


def _has_second_header(rows: Sequence[Sequence[str]], number: int) -> bool:
    """Return whether the next row divides names of this one: it fills the gaps beside them, and is blank below others.

    Merged cells of a workbook are such gaps.
    """
    parents, children = ([cell.strip() for cell in row] for row in (*rows[number : number + 2], [], [])[:2])
    body = rows[number + 2 : number + 52]
    width = max(len(parents), len(children))
    if len(body) < MIN_ROWS_OF_TWO_HEADERS or not parents or not parents[0] or not children or children[0]:
        return False
    parents, children = ([*row, *[""] * (width - len(row))] for row in (parents, children))
    has_gap = any(child and not parent for parent, child in zip(parents, children, strict=True))
    if not has_gap or not all(parent or child for parent, child in zip(parents, children, strict=True)):
        return False
    if any(is_number(cell) or is_path(cell) or is_date(cell) for cell in (*parents, *children)):
        return False
    is_group = [bool(children[place]) for place in range(width)]
    starts_each = all(is_group[place - 1] for place in range(1, width) if not parents[place])
    values = {row[place].strip() for row in body for place in range(min(len(row), width)) if is_group[place]}
    undivided = [place for place in range(width) if not is_group[place]]
    is_filled = any(all(place < len(row) and row[place].strip() for row in body) for place in undivided)
    return starts_each and is_filled and not values & set(filter(None, children))


def _join_header_rows(parents: Sequence[str], children: Sequence[str]) -> list[str]:
    """Return the names of columns whose name is divided: `Grade L4`, `Grade L5`."""
    names = []
    parent = ""
    for place in range(max(len(parents), len(children))):
        parent = (parents[place].strip() if place < len(parents) else "") or parent
        child = children[place].strip() if place < len(children) else ""
        names.append(f"{parent} {child}".strip())
    return names


def make_unique(cells: Sequence[str]) -> list[str]:
    """Name columns without a name by their place, and number repeated names."""
    counts: Counter[str] = Counter()
    names = []
    for index, cell in enumerate(cells):
        name = re.sub(r"\s+", " ", cell).strip() or f"(column {index})"
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return names


def is_number(text: str) -> bool:
    """Return whether a text is a number, with a decimal point or comma."""
    text = text.strip()
    return any(digit.isdigit() for digit in text) and _NUMBER.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Return whether a text is a path or a file name."""
    return _PATH.fullmatch(text.strip()) is not None


def is_date(text: str) -> bool:
    """Return whether a text is a date."""
    return _DATE.fullmatch(text.strip()) is not None


def is_unit(text: str) -> bool:
    """Return whether a text is a unit of measurement."""
    return _UNIT.fullmatch(text.strip()) is not None


def _count_extent(row: Sequence[str]) -> int:
    """Count the cells up to the last that is not empty."""
    return next((place for place in range(len(row), 0, -1) if row[place - 1].strip()), 0)


def _find_body_width(extents: Sequence[int]) -> int:
    """Return the width of most rows; of equally frequent ones the largest."""
    counts = Counter(extents[len(extents) // 4 :] if len(extents) > 8 else extents)
    return max(counts, key=lambda width: (counts[width], width), default=0)


def _skip_titles(rows: Sequence[Sequence[str]], body_width: int) -> int:
    """Return the number of the first row that fills about as many cells as the rows of data do."""
    if body_width < 2:
        return 0
    needed = min(body_width - 1, max(2, round(0.6 * body_width)))
    for number, row in enumerate(rows):
        filled = sum(bool(cell.strip()) for cell in row)
        has_prose = filled <= 2 and any(len(cell.split()) > 5 for cell in row) and body_width > 2
        is_label_alone = filled == 1 and body_width == 2 and bool(row[0].strip())
        if (
            filled >= needed
            and not has_prose
            and not is_label_alone
            and not _is_divided_title(rows, number, body_width)
        ):
            return number
    return 0


def _is_divided_title(rows: Sequence[Sequence[str]], number: int, body_width: int) -> bool:
    """Return whether a row is a sentence with a separator in it: a title, below which another title stands."""
    following = rows[number + 1 : number + 2]
    has_sentence = any(len(cell.split()) >= _MIN_SENTENCE for cell in rows[number])
    return has_sentence and any(len(row) < body_width for row in following)


def _is_header(cells: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled:
        return False
    if not body:
        return len(filled) > 1 and not any(is_number(cell) or is_path(cell) for cell in filled)
    numbers = [cell for cell in filled if is_number(cell)]
    is_series = len(numbers) > 1 and _is_series(numbers)
    score = 0.0
    for place, cell in enumerate(cells):
        below = [row[place].strip() for row in body if place < len(row) and row[place].strip()]
        if cell.strip() and below:
            score += _score_column(cell.strip(), below, is_series)
    score -= 0.5 * (len(set(filled)) < len(filled))
    if score == 0:
        return len(filled) > 1 and not any(any(sign.isdigit() for sign in cell) for cell in filled)
    return score > 0


def _score_column(cell: str, below: list[str], is_series: bool) -> float:
    """Score whether a cell names a column (positive) or is one of its values (negative)."""
    numeric_share = sum(is_number(value) or is_date(value) for value in below) / len(below)
    if is_number(cell) or is_date(cell):
        return -1.0 if numeric_share > 0.5 and not is_series else 0.0
    if cell in below:
        return -2.0
    path_share = sum(map(is_path, below)) / len(below)
    if path_share > 0.8:
        folder = cell.rpartition("/")[0]
        is_value = is_path(cell) and (
            "." in cell or (folder and any(value.startswith(f"{folder}/") for value in below))
        )
        return -3.0 if is_value else 1.5
    shapes = {re.sub(r"\d+", "#", value) for value in (cell, *below)}
    if len(below) >= _MIN_ROWS_OF_SHAPE and len(shapes) == 1 and "#" in shapes.pop():
        return -3.0
    score = 1.5 if numeric_share > 0.8 else 0.0
    words, *values_words = (set(_WORD_GAP.split(text.casefold())) for text in (cell, *below))
    names = (words & _COMMON_NAMES) - set.intersection(*values_words)  # `IMG_01` names no column of `IMG_02`, ...
    if names or cell.casefold().endswith(("id", "_nr", "name", "label")):
        score += 1.0
    if len(below) >= 4 and len(set(below)) <= len(below) / 2:
        score += 0.5
    if len(below) > 2 and len({len(value) for value in below}) == 1 and len(cell) != len(below[0]):
        score += 0.5
    return score


def _is_series(numbers: Sequence[str]) -> bool:
    """Return whether cells are consecutive numbers in any order, as class numbers or years are that name columns."""
    if not all(number.isdigit() for number in numbers):
        return False
    values = sorted(map(int, numbers))
    counts_up = all(second - first == 1 for first, second in pairwise(values))
    return counts_up and (values[0] in (0, 1) or 1900 <= values[0] < 2100)


def _read_units(body: Sequence[Sequence[str]], names: Sequence[str]) -> dict[str, str]:
    """Return the units of columns of numbers, if the first row below the header holds units and nothing more."""
    if len(body) < 3:
        return {}
    units = {}
    for place, cell in enumerate(body[0][: len(names)]):
        text = cell.strip()
        if not text or text in "-":
            continue
        below = [row[place] for row in body[1:51] if place < len(row) and row[place].strip()]
        if not is_unit(text) or not below or sum(map(is_number, below)) < 0.8 * len(below):
            return {}
        units[names[place]] = text.strip("[]()")
    return units
