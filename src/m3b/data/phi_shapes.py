"""Shapes of what names a person where no header says so: addresses, and dates and numbers beside names in bare tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_CAPITAL = r"[A-ZÀ-ÖØ-Þ][\w'’-]{1,30}"
_HAN = r"[\u4e00-\u9fff]"
ADDRESS = re.compile(
    rf"(?<!\w)(?:\d{{1,5}}[a-z]?,? (?:{_CAPITAL} ){{1,3}}(?:Street|St|Road|Rd|Avenue|Ave|Lane|Drive|Boulevard|Blvd|Square|Terrace"
    r"|Crescent)(?!\w)"  # 12 Baker Street
    r"|[A-ZÄÖÜ][\wäöüß.-]{2,30}(?:straße|strasse|str\.|allee|weg|gasse|platz) ?\d{1,4} ?[a-z]?(?!\w)"  # Lindenallee 7
    r"|[A-ZÄÖÜ][\wäöüß-]{2,30}[ -](?:Straße|Strasse|Str\.|Allee|Weg|Platz) \d{1,4} ?[a-z]?(?!\w)"
    rf"|\d{{1,4}}(?: ?bis| ?ter)?,? (?:rue|avenue|av\.|boulevard|bd|place|chemin|allée|impasse|quai|route) "
    rf"(?:(?:de la|des?|du|la|le|les) |de l['’]|d['’]|l['’])?{_CAPITAL}(?:[ -]{_CAPITAL}){{0,2}}"  # 7 rue des Tilleuls
    rf"|(?:Calle|C/|Avenida|Avda\.?|Plaza|Paseo|Camino|Carrer|Rua|Via|Viale|Piazza) ?"
    rf"(?:(?:de la|de los|de las|del|de|da|do|dos|di|della) )?{_CAPITAL}(?: {_CAPITAL}){{0,3}},? (?:n[º°.] ?)?\d{{1,4}}(?!\w)"
    rf"|{_HAN}{{1,6}}[省市区县鎮镇乡村街路巷弄道]{_HAN}{{0,12}}\d{{1,5}}[号號弄]"  # 北京市海淀区7号
    rf"|(?:東京都|北海道|(?:京都|大阪)府|{_HAN}{{2,3}}県){_HAN}{{1,10}}[\u3040-\u30ff\u4e00-\u9fff]{{0,10}}\d{{1,4}}[\d番丁目号の-]*)"
)
"""A house number with a word for a street or district, as it is written in six languages."""
_DAY = re.compile(
    r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./-]\d{1,2}[./-]\d{1,2}|(?:19|20)\d{6}|\d{4}年\d{1,2}月\d{1,2}日?"
    r"|\d{1,2}\.? [^\W\d]{3,12}\.? \d{4}"
)
_NUMBER = re.compile(r"[A-Za-z]{0,4}[-_ /]?\d{5,12}")
"""A record number: digits, with a few letters before them."""
IDENTIFIERS = frozenset({"identifier", "identifiers"})
"""Keys below which FHIR has record numbers, each called `value`."""
MAX_LOOKED_VALUES = 50
"""Different values of a column that are looked at."""


def unnamed(names: Sequence[str]) -> bool:
    """Whether columns are called by their numbers, as those of a table without a header are."""
    return len(names) > 1 and all(name == str(at) for at, name in enumerate(names))


def beside_persons(columns: Sequence[Sequence[str]]) -> set[int]:
    """Of a table without header in which a column holds names of persons: this one, dates and record numbers.

    Args:
        columns: values of each column.
    """
    distinct_values = [
        list(dict.fromkeys(cell.strip() for cell in column if cell.strip()))[:MAX_LOOKED_VALUES] for column in columns
    ]
    persons = {at for at, values in enumerate(distinct_values) if _mostly_match(values, _names_a_person)}
    if not persons:
        return set()
    identifying = {
        at
        for at, values in enumerate(distinct_values)
        if _mostly_match(values, _DAY.fullmatch) or _mostly_match(values, _NUMBER.fullmatch)
    }
    return persons | identifying


def _names_a_person(value: str) -> bool:
    from m3b.data.persons import find  # lists of names, which other tables do not need

    return len(value) <= 60 and "/" not in value and any(part.kind == "name" for part in find(value))


def _mostly_match(values: Sequence[str], fits: Callable[[str], object]) -> bool:
    return bool(values) and sum(1 for value in values if fits(value)) * 2 > len(values)
