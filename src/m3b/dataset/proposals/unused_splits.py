"""Splits that a folder states for nearly all images of a set, by lists or a column, and that a reading does not use."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import polars as pl

from m3b.dataset.archives import local_file
from m3b.dataset.inventory import Inventory
from m3b.dataset.proposals.context import SplitChoice
from m3b.dataset.proposals.image_sets import ImageSet
from m3b.dataset.survey.names import TABLE_FORMATS, format_of
from m3b.dataset.survey.words import side_of
from m3b.dataset.tables.text_tables import decode_text

MIN_COVERED, MAX_COMMON = 0.8, 0.05
"""Share of the images that parts of a split name together, and the share that two of them may name both."""
MAX_LIST_BYTES = 4 << 20
MAX_LISTS = 20
_NAMES = re.compile(r"[^\s,;|\"'\[\]{}()]+")
_SUFFIX = re.compile(r"(?:\.[^\W_]{1,8}){1,2}$")


def find_unused_split(image_set: ImageSet, choices: Iterable[SplitChoice], inventory: Inventory) -> str:
    """Return which division for tests the folder states for nearly all images of a set; empty if none.

    Args:
        choices: divisions by columns, whether they are likely or not.
    """
    for choice in choices:
        sides = {side for side, count in choice.counts.items() if count}
        if {"train", "test"} <= sides and sum(choice.counts.values()) >= MIN_COVERED * image_set.count:
            return choice.title
    keys = [image_set.frame.frame["path"], *(image_set.values(column.template) for column in image_set.columns)]
    for lists in _read_lists(inventory):
        for key in keys:
            texts = key.drop_nulls().map_elements(_fold, return_dtype=pl.String)
            named = {path: texts.is_in(list(names)) for path, names in lists.items()}
            counts = {path: int(its.sum()) for path, its in named.items() if its.any()}
            common = sum(int((named[first] & named[second]).sum()) for first, second in combinations(counts, 2))
            is_divided = len({side_of(_stem(path)) for path in counts}) > 1 and common <= MAX_COMMON * image_set.count
            if is_divided and sum(counts.values()) - common >= MIN_COVERED * image_set.count:
                return ", ".join(f"{path} {count:,}" for path, count in counts.items())
    return ""


def _read_lists(inventory: Inventory) -> Iterator[Mapping[str, frozenset[str]]]:
    """Yield the names in files called like parts, with those of one folder together."""
    folders: dict[str, list[str]] = defaultdict(list)
    suffix = pl.col("path").str.extract(r"(\.[^.]*|[^.])$", 1)
    suffixes = inventory.files.select(suffix.unique()).to_series().drop_nulls().to_list()
    of_lists = [text for text in suffixes if format_of(text.casefold()) in (*TABLE_FORMATS, "text")]
    for path, size in inventory.files.filter(suffix.is_in(of_lists)).select("path", "bytes").iter_rows():
        if side_of(_stem(path)) and (size or 0) <= MAX_LIST_BYTES:
            folders[path.rpartition("/")[0]].append(path)
    for paths in folders.values():
        if 2 <= len(paths) <= MAX_LISTS and len({side_of(_stem(path)) for path in paths}) > 1:
            texts = {path: decode_text(local_file(inventory.root, path).read_bytes())[0] for path in paths}
            yield {path: frozenset(map(_fold, _NAMES.findall(text))) for path, text in texts.items()}


def _stem(path: str) -> str:
    return _SUFFIX.sub("", path.rpartition("/")[2])


def _fold(name: str) -> str:
    """The last part of a path, without its ending."""
    return _stem(name.replace("\\", "/")).casefold()
