"""A column's type and vocabulary from its cells, with case and spaces folded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from m3b.data.phi import PROSE_WORDS, is_personal
from m3b.data.survey.facts import Sensitive, Value
from m3b.data.survey.table_facts import Column, ColumnType

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a", "<na>", "-", "?", "nat"})
MAX_VALUES = 60
_CLASSES = 20
_BOOLEAN = frozenset({"true", "false", "yes", "no", "y", "n", "t", "f"})
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
_FILE = re.compile(r"\.[A-Za-z][A-Za-z0-9]{1,4}(\.gz)?$")


def fold(text: str) -> str:
    """Case and surrounding and repeated spaces taken out."""
    return " ".join(text.casefold().split())


def is_missing(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return fold(text) in MISSING


def column_of(name: str, cells: Sequence[str], siblings: Sequence[str] = (), *, lists: bool = False) -> Column:
    """The facts of a column.

    Args:
        cells: as they are spelled; of a column of lists, item by item.
        siblings: the names of the table's other columns.
    """
    separator = "" if lists else _separator(cells)
    if separator:
        cells = [item.strip() for cell in cells for item in cell.split(separator)]
    counts = Counter(cells)
    filled = Counter({cell: count for cell, count in counts.items() if not is_missing(cell)})
    if _none_is_a_class(counts, filled):
        filled.update({cell: count for cell, count in counts.items() if fold(cell) == "none"})
    spelled: dict[str, Counter[str]] = {}
    for cell, count in filled.items():
        spelled.setdefault(fold(cell), Counter())[cell.strip()] += count
    total = filled.total()
    few = len(spelled) <= MAX_VALUES
    kind = _type(filled, len(spelled), total)
    numbers = [float(cell) for cell in filled if _number(cell)] if kind in ("integer", "number", "category") else []
    sensitive = _sensitive(name, filled, siblings, kind)
    return Column(
        name=name,
        type=kind,
        filled=total,
        missing=counts.total() - total,
        distinct=len(filled),
        folded=len(spelled),
        values=tuple(
            Value(text=min(some, key=lambda text: (-some[text], text))[:200], count=some.total())
            for _, some in sorted(spelled.items())
        ) if few and kind != "text" else (),
        examples=tuple(cell.strip()[:200] for cell in list(filled)[:3]),
        low=min(numbers) if numbers and len(numbers) == len(filled) else None,
        high=max(numbers) if numbers and len(numbers) == len(filled) else None,
        lists=lists or bool(separator),
        separator=separator,
        sensitive=sensitive,
    )  # fmt: skip


def _none_is_a_class(counts: Counter[str], filled: Counter[str]) -> bool:
    """Whether "none" stands beside a few words, as the class of those who have nothing, rather than for no value."""
    several = sum(count for cell, count in counts.items() if fold(cell) == "none") > 1
    plain = all(cell[:1].isalpha() and len(cell) <= 60 for cell in filled)
    return several and plain and 0 < len({fold(cell) for cell in filled}) <= _CLASSES and len(filled) < filled.total()


def _separator(cells: Sequence[str]) -> str:
    """What stands between several values of one cell, where splitting there leaves fewer different values."""
    for mark in ("|", ";"):
        some = [cell for cell in cells if mark in cell]
        alone = {fold(cell) for cell in cells if mark not in cell}
        if some and alone and all(fold(item) in alone for cell in some for item in cell.split(mark)):
            return mark  # a rare combination of values that stand alone elsewhere
        if len(some) * 20 >= len(cells) and len(some) > 2:
            whole = {fold(cell) for cell in cells}
            split = {fold(item) for cell in cells for item in cell.split(mark)}
            fewer = len(split) < len(whole) or (len(split) == len(whole) and bool(split & alone))
            if fewer and len(split) <= MAX_VALUES and all(len(item) <= 60 for item in split):
                return mark
    return ""


_DIGITS = re.compile(r"\d+")
_SHORT = 24
"""Characters of a numbered name."""


def _type(filled: Counter[str], folded: int, total: int) -> ColumnType:
    if not filled:
        return "empty"
    values = list(filled)
    words = sum(len(cell.split()) * count for cell, count in filled.items()) / total
    if all(fold(cell) in _BOOLEAN for cell in values) and folded == 2:
        return "boolean"
    if all(_number(cell) for cell in values):
        return "integer" if all(re.fullmatch(r"\s*[+-]?\d+(\.0+)?\s*", cell) for cell in values) else "number"
    if all(_DATE.fullmatch(cell.strip()) for cell in values[:200]):
        return "date"
    if sum(1 for cell in values if "/" in cell or "\\" in cell or _FILE.search(cell.strip())) > 0.8 * len(values):
        return "path"
    if words >= 6 or any(len(cell) > 300 for cell in values):
        return "text"
    if folded <= MAX_VALUES and (folded <= 0.5 * total or folded <= 2):
        return "category"
    if words <= 1.5 or _numbered(values):
        return "identifier" if folded > 0.5 * total else "category"
    return "category" if folded <= 0.2 * total else "text"


def _numbered(values: Sequence[str]) -> bool:
    """Whether values differ by their numbers alone, and are no sentences: `Patient 7`, `Scan 12 left`."""
    named = (cell for cell in values if _DIGITS.search(cell) and len(cell) <= _SHORT and not cell.strip().endswith("."))
    kinds = Counter(_DIGITS.sub("", fold(cell)) for cell in named)
    return sum(count for _, count in kinds.most_common(2)) > 0.9 * len(values)


def _number(cell: str) -> bool:
    if "_" in cell:
        return False
    try:
        return float(cell) == float(cell)
    except ValueError:
        return False


def _sensitive(name: str, filled: Counter[str], siblings: Sequence[str], kind: ColumnType) -> Sensitive:
    values = list(filled)[:200]
    if is_personal(name, values, siblings):
        return "identity"
    if kind == "text" or any(len(cell.split()) >= PROSE_WORDS for cell in values):
        return "free_text"
    return ""
