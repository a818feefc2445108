"""Which columns and names have keys in common: one hashed index from normalised keys to everything that has them.

All comparisons of a folder are counted together, a rule of a manifest at a time, so that the number of queries does not grow with
tables and groups, and their cost grows with the cells. Batches bound the memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from m3b.dataset.manifest.model import Match
from m3b.dataset.manifest.templates import Field, edge_words, normalize, parse_template
from m3b.dataset.survey.names import to_int
from m3b.dataset.tables import LIST_SEPARATOR

MATCHES: tuple[Match, ...] = ("exact", "path_tail", "basename", "stem", "normalized", "number")
"""From the strictest to the loosest."""
MIN_KEYS = 2
"""Different keys that two ends share at least, unless one of them has no more."""
MAX_CACHED = 20_000
"""Texts whose keys are kept."""
_NEAR_BEST = 0.98
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_BATCH_CELLS = 100_000
"""Cells whose keys are made in one query."""
_MAX_COMMON = 400_000
"""Pairs of equal keys that are counted in one query."""
_MIN_NUMBERS = 0.9
"""Share of keys that must be numbers for a match by chance."""
_EDGE_SHARE = 0.29
"""Share of names whose first and last words must occur in two columns for these to be compared; a join by two columns has
three tenths of the files."""
_COUNTS = ("rows_matched", "files_matched", "rows_per_file", "files_per_row")


@dataclass(eq=False)
class End:
    """One thing that can be compared: a template, and a frame with its columns.

    Args:
        owner: id of the table or group.
        frame: a row a file, or a row of a table.
        rank: simple templates come first.
        columns: those of the template.
        has_lists: whether each item of a cell is compared.
    """

    owner: str
    template: str
    frame: pl.DataFrame
    matches: tuple[Match, ...]
    rank: int = 0
    columns: tuple[str, ...] = ()
    has_lists: bool = False
    keys: dict[Match, pl.Series] = field(default_factory=dict)

    @property
    def texts(self) -> pl.Series:
        """The texts, aligned with the rows of the frame, or the items of lists; they are not kept."""
        texts = fill(self.frame, self.template)
        return texts.str.split(LIST_SEPARATOR).explode() if self.has_lists else texts

    @cached_property
    def size(self) -> int:
        """The number of texts."""
        return len(self.texts) if self.has_lists else self.frame.height

    def key(self, match: Match) -> pl.Series:
        """Return the keys under a rule, one a text, null if there is none; those of few texts are kept."""
        keys = self.keys.get(match)
        if keys is None:
            keys = pl.select(normalize(pl.lit(self.texts.alias("text")), match).alias("key")).to_series()
            if len(keys) <= MAX_CACHED:
                self.keys[match] = keys
        return keys


@dataclass(frozen=True)
class MatchFacts:
    """What two ends have in common under a rule.

    Args:
        rows: with a key, of the first end.
        rows_matched, files_matched: texts of the first and of the second end whose key the other one has.
        rows_per_file, files_per_row: the most that share one key.
        chance: share of files that any other numbers of the same range would name: near 1 for running numbers.
    """

    rows: int
    rows_matched: int
    files_matched: int
    rows_per_file: int
    files_per_row: int
    chance: float


@dataclass(frozen=True, eq=False)
class Hit:
    """How two ends match under one rule.

    Args:
        keys: different keys that they share, of those that were compared.
        facts: None if a sample of the keys was compared.
    """

    first: End
    second: End
    match: Match
    keys: int
    facts: MatchFacts | None = None


CommonKeys = tuple[int, int, int, MatchFacts]
"""Places of two ends, the number of different keys that they share, and the facts."""


def fill(frame: pl.DataFrame, template: str) -> pl.Series:
    """Return the texts of a template."""
    parts = parse_template(template).parts
    if len(parts) == 1 and isinstance(parts[0], Field):
        return frame[parts[0].name].alias("text")
    return frame.select(parse_template(template).expression().alias("text")).to_series()


def compare_ends(
    firsts: Sequence[End],
    seconds: Sequence[End],
    max_keys: int,
    is_late: Callable[[], bool] = lambda: False,
    *,
    between_owners: bool = False,
) -> list[Hit]:
    """Return for each pair of ends the strictest rule that matches most, if enough keys match.

    Args:
        max_keys: of one end; of more, the same share of all keys is compared.
        between_owners: whether ends of the same owner are not compared.
    """
    step = max(-(-max((end.size for end in (*firsts, *seconds)), default=1) // max_keys), 1)
    owners = {owner: place for place, owner in enumerate(dict.fromkeys(end.owner for end in (*firsts, *seconds)))}
    owner_frames = [
        pl.DataFrame({name: range(len(ends)), "owner": [owners[end.owner] for end in ends]}, strict=False).cast(
            pl.Int32
        )
        for name, ends in (("a", firsts), ("b", seconds))
    ]
    best: dict[tuple[int, int], tuple[Match, int, MatchFacts | None]] = {}
    for match in MATCHES:
        if is_late():
            break
        if match == "path_tail":
            pairs = _count_tails(firsts, seconds)
        else:
            keys = [_count_keys(ends, match, step) for ends in (firsts, seconds)]
            pairs = _count_common(keys[0], keys[1], owner_frames if between_owners else None)
        for a, b, common, facts in pairs:
            previous = best.get((a, b))
            if previous is None or common * _NEAR_BEST > previous[1]:
                best[a, b] = (match, common, facts if step == 1 or match == "path_tail" else None)
    return [Hit(firsts[a], seconds[b], match, common, facts) for (a, b), (match, common, facts) in best.items()]


def _batch_ends(ends: Sequence[End]) -> Iterator[list[int]]:
    """Yield places of ends that have at most `_BATCH_CELLS` cells together, or one of more."""
    batch: list[int] = []
    cells = 0
    for place, end in enumerate(ends):
        if batch and cells + end.size > _BATCH_CELLS:
            yield batch
            batch, cells = [], 0
        batch.append(place)
        cells += end.size
    if batch:
        yield batch


def _count_texts(ends: Sequence[End], places: Sequence[int]) -> pl.DataFrame:
    """Return `end` (place), `text` and `n` (how often) of some ends."""
    series = [ends[place].texts.alias("text") for place in places]
    owners = pl.Series("end", np.repeat(np.array(places, np.int32), [len(texts) for texts in series]))
    frame = pl.DataFrame([owners, pl.concat(series)]).drop_nulls("text")
    return frame.group_by("end", "text").len("n")


def _count_keys(ends: Sequence[End], match: Match, step: int) -> pl.DataFrame:
    """Return `end` (place), `key`, `n` (how often) under a rule that is not `path_tail`, of the ends that are compared by it."""
    members = [place for place, end in enumerate(ends) if match in end.matches]
    frames = [pl.DataFrame(schema={"end": pl.Int32, "key": pl.String, "n": pl.UInt32})]
    for batch in _batch_ends([ends[place] for place in members]):
        texts = _count_texts(ends, [members[at] for at in batch])
        keys = texts.lazy().select("end", "n", key=normalize(pl.col("text"), match)).drop_nulls("key")
        if step > 1:
            keys = keys.filter(pl.col("key").hash() % step == 0)
        frames.append(keys.group_by("end", "key").agg(pl.col("n").sum()).collect())
    return pl.concat(frames, how="vertical_relaxed")


def _describe_numbers(keys: pl.DataFrame) -> pl.DataFrame:
    """Return for each end how many texts and keys it has, how many keys are numbers, and their range."""
    number = pl.col("key").cast(pl.Int64, strict=False)
    return keys.group_by("end").agg(
        rows=pl.col("n").sum(), unique=pl.len(), numbers=number.count(), low=number.min(), high=number.max()
    )


def _compute_chance(left: Mapping[str, int], right: Mapping[str, int]) -> float:
    """Return the share of files that any other numbers of the same range would name, of `_describe_numbers`."""
    if left["numbers"] < _MIN_NUMBERS * left["unique"] or right["numbers"] < _MIN_NUMBERS * right["unique"]:
        return 0.0
    if not left["numbers"] or not right["numbers"]:
        return 0.0
    low, high = min(left["low"], right["low"]), max(left["high"], right["high"])
    return round(min(left["numbers"] / (high - low + 1), 1.0), 4)


def _count_common(lefts: pl.DataFrame, rights: pl.DataFrame, owners: Sequence[pl.DataFrame] | None) -> list[CommonKeys]:
    """Return all pairs that share enough keys, in order.

    Args:
        owners: of both sides, if ends of the same owner are not compared.
    """
    if lefts.is_empty() or rights.is_empty():
        return []
    left_stats, right_stats = (
        {row["end"]: row for row in _describe_numbers(frame).iter_rows(named=True)} for frame in (lefts, rights)
    )
    lefts = lefts.rename({"end": "a", "n": "rows"})
    frames = []
    for chunk in _chunk_by_pairs(lefts, rights):
        pairs = lefts.lazy().join(chunk.lazy().rename({"end": "b", "n": "files"}), on="key")
        if owners is not None:
            pairs = (
                pairs.join(owners[0].lazy(), on="a")
                .join(owners[1].lazy(), on="b")
                .filter(pl.col("owner") != pl.col("owner_right"))
            )
        frames.append(pairs.group_by("a", "b").agg(**_aggregate_pairs()).collect())
    if not frames:
        return []
    common = pl.concat(frames).sort("a", "b")
    singles = [
        pl.Series([end for end, row in stats.items() if row["rows"] < MIN_KEYS], dtype=pl.Int32).implode()
        for stats in (left_stats, right_stats)
    ]
    common = common.filter((pl.col("keys") >= MIN_KEYS) | pl.col("a").is_in(singles[0]) | pl.col("b").is_in(singles[1]))
    return [
        (a, b, keys, _make_facts(left_stats[a], right_stats[b], counts))
        for a, b, keys, *counts in common.select("a", "b", "keys", *_COUNTS).iter_rows()
    ]


def _make_facts(left: Mapping[str, int], right: Mapping[str, int], counts: Sequence[int]) -> MatchFacts:
    """Return the facts of two ends of `_describe_numbers`, and of the values of `_COUNTS`."""
    return MatchFacts(rows=left["rows"], chance=_compute_chance(left, right), **dict(zip(_COUNTS, counts, strict=True)))


def _aggregate_pairs() -> dict[str, pl.Expr]:
    return {
        "keys": pl.len(),
        "rows_matched": pl.col("rows").sum(),
        "rows_per_file": pl.col("rows").max(),
        "files_matched": pl.col("files").sum(),
        "files_per_row": pl.col("files").max(),
    }


def _chunk_by_pairs(lefts: pl.DataFrame, rights: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the keys of some ends of the right side at a time, so that few pairs of equal keys come together."""
    key_counts = lefts.lazy().group_by("key").len("count")
    pairs = rights.lazy().join(key_counts, on="key").group_by("end").agg(pl.col("count").sum()).collect().sort("end")
    parts = pairs.with_columns(part=(pl.col("count").cum_sum() // _MAX_COMMON))
    if parts["part"].n_unique() == 1:
        yield rights
        return
    for _, part in parts.group_by("part", maintain_order=True):
        yield rights.filter(pl.col("end").is_in(part["end"].implode()))


def measure_keys(row_keys: pl.Series, file_keys: pl.Series) -> MatchFacts:
    """Return what two ends have in common, of all of their keys; those of `path_tail` must be cut before."""
    left, right = (keys.drop_nulls().alias("key").value_counts(name="n") for keys in (row_keys, file_keys))
    left_stats, right_stats = (
        _describe_numbers(keys.with_columns(end=pl.lit(0))).row(0, named=True) if len(keys) else None
        for keys in (left, right)
    )
    if left_stats is None or right_stats is None:
        return MatchFacts(left_stats["rows"] if left_stats else 0, 0, 0, 0, 0, 0.0)
    pairs = left.rename({"n": "rows"}).join(right.rename({"n": "files"}), on="key").select(**_aggregate_pairs())
    counts = [value or 0 for value in pairs.select(_COUNTS).row(0)]
    return _make_facts(left_stats, right_stats, counts)


def measure_counts(rows: Counter[str], files: Counter[str]) -> MatchFacts:
    """Return what two ends have in common, of how often each of their keys occurs."""
    common = rows.keys() & files.keys()
    return MatchFacts(
        rows=rows.total(),
        rows_matched=sum(rows[key] for key in common),
        files_matched=sum(files[key] for key in common),
        rows_per_file=max((rows[key] for key in common), default=0),
        files_per_row=max((files[key] for key in common), default=0),
        chance=_compute_chance(_describe_counts(rows), _describe_counts(files)),
    )


def _describe_counts(counts: Counter[str]) -> dict[str, int]:
    numbers = [int(key) for key in counts if _WHOLE_NUMBER.fullmatch(key)]
    return {
        "unique": len(counts),
        "numbers": len(numbers),
        "low": min(numbers, default=0),
        "high": max(numbers, default=0),
    }


# --- tails of paths -----------------------------------------------------------------------------------------------------


def _cut(keys: pl.Expr, depth: int) -> pl.Expr:
    """The last folders of paths and their names; null if a path has fewer folders."""
    return keys.str.extract(rf"([^/]*(?:/[^/]*){{{depth}}})$", 1)


def _count_tails(firsts: Sequence[End], seconds: Sequence[End]) -> list[CommonKeys]:
    """Paths of which one ends with the other at a folder, as `_count_common` counts them; paths without a folder do not count."""
    lefts = _collect_tails(firsts)
    pairs: list[CommonKeys] = []
    for b, second in enumerate(seconds):
        if "path_tail" not in second.matches or lefts.is_empty():
            continue
        paths = pl.select(normalize(pl.lit(second.texts.alias("text")), "path_tail").alias("key")).to_series()
        depth = to_int(paths.str.count_matches("/", literal=True).max())
        if depth:
            pairs += [(a, b, keys, facts) for a, keys, facts in _count_tails_of(lefts, paths.drop_nulls(), depth)]
    return sorted(pairs, key=lambda pair: pair[:2])


def _collect_tails(ends: Sequence[End]) -> pl.DataFrame:
    """Return `a`, `key`, `rows` of the ends that have paths with folders."""
    members = [place for place, end in enumerate(ends) if "path_tail" in end.matches]
    frames = [pl.DataFrame(schema={"a": pl.Int32, "key": pl.String, "rows": pl.UInt32})]
    for batch in _batch_ends([ends[place] for place in members]):
        texts = _count_texts(ends, [members[at] for at in batch])
        texts = texts.filter(pl.col("text").str.contains(r"[/\\]").any().over("end"))
        paths = texts.lazy().select("end", "n", key=normalize(pl.col("text"), "path_tail")).drop_nulls("key")
        counts = paths.group_by("end", "key").agg(pl.col("n").sum()).collect()
        frames.append(counts.select(pl.col("end").cast(pl.Int32).alias("a"), "key", pl.col("n").alias("rows")))
    keys = pl.concat(frames, how="vertical_relaxed")
    return keys.filter(pl.col("key").str.contains("/", literal=True).any().over("a"))


def _count_tails_of(lefts: pl.DataFrame, files: pl.Series, depth: int) -> Iterator[tuple[int, int, MatchFacts]]:
    """Yield place, number of keys and facts of each end of the left side that has tails of some paths."""
    tails = pl.concat([_cut_series(files, levels) for levels in range(1, depth + 1)]).unique()
    cut_keys = lefts.with_columns(
        key=_cut(pl.col("key"), depth).fill_null(pl.col("key")),
        has_folder=pl.col("key").str.contains("/", literal=True),
    )
    named = cut_keys.filter(pl.col("has_folder") & pl.col("key").is_in(tails.implode()))
    keys_of = dict(named.group_by("a").len().iter_rows())
    if not keys_of:
        return
    rows = cut_keys.filter(pl.col("a").is_in(list(keys_of))).group_by("a", "key").agg(pl.col("rows").sum())
    levels = rows.group_by("a", level=pl.col("key").str.count_matches("/", literal=True)).agg(pl.col("rows").sum())
    common = levels.sort("rows", "level", descending=[True, False]).unique("a", keep="first", maintain_order=True)
    for (level,), members in common.group_by("level"):
        right = (_cut_series(files, to_int(level)) if to_int(level) < depth else files).value_counts(name="files")
        left = rows.filter(pl.col("a").is_in(members["a"].implode()))
        left_stats = {
            row["end"]: row for row in _describe_numbers(left.select("key", end="a", n="rows")).iter_rows(named=True)
        }
        right_stats = _describe_numbers(right.select("key", end=pl.lit(0), n="files")).row(0, named=True)
        matches = left.join(right, on="key").group_by("a").agg(**_aggregate_pairs())
        for a, *counts in matches.select("a", *_COUNTS).iter_rows():
            yield a, keys_of[a], _make_facts(left_stats[a], right_stats, counts)


def _cut_series(keys: pl.Series, depth: int) -> pl.Series:
    return keys.to_frame("key").select(_cut(pl.col("key"), depth)).to_series().drop_nulls()


# --- two columns together ---------------------------------------------------------------------------------------------------


class EdgeWords:
    """The first and last words of columns and names: whether two columns together can name files at all.

    A key of two columns begins with the first word of the one and ends with the last word of the other. So the files that it
    matches are at most those whose names begin with any first word of the one column, and those that end with any last word of
    the other.
    """

    def __init__(self, columns: Sequence[End], names: Sequence[End]) -> None:
        self._columns = {(end.owner, end.template): place for place, end in enumerate(columns)}
        self._names = {(end.owner, end.template): place for place, end in enumerate(names)}
        left, right = _collect_edges(columns), _collect_edges(names)
        self._free = [set(left.filter(pl.col(flag))["end"].to_list()) for flag in ("is_wordless", "has_folder")]
        self._pairs = [
            self._find_frequent(left, right, side, [end.frame.height for end in names]) for side in ("first", "last")
        ]

    @staticmethod
    def _find_frequent(
        left: pl.DataFrame, right: pl.DataFrame, side: str, sizes: Sequence[int]
    ) -> list[dict[tuple[int, int], float]]:
        """Return share of files of each column and name that have a word in common, of all files and of those of several words."""
        words = left.select("end", key=side).drop_nulls("key").unique().with_columns(n=pl.lit(1, pl.UInt32))
        names = right.select("end", "n", "words", key=side).drop_nulls("key")
        wordless = dict(right.filter(pl.col(side).is_null()).group_by("end").agg(pl.col("n").sum()).iter_rows())
        shares: list[dict[tuple[int, int], float]] = []
        for min_words in (1, 2):
            rights = names.filter(pl.col("words") >= min_words).group_by("end", "key").agg(pl.col("n").sum())
            counts: dict[tuple[int, int], float] = {}
            for chunk in _chunk_by_pairs(words, rights) if len(rights) and len(words) else ():
                pairs = words.lazy().rename({"end": "a"}).drop("n").join(chunk.lazy().rename({"end": "b"}), on="key")
                for a, b, n in pairs.group_by("a", "b").agg(pl.col("n").sum()).collect().iter_rows():
                    share = (n + wordless.get(b, 0)) / max(sizes[b], 1)
                    if share > _EDGE_SHARE:
                        counts[a, b] = share
            shares.append(counts)
        return shares

    def can_name(self, first: End, last: End, first_name: End, last_name: End) -> bool:
        """Return whether the texts of two columns, one after the other, can match those of two names of enough files."""
        a, b = (self._columns[end.owner, end.template] for end in (first, last))
        x, y = (self._names.get((end.owner, end.template)) for end in (first_name, last_name))
        if x is None or y is None:  # a name that is the same for all files
            return True
        wordless, foldered = self._free
        is_first_free = a in wordless or b in foldered
        is_last_free = b in wordless
        is_one_name = first_name is last_name
        several_words = int(is_one_name and not (is_first_free or is_last_free))
        begins = is_first_free or (a, x) in self._pairs[0][several_words]
        return begins and (is_last_free or (b, y) in self._pairs[1][several_words])


def _collect_edges(ends: Sequence[End]) -> pl.DataFrame:
    """Return `end`, `first`, `last` (words), `words` (how many), `n`, and whether the end has texts without words or in folders."""
    frames = [
        pl.DataFrame(
            schema={
                "end": pl.Int32, "first": pl.String, "last": pl.String, "words": pl.UInt32, "n": pl.UInt32,
                "is_wordless": pl.Boolean, "has_folder": pl.Boolean,
            }
        )
    ]  # fmt: skip
    for places in _batch_ends(ends):
        texts = _count_texts(ends, places)
        first, last, words = edge_words(pl.col("text"))
        edges = texts.lazy().select(
            "end",
            "n",
            first=first,
            last=last,
            words=words,
            has_folder=pl.col("text").str.contains(r"[/\\]"),
            ends_in_folder=pl.col("text").str.contains(r"[/\\]\s*$"),
        )
        is_wordless = pl.col("first").is_null() | pl.col("last").is_null() | pl.col("ends_in_folder")
        edges = edges.with_columns(is_wordless=is_wordless)
        edges = edges.group_by("end", "first", "last", "words", "is_wordless", "has_folder").agg(pl.col("n").sum())
        frames.append(edges.collect().select(frames[0].columns))
    return pl.concat(frames, how="vertical_relaxed")
