"""Facts of a table's columns: kind, values with counts, range and unit, missing cells, and which columns belong together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from m3b.data.phi import PROSE_WORDS, Siblings, is_personal
from m3b.data.phi_shapes import beside_persons, unnamed
from m3b.dataset.tables.headers import is_date, is_path, is_unit
from m3b.dataset.tables.model import ROW_COLUMN

ColumnKind = Literal["empty", "id", "path", "number", "category", "boolean", "date", "text", "free_text", "list"]
Sensitivity = Literal["", "identity", "free_text"]

MAX_VALUES = 60
_MAX_TYPED = 20_000
"""Distinct values that are looked at for the kind of a column."""
_MAX_CATEGORIES = 60
_MAX_LEVELS = 20
"""Whole numbers with so few different values are categories (grades) if they repeat."""
_MAX_LABEL_CHARACTERS = 60

_MISSING_WORD_LIST = """
na|n/a|n.a.|nan|null|nil|none|#n/a|#na|#null!|#value!|#div/0!|#ref!|<na>|nat|-|--|---|–|—|?|??|.|..|missing|not available
not applicable|not reported|not recorded|not done|no data|undefined|(blank)|blank|empty|[]|{}
k.a.|k. a.|ka|keine angabe|keine angaben|keine daten|nicht verfügbar|nicht bekannt|nicht erhoben|fehlt|fehlend|leer|entfällt
non disponible|n.d.|nd|non renseigné|manquant|vide|no disponible|s/d|sin datos|sin dato|no consta|vacío
未知|无数据|缺失|空|不详|无记录
"""
MISSING_WORDS = frozenset(re.split(r"[|\n]", _MISSING_WORD_LIST.strip()))
"""Cells that say that there is no value. `none` and `-` are values in some columns, see `find_missing_words`."""
_UNCLEAR_WORD_LIST = """
unknown|unclear|unsure|uncertain|indeterminate|tbd|todo|to do|undetermined|unspecified|not sure|unbekannt|unklar|unsicher
inconnu|incertain|indéterminé|desconocido|desconocida|incierto|indeterminado|不明|不确定
"""
UNCLEAR_WORDS = frozenset(re.split(r"[|\n]", _UNCLEAR_WORD_LIST.strip()))
"""Values that name no class: nobody knows which applies."""
_YES_NO_LIST = """
1/0 1.0/0.0 true/false t/f yes/no y/n ja/nein j/n oui/non o/n sí/no si/no s/n 是/否 有/无 positive/negative pos/neg
positiv/negativ positif/négatif positivo/negativo 阳性/阴性 +/- present/absent vorhanden/fehlend x/ checked/unchecked
"""
_YES_NO = [tuple(pair.split("/")) for pair in _YES_NO_LIST.split()]
"""Pairs of words for yes and no."""
_UNCERTAIN_NUMBERS = frozenset({"-1", "-1.0", "u"})
_ID_WORD_LIST = """
id ids uid uuid nr no num number index idx key code patient patients subject pid mrn case study series accession fall nummer
kennung identifier paciente sujet numéro número 编号 病历号
"""
_ID_WORDS = frozenset(_ID_WORD_LIST.split())
_TIME_WORDS = re.compile(
    r"time|duration|surviv|follow|months?|days|years?|\b(os|pfs|dfs|rfs|tte)\b|überleb|ueberleb|dauer|beobachtung"
    r"|survie|durée|suivi|superviv|tiempo|duración|seguimiento|生存|随访|时间",
    re.IGNORECASE,
)
_EVENT_WORDS = re.compile(
    r"event|death|dead|died|deceased|status|censor|relapse|recurrence|progress|vital|alive|ereignis|tod|verstorben|gestorben"
    r"|zensiert|rezidiv|décès|décédé|évén|censur|récidive|muerte|fallec|evento|censura|recidiva|死亡|事件|删失|复发",
    re.IGNORECASE,
)
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
        rows: cells that hold a value.
        missing: cells that are empty or say that there is no value.
        distinct: different values, exactly; letter case counts.
        values: up to 60 (value, count), most frequent first; of a list those of its items. Identities and prose are not masked here.
        low, high: of numbers.
        unit: from the cells ("12.5 ml") or the name of the column ("age (years)").
        decimal_comma: whether numbers are written with a decimal comma.
        is_integer: whether all numbers are whole.
        separator: between the values in a cell of a `list`.
        yes, no, uncertain: the texts of a `boolean`.
        missing_words: texts that were counted as missing.
        unclear: texts that name no class ("unknown"); they are counted as values.
        sensitive: `identity` (names, birth dates, addresses) or `free_text`, in which people may be named.
    """

    name: str
    kind: ColumnKind
    rows: int
    missing: int
    distinct: int
    values: tuple[tuple[str, int], ...] = ()
    low: float | None = None
    high: float | None = None
    unit: str = ""
    decimal_comma: bool = False
    is_integer: bool = False
    separator: str = ""
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    missing_words: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    sensitive: Sensitivity = ""


