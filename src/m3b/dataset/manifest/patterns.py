"""Patterns of paths as regular expressions with slots.

Expressions run in polars' engine (Rust's regex), which takes linear time for any name: no name can make one hang.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from m3b.dataset.inventory import is_path_column
from m3b.dataset.manifest.problems import PatternError, Problem

SLOT_KINDS = {"number": "[0-9]+", "word": r"\p{Alphabetic}+", "text": "[^/]+?"}
"""What a slot matches, by its kind."""
RESERVED_SLOTS = ("member", "index", "tag", "(row)")
"""Names of columns that no slot may have, besides those of the path."""

_TOKEN = re.compile(
    r"\{(?P<slot>[A-Za-z_]\w*)(?::(?P<kind>\w*))?\}|(?P<choice>\{[^{}]*,[^{}]*\})|(?P<deep>\*\*/?)|(?P<star>\*)"
)
_GROUP = re.compile(r"\(\?P?<(?P<name>[A-Za-z_]\w*)>")
_REPEAT = "__again"
MAX_REGEX = 4_000


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern.

    Args:
        text: as the manifest has it.
        regex: for Rust, of the whole path.
        slots: names that a match fills.
        repeats: slot -> group that must hold the same text, for slots that the pattern has twice.
    """

    text: str
    regex: str
    slots: tuple[str, ...]
    repeats: tuple[tuple[str, str], ...] = ()

    def match(self, frame: pl.DataFrame, column: str = "path") -> pl.DataFrame:
        """The rows whose text matches, with the slots as columns; empty slots are null."""
        if not self.slots:
            return frame.filter(pl.col(column).str.contains(self.regex))
        groups = frame.select(pl.col(column).str.extract_groups(self.regex).alias("groups")).unnest("groups")
        hit = frame.select(pl.col(column).str.contains(self.regex)).to_series()
        for slot, again in self.repeats:
            hit &= (groups[slot].str.to_lowercase() == groups[again].str.to_lowercase()).fill_null(True)
        slots = groups.select(
            pl.when(pl.col(name) == "").then(None).otherwise(pl.col(name)).alias(name) for name in self.slots
        )
        return frame.drop(self.slots, strict=False).hstack(slots).filter(hit)


@lru_cache(maxsize=4096)
def parse_pattern(text: str, part: str = "files") -> Pattern:
    """Compile a pattern.

    Raises:
        PatternError: it is empty, leads out of the folder, has a slot of no known kind or with a reserved name, or is no
            valid expression.
    """
    if not text.strip() or text.startswith("/") or ".." in text.split("/"):
        _fail("bad_pattern", part, text, "it is no path below the data folder", "Write it like images/{case}.png.")
    repeats: list[tuple[str, str]] = []
    if text.startswith("re:"):
        regex = text.removeprefix("re:")
        slots = list(dict.fromkeys(_GROUP.findall(regex)))
    else:
        regex, slots, repeats = _translate(text, part)
    for slot in slots:
        if is_path_column(slot) or slot in RESERVED_SLOTS:
            _fail(
                "reserved_slot",
                part,
                text,
                f"the slot {{{slot}}} is called like a column that every path has",
                f"Call it otherwise, such as {{{slot}_part}}.",
            )
    regex = f"(?is)^(?:{regex})$"
    if len(regex) > MAX_REGEX:
        _fail("bad_pattern", part, text[:80], f"it is longer than {MAX_REGEX} characters", "Shorten it.")
    try:
        pl.select(pl.lit("x").str.extract_groups(regex) if slots else pl.lit("x").str.contains(regex))
    except pl.exceptions.PolarsError as error:
        _fail(
            "bad_pattern",
            part,
            text,
            f"it cannot be used: {_first_line(error)}",
            "Expressions have no look-around and no back-references.",
        )
    return Pattern(text, regex, tuple(slots), tuple(repeats))


def _fail(code: str, part: str, text: str, reason: str, remedy: str) -> None:
    raise PatternError(
        Problem(
            code=code, part=part, finding=f"the pattern {text!r}: {reason}.", remedy=remedy, values={"pattern": text}
        )
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("error")), lines[0] if lines else "")[:200]


def _translate(text: str, part: str) -> tuple[str, list[str], list[tuple[str, str]]]:
    regex, at = "", 0
    slots: list[str] = []
    repeats: list[tuple[str, str]] = []
    for token in _TOKEN.finditer(text):
        regex += _escape(text[at : token.start()], text, part)
        at = token.end()
        if slot := token["slot"]:
            kind = token["kind"] if token["kind"] is not None else "text"
            if kind not in SLOT_KINDS:
                _fail(
                    "bad_pattern", part, text, f"{{{slot}:{kind}}} is of no known kind", f"Use {', '.join(SLOT_KINDS)}."
                )
            group = slot
            if slot in slots:
                group = f"{slot}{_REPEAT}{len(repeats)}"
                repeats.append((slot, group))
            else:
                slots.append(slot)
            regex += f"(?P<{group}>{SLOT_KINDS[kind]})"
        elif token["choice"]:
            regex += "(?:" + "|".join(re.escape(choice) for choice in token["choice"][1:-1].split(",")) + ")"
        elif token["deep"]:
            regex += r"(?:[^/]+/)*" if token["deep"].endswith("/") else r".*"
        else:
            regex += r"[^/]*"
    return regex + _escape(text[at:], text, part), slots, repeats


def _escape(literal: str, text: str, part: str) -> str:
    if (brace := re.search(r"[{}]", literal)) is not None:
        _fail(
            "bad_pattern",
            part,
            text,
            f"the brace at {literal[brace.start() :][:20]!r} belongs to no slot and no choice",
            "Write {name}, {name:number}, {name:word} or {jpg,png}.",
        )
    return re.escape(literal)


def match_any(frame: pl.DataFrame, patterns: Sequence[Pattern]) -> pl.DataFrame:
    """The rows that match any of the patterns, in their order, with the slots of the first that they match."""
    if len(patterns) == 1:
        return patterns[0].match(frame)
    numbered = frame.with_row_index("(place)")
    hits = [pattern.match(numbered) for pattern in patterns]
    matches = pl.concat(hits, how="diagonal").unique("(place)", keep="first", maintain_order=True)
    return matches.sort("(place)").drop("(place)")
