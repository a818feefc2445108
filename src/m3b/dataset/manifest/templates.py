"""Templates of columns, and the rules by which two keys are compared, as polars expressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from m3b.dataset.inventory import KNOWN_SUFFIX_REGEX
from m3b.dataset.manifest.model import Match
from m3b.dataset.manifest.problems import PatternError, Problem

MAX_DEPTH = 24
"""Folders of a key that `path_tail` compares at most."""


@dataclass(frozen=True)
class Field:
    """A column in a template; `inner` are the columns that its own name takes, as in `{member.{part}_labels}`."""

    name: str
    inner: tuple[str, ...] = ()


@dataclass(frozen=True)
class Template:
    """A text with columns in braces."""

    text: str
    parts: tuple[str | Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its columns."""
        return tuple(part for part in self.parts if isinstance(part, Field))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns that it needs, those inside of others too."""
        return tuple(dict.fromkeys(name for field in self.fields for name in (*field.inner, field.name)))

    def expression(self) -> pl.Expr:
        """Its text; null if a column is null, or all of it is empty."""
        if not self.fields:
            return pl.lit(self.text.strip() or None, dtype=pl.String)
        if len(self.parts) == 1:
            return pl.col(self.fields[0].name)
        return pl.concat_str(
            [pl.lit(part) if isinstance(part, str) else pl.col(part.name) for part in self.parts], ignore_nulls=False
        ).str.strip_chars()


@lru_cache(maxsize=8192)
def parse_template(text: str, part: str = "template") -> Template:
    """Compile a template.

    Raises:
        PatternError: a brace without its other one, or empty braces.
    """
    parts: list[str | Field] = []
    at = 0
    while at < len(text):
        start = text.find("{", at)
        if start < 0:
            parts.append(text[at:])
            break
        if start > at:
            parts.append(text[at:start])
        depth, end = 0, start
        while end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
            if not depth:
                break
        name = text[start + 1 : end - 1]
        if depth or not name.strip():
            raise PatternError(
                Problem(
                    code="bad_template",
                    part=part,
                    finding=f"the template {text!r} has a brace without its other one, or nothing between them.",
                    remedy="Write columns as {name}.",
                    values={"template": text},
                )
            )
        inner = parse_template(name, part).columns if "{" in name else ()
        parts.append(Field(name, inner))
        at = end
    return Template(text, tuple(parts))


def columns_of(templates: Iterable[str]) -> list[str]:
    """Names of all columns that templates need; those that cannot be read have none."""
    names: dict[str, None] = {}
    for template in templates:
        try:
            names |= dict.fromkeys(parse_template(template).columns)
        except PatternError:
            continue
    return list(names)


def _last_part(text: pl.Expr) -> pl.Expr:
    return (
        text.str.replace_all("\\", "/", literal=True)
        .str.strip_chars_end("/ ")
        .str.extract(r"([^/]*)$", 1)
        .str.strip_chars()
    )


def _stem(text: pl.Expr) -> pl.Expr:
    return _last_part(text).str.replace(KNOWN_SUFFIX_REGEX, "").str.strip_chars()


def _without_zeros(text: pl.Expr) -> pl.Expr:
    return text.str.replace_all(r"(^|[^0-9])0+([0-9])", "${1}${2}")


_WORDS = r"[0-9]+|\p{Alphabetic}+"


def edge_words(text: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return the first and the last word of a key under `normalized`, null if it has none, and the number of words.

    The first word is that of the text with its suffix, since something may follow it.
    """
    text = text.str.to_lowercase().str.strip_chars()
    words = _without_zeros(_stem(text)).str.extract_all(_WORDS)
    first = _without_zeros(_last_part(text)).str.extract(rf"({_WORDS})", 1)
    return first, words.list.last(), words.list.len()