@dataclass(frozen=True)
class ColumnGroup:
    """Yes/no columns side by side: one-hot columns of exclusive classes, or the columns of a multi-label target.

    Args:
        exactly_one: whether each row has exactly one yes.
        at_most_one: whether no row has several.
        counts: column -> rows with a yes.
    """

    columns: tuple[str, ...]
    exactly_one: bool
    at_most_one: bool
    counts: dict[str, int]


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
        return ColumnFact(cells.name, "empty", 0, missing, 0, missing_words=tuple(sorted(missing_words)))
    sample = [text for text, _ in pairs[:_MAX_TYPED]]
    parsed = parse_numbers(sample)
    separator = "" if parsed.share == 1 else find_cell_separator(pairs[:_MAX_TYPED])
    yes, no, uncertain = _read_yes_no(sample)
    kind: ColumnKind = (
        "list" if separator else "boolean" if yes else _find_kind(cells.name, pairs, sample, parsed, rows)
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
        rows=rows,
        missing=missing,
        distinct=len(pairs),
        values=tuple(counted_values),
        low=low,
        high=high,
        unit=(parsed.unit if kind in ("number", "category") else "") or find_unit(cells.name),
        decimal_comma=parsed.decimal_comma,
        is_integer=is_integer,
        separator=separator,
        yes=yes,
        no=no,
        uncertain=uncertain,
        missing_words=tuple(sorted(missing_words)),
        unclear=tuple(text for text in sample if fold(text) in UNCLEAR_WORDS),
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


def find_yes_no_groups(frame: pl.DataFrame, facts: Sequence[ColumnFact]) -> list[ColumnGroup]:
    """Return the groups of two or more yes/no columns side by side, widest first within a run: those with exactly one yes a row."""
    groups: list[ColumnGroup] = []
    run: list[ColumnFact] = []
    for fact in (*facts, None):
        if fact is not None and fact.kind == "boolean" and fact.yes and (not run or _have_equal_words(run[-1], fact)):
            run.append(fact)
            continue
        if len(run) > 1:
            groups += _group_run(frame, run)
        run = [fact] if fact is not None and fact.kind == "boolean" and fact.yes else []
    return groups


def find_survival_columns(facts: Sequence[ColumnFact]) -> list[tuple[str, str]]:
    """Return pairs of a column of times and a column of events, both by their names and values."""
    times = [
        fact.name for fact in facts
        if fact.kind in ("number", "category", "id") and fact.low is not None and fact.low >= 0 and _TIME_WORDS.search(fact.name)
        and not _EVENT_WORDS.search(fact.name.replace("time", "").replace("to_event", ""))
    ]  # fmt: skip
    events = [
        fact.name for fact in facts
        if fact.distinct in (1, 2, 3) and fact.kind in ("boolean", "category") and _EVENT_WORDS.search(fact.name)
    ]  # fmt: skip
    return [(time, event) for time in times for event in events if time != event]


def _group_run(frame: pl.DataFrame, run: Sequence[ColumnFact]) -> list[ColumnGroup]:
    names = [fact.name for fact in run]
    yes = frame.select(pl.col(fact.name).is_in(list(fact.yes)).fill_null(value=False).cast(pl.Int32) for fact in run)
    sums = [pl.repeat(0, frame.height, dtype=pl.Int32, eager=True)]
    for name in names:
        sums.append(sums[-1] + yes[name])
    counts = {name: int(yes[name].sum()) for name in names}
    for width in range(len(names), 2, -1):
        for start in range(len(names) - width + 1):
            totals = sums[start + width] - sums[start]
            if bool((totals == 1).all()) and all(counts[name] for name in names[start : start + width]):
                exclusive = names[start : start + width]
                beside_groups = [
                    _make_group(run[:start], counts, sums[start]),
                    _make_group(run[start + width :], counts, sums[-1] - sums[start + width]),
                ]
                return [
                    ColumnGroup(tuple(exclusive), True, True, {name: counts[name] for name in exclusive}),
                    *[group for group in beside_groups if group],
                ]
    group = _make_group(run, counts, sums[-1])
    return [group] if group else []


def _make_group(run: Sequence[ColumnFact], counts: Mapping[str, int], totals: pl.Series) -> ColumnGroup | None:
    names = tuple(fact.name for fact in run)
    if len(names) < 2:
        return None
    return ColumnGroup(
        names, bool((totals == 1).all()), bool((totals <= 1).all()), {name: counts[name] for name in names}
    )


def _have_equal_words(first: ColumnFact, second: ColumnFact) -> bool:
    words = [
        {fold(text).removesuffix(".0") for text in (*fact.yes, *fact.no, *fact.uncertain)} for fact in (first, second)
    ]
    return bool(words[0] & words[1]) or words[0] <= {"1", "0", "-1"} >= words[1]


def _read_yes_no(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the texts for yes, no and uncertain, if a column holds nothing else; numbers may be written as `1` and `1.0`."""
    if len(texts) > 8:
        return (), (), ()
    folded = {text: fold(text) for text in texts}
    uncertain = tuple(text for text in texts if folded[text] in _UNCERTAIN_NUMBERS)
    certain = [text for text in texts if text not in uncertain]
    for pair in (*_YES_NO, ("1|1.0", "0|0.0")):
        yes_words, no_words = pair[0].split("|"), pair[1].split("|")
        yes = tuple(text for text in certain if folded[text] in yes_words)
        no = tuple(text for text in certain if folded[text] in no_words)
        if certain and len(yes) + len(no) == len(certain) and yes and (no or (len(pair[0]) > 1 or pair[0] in "1x是有")):
            return yes, no, uncertain
        if certain and len(no) == len(certain) and folded[certain[0]] in ("0", "0.0", "false"):
            return (), (), ()
    return (), (), ()


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
