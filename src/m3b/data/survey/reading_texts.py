"""One record out of a text that somebody wrote, as reports lie beside their images: its sections, by their headings."""

from __future__ import annotations

import re

from m3b.data.survey.rows import Rows

RECORD = "(text)"
"""Where in a text file the row lies that is all of it."""
BARE = "text"
"""The column of texts without headings."""
_CAPITALS = re.compile(r"(?m)^[ \t]*([A-ZÀ-Þ][A-ZÀ-Þ0-9 /&(),.-]{2,60}?)[ \t]*:")
_KNOWN = re.compile(
    r"(?mi)^[ \t]*((?:clinical |relevant )?(?:findings?|impression|conclusions?|summary|opinion|indication|history|information|"
    r"technique|comparison|examination|exam|procedure|report|recommendations?|befund|beurteilung|fragestellung|technik|klinik|"
    r"résultats?|hallazgos|impresión|conclusión))[ \t]*:"
)
_FIELD = re.compile(r"([A-Za-zÀ-ÿ][\w /().-]{0,40}?)[ \t]*[:=][ \t]*(\S.{0,80})")
_WORD = re.compile(r"[^\W\d_][^\W\d_'’-]*[.,:;!?)]*")
LEAST = 6
"""Words of a text; what has fewer is a value or a list."""
MOSTLY = 0.6


def read_text(text: str, *, exact: bool, encoding: str) -> Rows | None:
    """The one record of a text; None where it is neither prose nor fields with values."""
    if (row := fields_of(text)) is not None:
        return _rows(row, exact, encoding)
    words = text.split()
    spoken = sum(_WORD.fullmatch(word) is not None for word in words)
    if len(words) < LEAST or spoken < MOSTLY * len(words):
        return None
    return _rows(sections(text), exact, encoding)


def _rows(row: dict[str, str], exact: bool, encoding: str) -> Rows:
    rows = Rows("text", list(row), encoding=encoding, record_path=RECORD, exact=exact)
    rows.add(dict(row))
    return rows


def fields_of(text: str) -> dict[str, str] | None:
    """Name -> value where every line is `name: value` or `name = value`, each name once and two at least; else None."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    hits = [hit for line in lines[:200] if (hit := _FIELD.fullmatch(line))]
    found = {hit[1].strip(): hit[2].strip() for hit in hits}
    return found if 2 <= len(found) == len(lines) and not any(_CAPITALS.match(line) for line in lines) else None


def sections(text: str) -> dict[str, str]:
    """Heading in lower case -> what stands below it, in one line; of texts without headings all of it as `text`.

    Headings are lines that begin with capitals and a colon (`FINDINGS: The lungs`); where there are none, with a word
    that reports are divided by.
    """
    hits = list(_CAPITALS.finditer(text)) or list(_KNOWN.finditer(text))
    found: dict[str, str] = {}
    for at, hit in enumerate(hits):
        end = hits[at + 1].start() if at + 1 < len(hits) else len(text)
        name, told = " ".join(hit[1].lower().split()), " ".join(text[hit.end() : end].split())
        if told:
            found[name] = f"{found[name]} {told}" if name in found else told
    return found or {BARE: " ".join(text.split())}
