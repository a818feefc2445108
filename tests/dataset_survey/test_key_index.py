"""The index of keys against a comparison of each two ends, and the growth of its queries."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
import pytest
from dataset_folders import fill, write_table

from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.templates import normalize
from m3b.dataset.survey import key_index
from m3b.dataset.survey.facts import SurveyLimits
from m3b.dataset.survey.groups import GroupFinder
from m3b.dataset.survey.joins import find_joins
from m3b.dataset.survey.key_index import MATCHES, MIN_KEYS, EdgeWords, End, Hit, MatchFacts, compare_ends
from m3b.dataset.survey.tables import load_tables
from m3b.dataset.survey.walk import walk

WORDS = ("p", "A", "01", "1", "12", "x9", "-")
SEPARATORS = ("_", "-", " ", ".", "/")


def draw_ends(seed: int, owner: str, count: int, separators: Sequence[str]) -> list[End]:
    """Ends of random texts: numbers, words, missing cells, folders."""
    rng = random.Random(seed)
    ends = []
    for place in range(count):
        texts = []
        for _ in range(rng.choice([1, 6, 20])):
            parts = [rng.choice(WORDS) for _ in range(rng.randint(1, 2))]
            text = rng.choice(separators).join(parts) + rng.choice(["", "", ".png", ".nii.gz"])
            texts.append(rng.choice([text, text, text.upper(), None]))
        name = f"c{place}"
        frame = pl.DataFrame({name: pl.Series(texts, dtype=pl.String)})
        ends.append(End(f"{owner}{place % 2}", f"{{{name}}}", frame, MATCHES, columns=(name,)))
    return ends


def list_keys(end: End, match: Any) -> list[str]:
    keys = pl.select(normalize(pl.lit(end.texts), match)).to_series()
    return [key for key in keys.to_list() if key is not None]


def share_tail(first: str, second: str) -> bool:
    parts = first.split("/"), second.split("/")
    length = min(map(len, parts))
    return parts[0][-length:] == parts[1][-length:]


def count_common(first: End, second: End, match: Any) -> tuple[int, Counter[str], Counter[str], set[str]]:
    rows, files = Counter(list_keys(first, match)), Counter(list_keys(second, match))
    common = set(rows) & set(files)
    return len(common), rows, files, common


def find_best_match(first: End, second: End) -> tuple[str, int] | None:
    """The strictest rule that matches most, one pair after the other."""
    best: tuple[str, int] | None = None
    for match in MATCHES:
        if match == "path_tail":
            rows, files = set(list_keys(first, match)), list_keys(second, match)
            deepest = max((key.count("/") for key in files), default=0)
            keys = sum(
                "/" in row
                and any("/" in file and share_tail("/".join(row.split("/")[-deepest - 1 :]), file)
                        and file.count("/") >= min(row.count("/"), deepest) for file in files)
                for row in rows
            )  # fmt: skip
        else:
            keys, all_rows, all_files, _ = count_common(first, second, match)
            if keys < MIN_KEYS and min(all_rows.total(), all_files.total()) >= MIN_KEYS:
                keys = 0
        if keys and (best is None or keys * 0.98 > best[1]):
            best = (match, keys)
    return best


@pytest.mark.parametrize("max_common", [4_000_000, 3])
@pytest.mark.parametrize("seed", range(4))
def test_all_pairs_at_once_are_what_each_pair_is_alone(
    seed: int, max_common: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "_MAX_COMMON", max_common)
    monkeypatch.setattr(key_index, "_BATCH_CELLS", 20 if max_common == 3 else 2_000_000)
    firsts, seconds = draw_ends(seed, "t", 5, SEPARATORS), draw_ends(seed + 100, "g", 6, SEPARATORS)
    hits = {(hit.first, hit.second): hit for hit in compare_ends(firsts, seconds, 1_000)}
    pairs = [(first, second) for first in firsts for second in seconds]
    expected = {pair: best for pair in pairs if (best := find_best_match(*pair)) is not None}
    assert {pair: (hit.match, hit.keys) for pair, hit in hits.items()} == expected
    assert len(hits) > 3
    for hit in hits.values():
        if hit.match != "path_tail":
            check_facts(hit)


def check_facts(hit: Hit) -> None:
    _, rows, files, common = count_common(hit.first, hit.second, hit.match)
    assert hit.facts is not None
    assert hit.facts == MatchFacts(
        rows=rows.total(),
        rows_matched=sum(rows[key] for key in common),
        files_matched=sum(files[key] for key in common),
        rows_per_file=max(rows[key] for key in common),
        files_per_row=max(files[key] for key in common),
        chance=hit.facts.chance,
    )
    assert hit.facts == key_index.measure_keys(hit.first.key(hit.match), hit.second.key(hit.match))
    assert hit.facts == key_index.measure_counts(rows, files)


@pytest.mark.parametrize("seed", range(6))
def test_no_two_columns_that_name_most_files_are_left_out(seed: int) -> None:
    rng = random.Random(seed)
    columns = draw_ends(seed, "t", 4, SEPARATORS)
    texts = [[text or "" for text in (end.texts.to_list() * 12)[:12]] for end in columns]
    tried = 0
    for first in range(4):
        for last in range(4):
            if first == last:
                continue
            stems = [
                f"{a}_{b}" if rng.random() < 0.5 else f"z{rng.random()}"
                for a, b in zip(texts[first], texts[last], strict=True)
            ]
            frame = pl.DataFrame({"stem": [stem.rpartition("/")[2] for stem in stems]})
            name = End("g1", "{stem}", frame, ("exact", "normalized"))
            full = [End("t1", end.template, pl.DataFrame({end.columns[0]: column}), MATCHES, columns=end.columns)
                    for end, column in zip(columns, texts, strict=True)]  # fmt: skip
            keys = [
                set(pl.select(normalize(pl.Series(values), "normalized")).to_series().drop_nulls())
                for values in (
                    [f"{a}_{b}" for a, b in zip(texts[first], texts[last], strict=True)],
                    frame["stem"].to_list(),
                )
            ]
            names = pl.select(normalize(frame["stem"], "normalized")).to_series()
            if sum(key in keys[0] for key in names.to_list()) / len(names) > 0.3:
                tried += 1
                assert EdgeWords(full, [name]).can_name(full[first], full[last], name, name)
    assert tried


def test_columns_whose_words_are_others_are_not_compared() -> None:
    rows = pl.DataFrame({"who": [f"p{k}" for k in range(9)], "age": [str(40 + k) for k in range(9)]})
    columns = [End("t1", f"{{{name}}}", rows, MATCHES, columns=(name,)) for name in rows.columns]
    name = End("g1", "{stem}", pl.DataFrame({"stem": [f"film_{k}" for k in range(9)]}), MATCHES)
    words = EdgeWords(columns, [name])
    assert not words.can_name(columns[0], columns[1], name, name)
    assert not words.can_name(columns[1], columns[0], name, name)


# --- growth ---------------------------------------------------------------------------------------------------------------


def count_queries(action: Callable[[], object]) -> int:
    """How often polars runs a query."""
    count = 0

    def watch(frame: FrameType, event: str, function: Any) -> None:
        nonlocal count
        count += event == "c_call" and function.__name__ == "collect"

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def write_runs(root: Path, count: int) -> None:
    """Folders that have nothing to do with each other, each with a table of numbers and pictures."""
    for run in range(count):
        word = "abcdefghijklmnop"[run] * 4
        fill(root, [f"{word}/{word}_{number}.png" for number in range(12)])
        header = [f"{word}{column}" for column in range(8)]
        rows = [[(row * (column + 1)) % 14 for column in range(8)] for row in range(14)]
        write_table(root / word / "log.csv", [header, *rows])


def count_join_queries(root: Path) -> int:
    limits = SurveyLimits()
    inventory = walk(root, limits)
    groups = GroupFinder(Inventory(root, inventory.files), limits).find()
    tables = load_tables(groups, root, limits, frozenset(), lambda: False)
    assert len(tables) >= 4
    return count_queries(lambda: find_joins(tables, groups, {}, limits))


def test_the_queries_of_joins_grow_with_the_tables_and_not_with_the_pairs(tmp_path: Path) -> None:
    for count in (4, 8):
        write_runs(tmp_path / str(count), count)
    few_queries, many_queries = (count_join_queries(tmp_path / str(count)) for count in (4, 8))
    assert 0 < many_queries <= 2.5 * few_queries
    assert many_queries < 1_200
