"""Files that are called alike but for one word, and the pattern of several of them that are parts of one set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from m3b.data.survey.item_facts import PART
from m3b.data.survey.kinds import cut
from m3b.data.survey.sides import is_split, side_of
from m3b.data.survey.tokens import pieces

Token = tuple[str, str]
"""Kind and text, as `tokens.pieces` gives them; levels are divided by a gap `/`."""
_GLUED = re.compile(r"([xy])(train|training|val|valid|validation|dev|test|testing)", re.IGNORECASE)
"""`xtrain`, `ytest`."""
TAKEN = frozenset({"path", "folder", "name", "stem", "number", "member", "index"})
"""Slots that every path, or item, has."""
SIGNS = frozenset(("gap", sign) for sign in "_- .")
MOST_PIECES = 5
"""Of words and signs between them by which two names differ: `ground_truth`, `images_of_cells`."""


@lru_cache(maxsize=4096)
def tokens(path: str) -> tuple[Token, ...]:
    """The pieces of a path without its suffix."""
    folder, _, name = path.rpartition("/")
    levels = [*(folder.split("/") if folder else []), cut(name)[0]]
    found: list[Token] = []
    for at, level in enumerate(levels):
        found += [("gap", "/")] if at else []
        for kind, text in pieces(level):
            glued = _GLUED.fullmatch(text) if kind == "word" else None
            found += [("word", one) for one in glued.groups()] if glued else [(kind, text)]
    return tuple(found)


def one_word(image: str, other: str) -> tuple[str, str] | None:
    """The word, or few words, by which two files are told apart, as it is in either: `images` and `labels`, `x` and `y`, `photos`
    and `ground truth`; or nothing and what the other has beyond (`scans`, `scans_labels`). None where they differ otherwise, or in
    the part of a split."""
    mine, its = tokens(image), tokens(other)
    if len(mine) == len(its):
        differ = {(a, b) for a, b in zip(mine, its, strict=True) if a[1].casefold() != b[1].casefold()}
        if len({(a[1].casefold(), b[1].casefold()) for a, b in differ}) != 1:
            return None
        (kind, word), (other_kind, other_word) = next(iter(differ))
        parts = side_of(word) or side_of(other_word)
        return (word, other_word) if kind == other_kind == "word" and not parts else None
    _, own, other_own = _middle(mine, its)
    words = [" ".join(text for kind, text in some if kind == "word") for some in (own, other_own)]
    plain = all(kind == "word" or (kind, text) in SIGNS for kind, text in (*own, *other_own))
    short = max(len(own), len(other_own)) <= MOST_PIECES and bool(words[1])
    return (words[0], words[1]) if plain and short and not any(map(side_of, words)) else None


def _middle(mine: tuple[Token, ...], its: tuple[Token, ...]) -> tuple[int, tuple[Token, ...], tuple[Token, ...]]:
    """Where two names begin to differ, and what either has there until they are the same again."""
    folded = [[(kind, text.casefold()) for kind, text in one] for one in (mine, its)]
    least = min(len(mine), len(its))
    start = next((at for at in range(least) if folded[0][at] != folded[1][at]), least)
    left = least - start
    end = next((at for at in range(left) if folded[0][-1 - at] != folded[1][-1 - at]), left)
    return start, mine[start : len(mine) - end], its[start : len(its) - end]


@dataclass(frozen=True)
class Parts:
    """Files that are the parts of one set.

    Args:
        files: their paths.
        slots: name -> the text of each file.
        marks: of each piece of their paths, the slot that it is; empty for fixed text.
    """

    files: tuple[str, ...]
    slots: Mapping[str, tuple[str, ...]]
    marks: tuple[str, ...]

    def named(self, path: str, image: str = "") -> tuple[str, str]:
        """The key of paths like this one, of the slots, and the regular expression of them.

        Args:
            image: the file of this set that the path is called like but for a word; empty for one of the set itself.
        """
        own, mine = tokens(path), tokens(image or path)
        marks = list(self.marks)
        if len(own) != len(mine):
            start, some, others = _middle(mine, own)
            marks[start : start + len(some)] = [""] * len(others)
        end = cut(path.rpartition("/")[2])[1]
        end = path[len(path) - len(end) :] if end else ""
        key = pattern = ""
        written: set[str] = set()
        for (_, text), name in zip(own, marks, strict=True):
            key += f"{{{name}}}" if name else text
            pattern += re.escape(text) if not name else f"(?P={name})" if name in written else self._slot(name)
            written.add(name)
        return key + end, pattern + re.escape(end)

    def _slot(self, name: str) -> str:
        return f"(?P<{name}>{'|'.join(re.escape(text) for text in sorted(set(self.slots[name])))})"


def parts_of(files: Sequence[str]) -> Parts | None:
    """Files of as many pieces as the parts of one set, whose varying pieces are slots; None where they are not such files."""
    every = [tokens(path) for path in files]
    if len({len(one) for one in every}) != 1 or any(set("{}") & set(path) for path in files):
        return None
    slots: dict[str, tuple[str, ...]] = {}
    marks, before = [], ""
    for column in zip(*every, strict=True):
        texts = tuple(text for _, text in column)
        name = next((name for name, its in slots.items() if its == texts), "") if len(set(texts)) > 1 else ""
        if len(set(texts)) > 1 and not name:
            called = PART if is_split(texts) else before
            name = called if called.isidentifier() and called not in (*slots, *TAKEN) else f"at{len(slots)}"
            slots[name] = texts
        marks.append(name)
        if column[0][0] == "word":
            before = texts[0].lower() if len(set(texts)) == 1 and texts[0].isascii() else ""
    return Parts(tuple(files), slots, tuple(marks))