def normalize(text: pl.Expr, match: Match) -> pl.Expr:
    """A key as it is compared under a rule; null if nothing is left of it."""
    text = text.str.to_lowercase().str.strip_chars()
    if match == "exact":
        key = text.str.replace_all(r"\s+", " ")
    elif match == "path_tail":
        key = text.str.replace_all("\\", "/", literal=True).str.replace_all(r"/(?:\.?/)+", "/")
        key = key.str.replace(r"^(?:\.{1,2}/|/|\s)+", "").str.strip_chars_end("/ ")
    elif match == "basename":
        key = _last_part(text)
    elif match == "stem":
        key = _stem(text)
    elif match == "normalized":
        key = _without_zeros(_stem(text)).str.extract_all(_WORDS).list.join(" ")
    else:
        key = _without_zeros(_stem(text)).str.extract_all(r"[0-9]+").list.join(" ")
    return pl.when(key != "").then(key)


def fold(text: str) -> str:
    """A text of `classes`, `train`, ... as it is compared: letter case and spaces do not count."""
    return " ".join(text.lower().split())


def match_keys(left_keys: pl.Series, right_keys: pl.Series, match: Match) -> pl.DataFrame:
    """All pairs of places (`left`, `right`) whose keys, normalised already, belong together.

    Under `path_tail` a key belongs to those of the longest common end alone.
    """
    frames = [
        pl.DataFrame({name: pl.int_range(len(keys), dtype=pl.UInt32, eager=True), "key": keys}).drop_nulls("key")
        for name, keys in (("left", left_keys), ("right", right_keys))
    ]
    if match != "path_tail":
        return frames[0].join(frames[1], on="key", how="inner", maintain_order="left_right").select("left", "right")
    return _match_tails(frames[0], frames[1])


def _match_tails(left_frame: pl.DataFrame, right_frame: pl.DataFrame) -> pl.DataFrame:
    """Pairs of paths of which one ends with the other; of several for one key on the left, the longest."""
    frames = [
        frame.with_columns(pl.col("key").str.count_matches("/").alias("depth")) for frame in (left_frame, right_frame)
    ]
    pieces = []
    for longer, shorter in ((0, 1), (1, 0)):
        for depth in sorted(frames[shorter]["depth"].unique().to_list())[:MAX_DEPTH]:
            deep = frames[longer].filter(pl.col("depth") >= depth if longer == 0 else pl.col("depth") > depth)
            tails = deep.with_columns(pl.col("key").str.extract(rf"([^/]*(?:/[^/]*){{{depth}}})$", 1))
            equal_depth = frames[shorter].filter(pl.col("depth") == depth)
            pieces.append(tails.join(equal_depth, on="key").select("left", "right", pl.lit(depth).alias("common")))
    pairs = pl.concat(pieces) if pieces else pl.DataFrame(schema={"left": pl.UInt32, "right": pl.UInt32, "common": int})
    longest = pl.col("common") == pl.col("common").max().over("left")
    return pairs.filter(longest).sort("left", "right").select("left", "right")


def take_text(text: pl.Expr, find: str, unknown: Sequence[str], missing: str | None) -> pl.Expr:
    """What a value takes of a template's text: `find`, then texts that mean nothing, then what stands for them."""
    if find:
        text = text.str.extract(find, 1 if _has_group(find) else 0)
    text = text.str.strip_chars()
    empty = text == ""
    if unknown:
        empty |= text.str.to_lowercase().is_in([fold(word) for word in unknown])
    text = pl.when(empty).then(None).otherwise(text)
    return text if missing is None else text.fill_null(missing)


@lru_cache(maxsize=1024)
def _has_group(expression: str) -> bool:
    """Whether an expression has a capturing group."""
    groups = pl.select(pl.lit("").str.extract_groups(expression)).dtypes[0]
    return isinstance(groups, pl.Struct) and bool(groups.fields)


@lru_cache(maxsize=1024)
def check_expression(expression: str, part: str) -> None:
    """Raise PatternError for an expression that cannot be used."""
    try:
        pl.select(pl.lit("").str.contains(expression))
    except pl.exceptions.PolarsError:
        raise PatternError(
            Problem(
                code="bad_expression",
                part=part,
                finding=f"the expression {expression!r} cannot be used.",
                remedy="Expressions have no look-around and no back-references; check the brackets.",
                values={"expression": expression},
            )
        ) from None
