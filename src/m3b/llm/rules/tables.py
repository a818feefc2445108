"""Reading the preview of a table: which column is the image, which the label, which the patient?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from m3b.llm.rules.words import IMAGE_COLUMNS, LABEL_COLUMNS, PATIENT_COLUMNS, SPLIT_COLUMNS, STOP, plain, rank, words

MOST_CLASSES = 30


@dataclass(frozen=True)
class Column:
    """A column as the preview shows it; `values` maps those shown to their counts."""

    name: str
    kind: str
    distinct: int
    values: dict[str, int]
    whole: bool
    """Whether `values` holds all of the column's values."""


@dataclass(frozen=True)
class Table:
    """A table as the preview shows it."""

    path: str
    rows: int
    columns: tuple[Column, ...]


def tables(briefing: str) -> list[Table]:
    """The tables that a briefing previews."""
    found = []
    heads = list(re.finditer(r"^(data/\S.*?): .*?, table, .*?([\d,]+) rows", briefing, re.MULTILINE))
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(briefing)
        block = briefing[head.end() : end]
        body = re.search(r"\n  columns[^\n]*\n((?:    [^\n]*\n?)+)", block)
        if body:
            columns = tuple(column for line in body.group(1).splitlines() if (column := _column(line)))
            found.append(Table(head.group(1), int(head.group(2).replace(",", "")), columns))
    return found


def _column(line: str) -> Column | None:
    found = re.match(r"    (.+?): (text|integer|number|date|boolean|yes/no)\b(.*)$", line)
    if not found:
        return None
    name, kind, rest = found.groups()
    distinct = re.search(r"([\d,]+) distinct", rest)
    number = int(distinct.group(1).replace(",", "")) if distinct else 0
    listed = rest.rsplit("distinct:", 1)[1] if "distinct:" in rest else ""
    whole = bool(listed) and "most often" not in listed
    pairs = re.findall(r"(?:^|, )(.+?) x ([\d,]+)(?=, |$)", listed.replace("most often", "").strip())
    values = {value.strip(): int(count.replace(",", "")) for value, count in pairs}
    return Column(name.strip(), kind, number or len(values), values, whole)


def image_column(table: Table) -> Column | None:
    """The column with nearly a value a row whose name fits best."""
    many = [column for column in table.columns if column.distinct >= 0.5 * table.rows]
    return _best(many, IMAGE_COLUMNS)


def patient_column(table: Table, image: Column) -> Column | None:
    """The column that names the patient, if one is called like that."""
    return _best([column for column in table.columns if column.name != image.name], PATIENT_COLUMNS)


def split_column(table: Table) -> Column | None:
    """The column with the data set's own split, if its values say train and test."""
    for column in table.columns:
        low = {value.lower() for value in column.values}
        if rank(column.name, SPLIT_COLUMNS) is not None and low & {"test", "testing"} and low & {"train", "training"}:
            return column
    return None


def label_column(table: Table, request: str) -> Column | None:
    """The column whose values or name the request speaks of, else the one that is called like a label."""
    small = [c for c in table.columns if 2 <= c.distinct <= MOST_CLASSES and c.whole and _is_class(c)]
    asked = words(request) - STOP

    def fit(column: Column) -> tuple[int, int]:
        shared = len(asked & words(" ".join(column.values))) + len(asked & words(column.name))
        place = rank(column.name, LABEL_COLUMNS)
        named = len(LABEL_COLUMNS) * 2 - place if place is not None else 0
        return (2 * shared + (named > 0) * 3, named)

    best = max(small, key=fit, default=None)
    return best if best is not None and fit(best) > (0, 0) else None


def _is_class(column: Column) -> bool:
    shape = rank(column.name, (*SPLIT_COLUMNS, *PATIENT_COLUMNS, "sex", "gender", "age", "view", "modality", "site"))
    return shape is None or rank(column.name, LABEL_COLUMNS) is not None


def mapping(column: Column, request: str) -> list[str]:
    """Options that make two classes of many values, when the request names one of them against the rest."""
    if column.distinct <= 2:
        return []
    asked = words(request)
    rest = asked & {"rest", "other", "others", "all", "else", "any"}
    hits = [value for value in column.values if words(value) and words(value) <= asked | words("-".join(asked))]
    hits = hits or [value for value in column.values if plain(value) in plain(request) and len(value) > 2]
    if not hits or not (rest or len(hits) == 1):
        return []
    main = max(hits, key=lambda value: (len(value), column.values[value]))
    alike = [value for value in column.values if words(main) <= words(value)]
    unclear = [v for v in column.values if words(v) & {"todo", "unknown", "tbd", "na", "nan"} or v in ("?", "")]
    clear = [value for value in column.values if value not in alike and value not in unclear]
    if not clear:
        return []
    return ["--map", f"{main}={'|'.join(alike)}", "--map", f"other={'|'.join(clear)}", "--positive", main]


def _best(columns: list[Column], known: tuple[str, ...]) -> Column | None:
    ranked = [(place, at) for at, column in enumerate(columns) if (place := rank(column.name, known)) is not None]
    return columns[min(ranked)[1]] if ranked else None
