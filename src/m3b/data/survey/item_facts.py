"""What a survey states about arrays of items in files of their own: images, and what sibling files say of each of them."""

from __future__ import annotations

from typing import Literal

from m3b.data.survey.facts import Content, Fact, Value

PART = "part"
"""The slot whose texts are the sides of a split."""


class ItemSlot(Fact):
    """A piece of the paths of an item set's files that varies: which part of the set each file is."""

    name: str
    values: tuple[Value, ...]
    """Each text, and the items of the files that have it."""


class SiblingArray(Fact):
    """An array that says something of each item: a label, a person, a mask.

    Args:
        word: what its file is called in place of the images' word (`labels`, `y`, `masks`), or has beyond their name.
        file: key of its path, of the slots of the images' paths: `{part}_labels.npy`.
        pattern: a regular expression of its paths, with the same named groups.
        key: of the array in the file.
        groups: of the files.
        files: of the set's files, those that have it.
        rows: items in all of them.
        role: `labels` (whole numbers, one-hot rows), `text`, `number`, or `mask`.
        values: of labels and texts the vocabulary, where it is at most 200; of masks of one layer their whole values with the
            pixels that have them, of as many items as are read.
        layers: of masks, how many each item has along its last axis; 1 for a single one.
        exclusive: of several layers, whether no pixel that was looked at is marked in two of them.
        rest: of several layers, the place of the one that holds just what all others leave free; None where none does.
    """

    word: str
    file: str
    pattern: str
    key: str
    groups: tuple[str, ...]
    files: int
    rows: int
    role: Literal["labels", "text", "number", "mask"]
    values: tuple[Value, ...] = ()
    distinct: int = 0
    content: Content | None = None
    layers: int = 1
    exclusive: bool = True
    rest: int | None = None


class SiblingTable(Fact):
    """Tables of which each row speaks of the item at its place.

    Args:
        word, pattern: as of a sibling array.
        tables: ids, one for each file of images that has one.
        index: the column that numbers the items from 0; empty where the order of the rows does.
        rows: of all of them.
    """

    word: str
    pattern: str
    tables: tuple[str, ...]
    index: str = ""
    rows: int


class ItemSet(Fact):
    """Files of one array of images each, and what siblings say of their items.

    Args:
        id: `i1`, `i2`, ...
        groups: of the image files.
        pattern: a regular expression of their paths, with a named group a slot.
        file: key of their paths, of these slots.
        word: what the images are called where siblings are called otherwise; empty where these have a word more.
        key: of the array in each file.
        files: the paths in order.
        rows: items in all of them.
    """

    id: str
    groups: tuple[str, ...]
    pattern: str
    file: str
    word: str
    key: str
    files: tuple[str, ...]
    rows: int
    content: Content | None = None
    slots: tuple[ItemSlot, ...] = ()
    arrays: tuple[SiblingArray, ...] = ()
    tables: tuple[SiblingTable, ...] = ()
