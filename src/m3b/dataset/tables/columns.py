"""Facts of a table's columns: kind, values with counts, range and unit, missing cells, and which columns belong together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from m3b.data.phi import PROSE_WORDS, Siblings, is_personal
from m3b.data.phi_shapes import beside_persons, unnamed
from m3b.dataset.tables.headers import is_date, is_path, is_unit
from m3b.dataset.tables.model import ROW_COLUMN
from m3b.dataset.tables.yes_no import are_yes_no

ColumnKind = Literal["empty", "id", "path", "number", "category", "boolean", "date", "text", "free_text", "list"]
Sensitivity = Literal["", "identity", "free_text"]

MAX_VALUES = 60
_MAX_TYPED = 20_000
"""Distinct values that are looked at for the kind of a column."""
_MAX_CATEGORIES = 60
_MAX_LEVELS = 20
"""Whole numbers with so few different values are categories (grades) if they repeat."""
_MAX_LABEL_CHARACTERS = 60
_MAX_YES_NO = 8
"""Different texts of a column of yes and no: several ways to write each."""

_MISSING_WORD_LIST = """
na|n/a|n.a.|n.a|nan|null|nil|none|#n/a|#na|#null!|#value!|#div/0!|#ref!|<na>|nat|-|--|---|–|—|?|??|.|..|...|missing|not available
not applicable|not reported|not recorded|not done|no data|undefined|(blank)|blank|empty|[]|{}
k.a.|k. a.|ka|keine angabe|keine angaben|keine daten|nicht verfügbar|nicht bekannt|nicht erhoben|fehlt|fehlend|leer|entfällt
non disponible|n.d.|nd|non renseigné|manquant|vide|no disponible|s/d|sin datos|sin dato|no consta|vacío
未知|无数据|缺失|空|不详|无记录
"""
MISSING_WORDS = frozenset(re.split(r"[|\n]", _MISSING_WORD_LIST.strip()))
"""Cells that say that there is no value. `none` and `-` are values in some columns, see `find_missing_words`."""
_UNCLEAR_WORD_LIST = """
unknown|unclear|unsure|uncertain|indeterminate|tbd|todo|to do|undetermined|to be determined|unspecified|not sure|pending
questionable|equivocal|inconclusive|ungradable|ungradeable|not gradable|not assessable|fraglich|zweifelhaft|nicht beurteilbar
nicht auswertbar|douteux|non évaluable|non interprétable|dudoso|no valorable|no evaluable|无法评估|不能评估
unbekannt|unklar|unsicher|ausstehend|inconnu|incertain|indéterminé|en attente|à déterminer
cannot judge|cannot assess|cannot tell|can't tell|not judgeable|no consensus|annotators disagree
desconocido|desconocida|incierto|indeterminado|pendiente|por determinar|不明|不确定|待定|待查|未定
"""
UNCLEAR_WORDS = frozenset(re.split(r"[|\n]", _UNCLEAR_WORD_LIST.strip()))
"""Values that name no class: nobody knows which applies."""
NO_NUMBER_WORDS = MISSING_WORDS | UNCLEAR_WORDS | {"无"}
"""Cells of a column of numbers that say that the number is not known."""
_ID_WORD_LIST = """
id ids uid uuid nr no num number index idx key code patient patients subject pid mrn case study series accession fall nummer
kennung identifier paciente sujet numéro número 编号 病历号
"""
_ID_WORDS = frozenset(_ID_WORD_LIST.split())
_NUMBER = re.compile(
    r"(?P<sign>[<>≤≥~≈±]?\s*[+-]?)\s*(?P<digits>\d[\d.,'\u00a0\u202f ]*?|[.,]\d+)(?P<exponent>e[+-]?\d+)?"
    r"\s*(?P<unit>[%°]|[A-Za-zµμ岁年月天][\wµμ²³/^.*·-]{0,11})?",
    re.IGNORECASE,
)  # fmt: skip


@dataclass(frozen=True)
class ColumnFact:
    """What a column holds.

    Args:
        kind: `category` also of numbers that are few and repeat (grades); `list` if cells hold several values.
        missing: cells that are empty or say that there is no value.
        distinct: different values, exactly; letter case counts.
        values: up to 60 (value, count), most frequent first; of a list those of its items. Identities and prose are not masked here.
        low, high: of numbers.
        unit: from the cells ("12.5 ml") or the name of the column ("age (years)").
        decimal_comma: whether numbers are written with a decimal comma.
        is_integer: whether all numbers are whole.
        separator: between the values in a cell of a `list`.
        sensitive: `identity` (names, birth dates, addresses) or `free_text`, in which people may be named.
    """

    name: str
    kind: ColumnKind
    missing: int
    distinct: int
    values: tuple[tuple[str, int], ...] = ()
    low: float | None = None
    high: float | None = None
    unit: str = ""
    decimal_comma: bool = False
    is_integer: bool = False
    separator: str = ""
    sensitive: Sensitivity = ""


@dataclass(frozen=True)
class ParsedNumbers:
    """Numbers of texts; None for texts that are none.

    Args:
        shares: share of texts that are numbers.
        unit: that most texts have.
    """

    values: tuple[float | None, ...]
    share: float
    unit: str = ""
    decimal_comma: bool = False


def describe_columns(frame: pl.DataFrame) -> list[ColumnFact]:
    """Return the facts of all columns of a frame of texts; `(row)` is left out."""
    names = [name for name in frame.columns if name != ROW_COLUMN]
    siblings = Siblings(names)
    facts = [describe_column(frame[name].cast(pl.String), siblings) for name in names]
    personal = beside_persons([[text for text, _ in fact.values] for fact in facts]) if unnamed(names) else set()
    return [replace(fact, sensitive="identity") if at in personal else fact for at, fact in enumerate(facts)]


def describe_column(cells: pl.Series, siblings: Siblings | Sequence[str] = ()) -> ColumnFact:
    """Return the facts of a column of texts.

    Args:
        siblings: the names of the table's columns, which decide whether a bare `name` is a person's.
    """
    counts = cells.drop_nulls().alias("text").value_counts(sort=True, name="rows")
    texts, numbers_of_rows = counts["text"].to_list(), counts["rows"].to_list()
    missing_words = find_missing_words(texts)
    pairs = [(text, count) for text, count in zip(texts, numbers_of_rows, strict=True) if text not in missing_words]
    rows = sum(count for _, count in pairs)
    missing = len(cells) - rows
    if not pairs:
        return ColumnFact(cells.name, "empty", missing, 0)
    sample = [text for text, _ in pairs[:_MAX_TYPED]]
    parsed = parse_numbers(sample)
    separator = "" if parsed.share == 1 else find_cell_separator(pairs[:_MAX_TYPED])
    kind: ColumnKind = (
        "list"
        if separator
        else "boolean"
        if len(sample) <= _MAX_YES_NO and are_yes_no(frozenset(map(fold, sample)))
        else _find_kind(cells.name, pairs, sample, parsed, rows)
    )
    if separator:
        items: Counter[str] = Counter()
        for text, count in pairs:
            for item in split_cell(text, separator):
                items[item] += count
        counted_values = items.most_common(MAX_VALUES)
    else:
        counted_values = pairs[:MAX_VALUES]
    low = high = None
    is_integer = False
    if kind in ("number", "category", "boolean", "id") and parsed.share >= 0.9:
        values = parsed.values if len(pairs) <= _MAX_TYPED else parse_numbers([text for text, _ in pairs]).values
        numbers = [value for value in values if value is not None]
        low, high = min(numbers), max(numbers)
        is_integer = all(value.is_integer() for value in numbers)
    return ColumnFact(
        name=cells.name,
        kind=kind,
        missing=missing,
        distinct=len(pairs),
        values=tuple(counted_values),
        low=low,
        high=high,
        unit=(parsed.unit if kind in ("number", "category") else "") or find_unit(cells.name),
        decimal_comma=parsed.decimal_comma,
        is_integer=is_integer,
        separator=separator,
        sensitive=_find_sensitivity(cells.name, sample, siblings, kind),
    )


def fold(text: str) -> str:
    """Return a text in lower case with single blanks."""
    return " ".join(text.casefold().split())


def find_missing_words(texts: Sequence[str]) -> set[str]:
    """Return the distinct texts of a column that say that there is no value.

    `none` is a value if the other texts are words (mild, severe); among numbers, dates and numbered names it is missing. `-` is
    the opposite of `+`, and `nd` or `ka` are missing only beside longer texts or numbers.
    """
    suspects = {text for text in texts if fold(text) in MISSING_WORDS}
    if not suspects:
        return set()
    other_texts = [text for text in texts[:_MAX_TYPED] if text not in suspects]
    n_words = sum(not any(sign.isdigit() for sign in text) for text in other_texts)
    are_words = bool(other_texts) and n_words > 0.5 * len(other_texts) and len(other_texts) <= _MAX_CATEGORIES
    are_codes = bool(other_texts) and all(text.isalpha() and len(text) <= 3 for text in other_texts)
    value_words = set()
    for text in suspects:
        folded = fold(text)
        is_value = (
            (folded in ("none", "nil") and are_words)
            or (folded in ("-", "–", "—") and "+" in other_texts)
            or (
                folded in ("nd", "ka", "na")
                and are_codes
                and not text.isupper()
                and any(word.islower() for word in other_texts)
            )
        )
        if is_value:
            value_words.add(text)
    return suspects - value_words


def parse_numbers(texts: Sequence[str]) -> ParsedNumbers:
    """Return the numbers of texts, with decimal comma or point, thousands separators, and units as most of the texts have them."""
    matches = [_NUMBER.fullmatch(text.strip()) for text in texts]
    digits = [match["digits"].strip() if match else "" for match in matches]
    decimal_comma = _has_decimal_comma([text for text in digits if text])
    units = Counter((match["unit"] or "").strip() for match in matches if match)
    unit = units.most_common(1)[0][0] if units else ""
    if unit and not is_unit(unit) and units[unit] < 0.9 * len(texts):
        unit = ""
    values: list[float | None] = []
    for match, text in zip(matches, digits, strict=True):
        if (
            not match
            or (match["unit"] and match["unit"] != unit and not is_unit(match["unit"]))
            or (match["sign"].strip() in "<>≤≥~≈±" and match["sign"].strip())
        ):
            values.append(None)
            continue
        number = re.sub(r"['\u00a0\u202f ]", "", text)
        number = number.replace(".", "").replace(",", ".") if decimal_comma else number.replace(",", "")
        try:
            values.append(float(match["sign"].strip() + number + (match["exponent"] or "")))
        except ValueError:
            values.append(None)
    n_numbers = sum(value is not None for value in values)
    return ParsedNumbers(tuple(values), n_numbers / len(texts) if texts else 0.0, unit, decimal_comma and n_numbers > 0)


def find_unit(name: str) -> str:
    """Return the unit that the name of a column states: `age (years)`, `volume [ml]`, `size_mm`, `Alter in Jahren`."""
    if bracketed := re.search(r"[(\[]\s*(?:in\s+)?([^()\[\]]{1,12})\s*[)\]]\s*$", name):
        return bracketed[1].strip() if is_unit(bracketed[1]) or re.search(r"[/²³%°]", bracketed[1]) else ""
    last = re.split(r"[\s_]+", name.strip())[-1]
    return last if len(re.split(r"[\s_]+", name.strip())) > 1 and len(last) > 1 and is_unit(last) else ""


def find_cell_separator(pairs: Sequence[tuple[str, int]]) -> str:
    """Return what stands between several values in one cell, if cutting there leaves a small vocabulary that repeats."""
    n_rows = sum(count for _, count in pairs)
    for separator in ("|", ";", ",", "/", "+", "&"):
        marked = [(text, count) for text, count in pairs if separator in text]
        if not marked:
            continue
        items: Counter[str] = Counter()
        for text, count in pairs:
            for item in split_cell(text, separator):
                items[item] += count
        singles = {fold(text) for text, _ in pairs if separator not in text}
        if any(len(item) > _MAX_LABEL_CHARACTERS or len(item.split()) > 6 for item in items) or "" in items:
            continue
        if any(is_path(text) and "." in text for text, _ in marked[:20]) or (
            parse_numbers(list(items)[:200]).share > 0.5 and separator in ",/"
        ):
            continue
        folded = {fold(item) for item in items}
        n_marked = sum(count for _, count in marked)
        are_known = bool(singles) and all(
            fold(item) in singles for text, _ in marked for item in split_cell(text, separator)
        )
        are_fewer = len(folded) < len(pairs) or (len(folded) <= len(pairs) and bool(folded & singles) and n_marked > 2)
        limit = MAX_VALUES if separator in "|;," else _MAX_LEVELS
        has_repeats = items.total() > 2 * len(items)
        if are_known and (separator in "|;,+&" or len(singles) > 1):
            return separator
        if (
            separator in "|;,"
            and n_marked * 20 >= n_rows
            and n_marked > 2
            and are_fewer
            and len(folded) <= limit
            and has_repeats
        ):
            return separator
    return ""


def split_cell(text: str, separator: str) -> list[str]:
    """Return the values in one cell; brackets and quotes of a written list are taken off."""
    return [item.strip().strip("'\"").strip() for item in text.strip("[]() ").split(separator)]


def _find_kind(
    name: str, pairs: Sequence[tuple[str, int]], sample: Sequence[str], parsed: ParsedNumbers, rows: int
) -> ColumnKind:
    distinct = len(pairs)
    name_words = set(re.split(r"[\s_.-]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).casefold()))
    is_id_name = bool(name_words & _ID_WORDS) or name.casefold().endswith("id")
    if sum(map(is_path, sample)) > 0.8 * len(sample):
        return "path"
    if sum(map(is_date, sample)) > 0.9 * len(sample) or _are_compact_dates(sample):
        return "date"
    if parsed.share >= 0.9:
        numbers = [value for value in parsed.values if value is not None]
        is_integer = all(value.is_integer() for value in numbers) and not parsed.unit
        has_zeros = any(re.match(r"0\d", text) for text in sample)
        if has_zeros or (is_integer and is_id_name and distinct > _MAX_LEVELS):
            return "id"
        if is_integer and distinct == rows > _MAX_LEVELS and _is_run(numbers):
            return "id"
        return "category" if distinct <= _MAX_LEVELS and rows >= 3 * distinct and is_integer else "number"
    n_words = sum(len(text.split()) * count for text, count in pairs) / rows
    if n_words >= 6 or any(len(text) > 300 for text in sample):
        return "free_text" if distinct > 0.2 * rows or n_words >= PROSE_WORDS else "category"
    if _are_numbered(sample) and distinct > 2:
        return "id" if is_id_name or distinct > _MAX_LEVELS or distinct == rows else "category"
    if distinct <= _MAX_CATEGORIES and (distinct <= 0.5 * rows or distinct <= 2):
        return "category"
    if is_id_name and n_words < 2:
        return "id"
    if n_words <= 1.5 and distinct > 0.9 * rows and _have_digits(sample):
        return "id"
    return "category" if distinct <= 0.2 * rows and n_words < 4 else "text"


def _are_compact_dates(texts: Sequence[str]) -> bool:
    """Return whether texts are days written as `20201231`."""
    days = [text for text in texts if re.fullmatch(r"(19|20)\d{2}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", text)]
    return len(days) > 0.95 * len(texts) and len(set(days)) > 1


def _is_run(numbers: Sequence[float]) -> bool:
    return max(numbers) - min(numbers) == len(numbers) - 1


def _are_numbered(texts: Sequence[str]) -> bool:
    """Return whether texts differ by their numbers alone: `Patient 7`, `case_012_left`."""
    shapes = Counter(re.sub(r"\d+", "#", fold(text)) for text in texts if len(text) <= 64)
    numbered = [count for shape, count in shapes.most_common(3) if "#" in shape]
    return sum(numbered) > 0.8 * len(texts)


def _have_digits(texts: Sequence[str]) -> bool:
    return sum(any(sign.isdigit() for sign in text) for text in texts) > 0.5 * len(texts)


def _has_decimal_comma(digits: Sequence[str]) -> bool:
    """Return whether commas are decimal: the last sign of those with both, else if they do not cut groups of three."""
    commas = [text for text in digits if "," in text]
    if not commas:
        dots = [text for text in digits if "." in text]
        return (
            bool(dots)
            and any(text.count(".") > 1 for text in dots)
            and all(re.fullmatch(r"\d{1,3}(\.\d{3})+", text) for text in dots)
        )
    both = [text for text in commas if "." in text]
    if both:
        return sum(text.rfind(",") > text.rfind(".") for text in both) > len(both) / 2
    if any(text.count(",") > 1 for text in commas):
        return False
    if all(re.fullmatch(r"[1-9]\d{0,2},\d{3}", text) for text in commas):
        return any("," not in text and len(text) > 3 for text in digits)
    return True


def _find_sensitivity(
    name: str, sample: Sequence[str], siblings: Siblings | Sequence[str], kind: ColumnKind
) -> Sensitivity:
    if is_personal(name, sample[:200], siblings):
        return "identity"
    if kind == "free_text" or any(len(text.split()) >= PROSE_WORDS for text in sample[:200]):
        return "free_text"
    return ""
