"""Numbers that cells of a column say: decimal commas, thousands, units behind them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from m3b.dataset.manifest.durations import UNITS, convert, find_unit, parse_duration
from m3b.dataset.manifest.problems import Problem, list_names
from m3b.dataset.tables.columns import NO_NUMBER_WORDS

_UNIT = r"[\p{Alphabetic}%°µ\"'][^\s]*(?:\s+[\p{Alphabetic}%°µ/(][^\s]*)*"
_CELL = (
    rf"^([+\-−]?(?:[0-9][0-9.,'’\x{{a0}}\x{{202f}} ]*[0-9]|[0-9]|[.,][0-9]+)(?:[eE][+\-]?[0-9]+)?)[.,]?\s*({_UNIT})?$"
)
"""A number with at most a unit behind it: `131`, `131.5`, `131,5 ml`, `1.2e3`, `064Y`, `1,1 g/cm2`; not `3-4`, `1/2`, `12 to 15`."""


@dataclass(frozen=True)
class ParsedNumbers:
    """Numbers of a column.

    Args:
        values: null if a cell says none, or more than one.
        comma: what a comma stands for: `decimal`, `thousands`, or nothing (there is none).
        is_sure: whether the column itself shows it; `1,234` alone can be both.
        units: the texts behind the numbers, in lower case.
    """

    values: pl.Series
    comma: str = ""
    is_sure: bool = True
    units: tuple[str, ...] = ()

    def problems(self, part: str) -> list[Problem]:
        """What should be looked at."""
        problems = []
        if not self.is_sure:
            problems.append(
                Problem(
                    code="comma_of_two_meanings",
                    part=part,
                    severity="warning",
                    finding="commas with three digits behind them were read as decimal commas; they may be thousands.",
                    remedy="Compare the range of the numbers with what is measured.",
                )
            )
        if len(self.units) > 1:
            problems.append(
                Problem(
                    code="mixed_units",
                    part=part,
                    severity="warning",
                    finding=f"cells have several units: {list_names(self.units)}.",
                    remedy="Numbers are not converted; leave one unit with `only` or `find`.",
                    values={"units": list(self.units)[:12]},
                )
            )
        return problems


BOUND = r"^\s*(?:[<>≤≥]\s*=?\s*\d+(?:[.,]\d+)?|\d+(?:[.,]\d+)?\s*\+)\s*$"
"""Texts that state only a bound of a number (`89+`, `> 90`), for `str.contains`."""
MIN_DURATIONS = 0.9
"""Share of the cells that must be durations, so that a column holds durations."""
MAX_LOOKED_AT = 20
"""Cells of which at least half must be durations before all are looked at."""


def says_no_number(text: pl.Expr) -> pl.Expr:
    """Whether a text says that a number is not known or cannot be assessed."""
    folded = text.str.strip_chars().str.to_lowercase()
    return folded.is_in(list(NO_NUMBER_WORDS))


def parse_durations(texts: pl.Series, unit: str = "") -> ParsedNumbers | None:
    """Return the durations of a column in one unit, the given one or the largest that occurs; None if it holds something else."""
    unique = pl.DataFrame({"t": texts.drop_nulls().unique(maintain_order=True)})
    cells = unique.filter(~says_no_number(pl.col("t")))["t"].to_list()
    if sum(bool(parse_duration(text)) for text in cells[:MAX_LOOKED_AT]) < min(len(cells), MAX_LOOKED_AT) / 2:
        return None
    durations = {text: counts for text in cells if (counts := parse_duration(text))}
    largest = find_unit(durations)
    if not largest or len(durations) < MIN_DURATIONS * len(cells):
        return None
    target = unit if unit in UNITS else largest
    numbers = {text: convert(counts, target) for text, counts in durations.items()}
    values = texts.replace_strict(list(numbers), list(numbers.values()), default=None, return_dtype=pl.Float64)
    return ParsedNumbers(values, units=(target,))


def parse_numbers(texts: pl.Series, unit: str = "") -> ParsedNumbers:
    """Parse a column of texts; what commas and points mean is decided on the whole column.

    Args:
        unit: to which durations are converted.
    """
    texts = texts.cast(pl.String)
    floats = texts.cast(pl.Float64, strict=False)
    if floats.null_count() == texts.null_count() and floats.is_finite().all():
        return ParsedNumbers(floats)
    if (durations := parse_durations(texts, unit)) is not None:
        return durations
    parts = (
        pl.DataFrame({"text": texts})
        .select(pl.col("text").str.strip_chars().str.extract_groups(_CELL).alias("g"))
        .unnest("g")
    )
    number = parts.to_series(0).str.replace_all(r"['’\x{a0}\x{202f} ]", "").str.replace("−", "-", literal=True)
    spaced = parts.to_series(0).str.contains(r"[0-9][ \x{a0}\x{202f}'’][0-9]").fill_null(False)
    grouped = (
        parts.to_series(0)
        .str.contains(r"^[+\-−]?[0-9]{1,3}(?:[ \x{a0}\x{202f}'’][0-9]{3})+(?:[.,][0-9]+)?$")
        .fill_null(False)
    )
    number = pl.DataFrame({"n": number, "bad": spaced & ~grouped}).select(pl.when(~pl.col("bad")).then("n"))["n"]
    units = parts.to_series(1).drop_nulls().str.to_lowercase().unique(maintain_order=True).to_list()
    comma, is_sure = _meaning_of_comma(number)
    if comma == "decimal":
        has_comma = number.str.contains(",", literal=True).fill_null(False)
        floats = pl.DataFrame({"n": number, "c": has_comma}).select(
            pl.when("c").then(pl.col("n").str.replace_all(".", "", literal=True)).otherwise("n")
        )["n"]
        number = floats.str.replace(",", ".", literal=True)
        has_several_points = number.str.count_matches(r"\.") > 1
        number = pl.DataFrame({"n": number, "m": has_several_points}).select(
            pl.when("m").then(pl.col("n").str.replace_all(".", "", literal=True)).otherwise("n")
        )["n"]
    else:
        number = number.str.replace_all(",", "", literal=True)
    values = number.cast(pl.Float64, strict=False)
    values = pl.DataFrame({"v": values}).select(pl.when(pl.col("v").is_finite()).then("v"))["v"]
    return ParsedNumbers(values, comma, is_sure, tuple(units))


def _meaning_of_comma(number: pl.Series) -> tuple[str, bool]:
    """What a comma stands for in a column, and whether that is sure."""
    commas = number.filter(number.str.contains(",", literal=True).fill_null(False))
    if not len(commas):
        return "", True
    last_comma, last_point = commas.str.replace(r"^.*,", ""), commas.str.contains(r"\.[0-9]*,")
    if last_point.any():
        return "decimal", True  # 1.234,5
    if commas.str.contains(r",[0-9]*\.").any() or (commas.str.count_matches(",") > 1).any():
        return "thousands", True  # 1,234.5 or 1,234,567
    if (last_comma.str.len_chars() != 3).any() or commas.str.contains(r"^[+-]?0,").any():
        return "decimal", True
    if number.str.contains(r"^[^,]*\.[0-9]+$").fill_null(False).any():
        return "thousands", True  # points are decimal elsewhere in the column
    return "decimal", False
