"""Statistics of the columns of tables."""

from __future__ import annotations

import re

import polars as pl

from m3b.data.phi import cell, mask
from m3b.dataset.tables.columns import find_missing_words
from m3b.facts import ColumnSummary
from m3b.tools.previews.fields import SENTENCE
from m3b.tools.text import shorten

_MAX_VOCABULARY = 20
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}")


class ColumnStatistics:
    """What a column of texts holds: its type, range, values with counts, and missing cells."""

    def __init__(self, column: pl.Series) -> None:
        counts = column.fill_null("").rename("value").to_frame().group_by("value", maintain_order=True).len()
        counts = counts.sort("len", descending=True, maintain_order=True)
        is_missing = pl.col("value").is_in(["", *find_missing_words(counts["value"].to_list())])
        self.name = column.name
        self.count = len(column)
        self.missing: list[tuple[str, int]] = counts.filter(is_missing).rows()
        self.counts = counts.filter(~is_missing)
        self.values: list[str] = self.counts["value"].to_list()
        numbers = self.counts["value"].str.strip_chars().cast(pl.Float64, strict=False)
        self.numbers = numbers if len(numbers) and not numbers.null_count() else None
        self.has_dates = all(_DATE.fullmatch(value.strip()) for value in self.values[:200])

    @property
    def type(self) -> str:
        """`empty`, `integer`, `number`, `boolean`, `date` or `text`."""
        if not self.values:
            return "empty"
        if self.numbers is not None:
            return "integer" if self.counts["value"].str.contains(r"^\s*[+-]?\d+\s*$").all() else "number"
        if {value.strip().lower() for value in self.values[:4]} <= {"true", "false", "yes", "no"}:
            return "boolean"
        return "date" if self.has_dates else "text"

    def describe(self, masked: bool) -> str:
        """Return one line: name, type, range, missing cells, distinct values and their counts."""
        parts = [self.type, *([] if masked else self._range())]
        if self.missing:
            words = [f"{word!r} x {count:,}" for word, count in self.missing[:3] if word]
            absent = sum(count for _, count in self.missing)
            parts.append(f"{absent:,} missing" + (f" ({', '.join(words)})" if words else ""))
        text = f"{self.name}: {', '.join([*parts, f'{len(self.values):,} distinct'])}"
        if masked:
            return f"{text}; looks like personal data: masked"
        vocabulary = self._vocabulary()
        return f"{text}: {vocabulary}" if vocabulary else text

    def summary(self, masked: bool) -> ColumnSummary:
        """Return the same as data."""
        distinct = len(self.values)
        if masked:
            return ColumnSummary(name=self.name, type=self.type, distinct=distinct, personal=True)
        shown = self.counts.rows() if distinct <= _MAX_VOCABULARY else []
        values = tuple((shorten(cell(value), 60), count) for value, count in shown)
        prose = self.numbers is None and any(len(value.split()) >= SENTENCE for value in self.values[:200])
        return ColumnSummary(name=self.name, type=self.type, distinct=distinct, values=values, prose=prose)

    def _range(self) -> list[str]:
        if not self.values:
            return []
        if self.numbers is not None:
            return [f"{_short(self.numbers.min())} to {_short(self.numbers.max())}"]  # type: ignore[arg-type]
        if self.has_dates:
            return [f"such as {min(self.values)}"]
        longest = max(map(len, self.values))
        return [f"up to {longest:,} characters"] if longest > 60 else []

    def _vocabulary(self) -> str:
        if len(self.values) <= _MAX_VOCABULARY:
            return ", ".join(f"{shorten(cell(value), 60)} x {count:,}" for value, count in self.counts.iter_rows())
        top = [(value, count) for value, count in self.counts.head(5).iter_rows() if count > 1 and len(value) <= 60]
        if not top or self.numbers is not None or len(self.values) > 0.9 * self.count:
            return ""
        return "most often " + ", ".join(f"{cell(value)} x {count:,}" for value, count in top)


def masked_value(value: str, masked: bool) -> str:
    """Return a cell as it is shown."""
    return mask(value) if masked else shorten(cell(value), 80)


def _short(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
