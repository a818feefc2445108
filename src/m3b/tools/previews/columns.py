"""Statistics of one table column, a chunk of values at a time."""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence

from m3b.data.phi import cell, mask
from m3b.facts import ColumnSummary
from m3b.tools.previews.fields import SENTENCE
from m3b.tools.text import shorten

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>"})
_KEPT = 20_000
_SKETCH = 1024
_VOCABULARY = 20
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}")
_TOP = 2**32


class ColumnTally:
    """What is known of a column after the values fed to it.

    Up to 20,000 different values are counted exactly; beyond, their number is estimated from the 1,024 smallest
    hashes (Bar-Yossef et al., "Counting distinct elements in a data stream", RANDOM 2002).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.missing: Counter[str] = Counter()
        self.values: Counter[str] = Counter()
        self.low, self.high = math.inf, -math.inf
        self.numeric = self.whole = True
        self.dates = True
        self.longest = 0
        self._hashes: set[int] | None = None
        self._limit = _TOP

    def feed(self, values: Sequence[str]) -> None:
        """Add a chunk of values."""
        self.count += len(values)
        chunk = Counter(values)
        for word in MISSING.intersection(chunk):
            self.missing[word] += chunk.pop(word)
        fresh = chunk.keys() if self._hashes is not None else chunk.keys() - self.values.keys()
        self._types(fresh)
        if self._hashes is None:
            self.values.update(chunk)
            if len(self.values) > _KEPT:
                self._hashes = set()
                self._sketch(self.values.keys())
        else:
            self._sketch(chunk.keys())

    def _types(self, fresh: object) -> None:
        words: list[str] = [str(word) for word in fresh]  # type: ignore[attr-defined]
        if not words:
            return
        self.longest = max(self.longest, max(map(len, words)))
        if self.numeric:
            try:
                numbers = [float(word) for word in words if "_" not in word or _refuse()]
            except ValueError:
                self.numeric = self.whole = False
            else:
                self.low, self.high = min(self.low, min(numbers)), max(self.high, max(numbers))
                self.whole = self.whole and all(word.lstrip(" +-").rstrip().isdecimal() for word in words)
        if self.dates:
            self.dates = all(_DATE.fullmatch(word.strip()) for word in words[:200])

    def _sketch(self, words: object) -> None:
        assert self._hashes is not None
        for word in words:  # type: ignore[attr-defined]
            code = zlib.crc32(word.encode("utf-8", "replace")) * 2654435761 % _TOP
            if code < self._limit:
                self._hashes.add(code)
        if len(self._hashes) > 4 * _SKETCH:
            kept = sorted(self._hashes)[:_SKETCH]
            self._hashes, self._limit = set(kept), kept[-1] + 1

    @property
    def distinct(self) -> tuple[int, bool]:
        """The number of different values, and whether it is exact."""
        if self._hashes is None:
            return len(self.values), True
        kept = sorted(self._hashes)[:_SKETCH]
        return max(round((len(kept) - 1) * _TOP / (kept[-1] + 1)), _KEPT), False

    def describe(self, masked: bool) -> str:
        """One line: name, type, range, missing, distinct values and their counts."""
        distinct, exact = self.distinct
        number = f"{'' if exact else 'about '}{distinct:,} distinct"
        parts = [self._type(), *([] if masked else self._range())]
        if absent := self.missing.total():
            words = [f"{word!r} x {count:,}" for word, count in self.missing.most_common(3) if word]
            parts.append(f"{absent:,} missing" + (f" ({', '.join(words)})" if words else ""))
        if masked:
            return f"{self.name}: {', '.join([*parts, number])}; looks like personal data: masked"
        vocabulary = self._vocabulary(distinct, exact)
        return f"{self.name}: {', '.join([*parts, number])}{': ' + vocabulary if vocabulary else ''}"

    def summary(self, masked: bool) -> ColumnSummary:
        """The same as data."""
        if masked:
            return ColumnSummary(name=self.name, type=self._type(), distinct=self.distinct[0], personal=True)
        distinct, exact = self.distinct
        small = exact and 0 < distinct <= _VOCABULARY
        values = [(shorten(cell(value), 60), count) for value, count in self.values.most_common()] if small else []
        prose = not self.numeric and any(len(value.split()) >= SENTENCE for value in list(self.values)[:200])
        return ColumnSummary(name=self.name, type=self._type(), distinct=distinct, values=tuple(values), prose=prose)

    def _type(self) -> str:
        if not self.values:
            return "empty"
        if self.numeric:
            return "integer" if self.whole else "number"
        if {value.strip().lower() for value in list(self.values)[:4]} <= {"true", "false", "yes", "no"}:
            return "boolean"
        return "date" if self.dates else "text"

    def _range(self) -> list[str]:
        if not self.values:
            return []
        if self.numeric:
            return [f"{_short(self.low)} to {_short(self.high)}"]
        if self.dates:
            return [f"such as {min(self.values)}"]
        return [f"up to {self.longest:,} characters"] if self.longest > 60 else []

    def _vocabulary(self, distinct: int, exact: bool) -> str:
        if not exact or not self.values:
            return ""
        if distinct <= _VOCABULARY:
            chosen = self.values.most_common()
            return ", ".join(f"{shorten(cell(value), 60)} x {count:,}" for value, count in chosen)
        top = [(value, count) for value, count in self.values.most_common(5) if count > 1 and len(value) <= 60]
        if not top or self.numeric or distinct > 0.9 * (self.count or 1):
            return ""
        return "most often " + ", ".join(f"{cell(value)} x {count:,}" for value, count in top)


def masked_value(value: str, masked: bool) -> str:
    """A cell as it is shown."""
    return mask(value) if masked else shorten(cell(value), 80)


def _refuse() -> bool:
    raise ValueError("Python reads 1_000 as a number; a table means text by it")


def _short(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
