"""How the files of two groups are brought together: a recipe for the folders and one for the name.

Recipes are names that a `Pairing` states in `left_slots` and `right_slots`; `match` applies them to paths.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from m3b.data.survey.kinds import cut
from m3b.data.survey.nearest import nearest
from m3b.data.survey.sides import side_of
from m3b.data.survey.tokens import pieces

FOLDERS = ("folders", "folders.bare", "folders.ids", "folders.last", "")
"""All folder names that vary; the same without the words for images and masks (`test-image`, `test-mask`); those that are no
plain words, and splits; the last that varies; none."""
NAMES = ("stem", "stem.bare", "pieces", "stem.within", "number", "")
"""The stem; without what all stems begin or end with; what varies in it; the longest left stem that it begins or ends
with; its last number; nothing."""
_GAP = re.compile(r"[\s_\-.()]+")
_HOLDS = frozenset((
    "image", "images", "img", "imgs", "picture", "pictures", "scan", "scans", "mask", "masks", "label", "labels", "gt",
    "groundtruth", "truth", "ground", "seg", "segmentation", "segmentations", "annotation", "annotations", "bilder", "masken",
))  # fmt: skip
"""Words of folders for what they hold, not for which part of the cases."""

Key = tuple[str, ...]


def keys_of(paths: Sequence[str], folder: str, name: str) -> list[Key]:
    """The key of every path under a recipe ("stem.within" gives the stem)."""
    split = [path.split("/") for path in paths]
    places = _folders(split, folder)
    stems = [cut(parts[-1])[0] for parts in split]
    named = _names(stems, name)
    return [(*place, *text) for place, text in zip(places, named, strict=True)]


def _folders(split: Sequence[Sequence[str]], recipe: str) -> list[Key]:
    depth = min((len(parts) - 1 for parts in split), default=0)
    if not recipe or not depth:
        return [()] * len(split)
    varying = [level for level in range(depth) if len({parts[level] for parts in split}) > 1]
    if recipe == "folders.last":
        varying = varying[-1:]
    elif recipe == "folders.ids":
        varying = [level for level in varying if any(_is_id(parts[level]) for parts in split[:200])]
    fold = _bare if recipe == "folders.bare" else _fold
    return [tuple(fold(parts[level]) for level in varying) for parts in split]


def _is_id(name: str) -> bool:
    return bool(side_of(name)) or any(kind not in ("word", "gap") for kind, _ in pieces(name))


def _fold(text: str) -> str:
    return _GAP.sub("", text.casefold())


@cache
def _bare(name: str) -> str:
    """A folder's name without the words that say whether it holds images or masks."""
    return "".join(text.casefold() for kind, text in pieces(name) if kind != "gap" and text.casefold() not in _HOLDS)


def _names(stems: Sequence[str], recipe: str) -> list[Key]:
    if not recipe:
        return [()] * len(stems)
    if recipe in ("stem", "stem.within"):
        return [(stem.casefold(),) for stem in stems]
    if recipe == "number":
        return [_last_number(stem) for stem in stems]
    if recipe == "stem.bare":
        head, tail = affixes(stems)
        return [(_fold(stem[head : len(stem) - tail]),) for stem in stems]
    return _varying(stems)


def _last_number(stem: str) -> Key:
    """The stem's number where it has one alone, or several that all are the same; nothing else is sure."""
    found = {text.lstrip("0") or "0" for kind, text in pieces(stem) if kind == "number"}
    return tuple(found) if len(found) == 1 else ("?", stem)


def affixes(stems: Sequence[str]) -> tuple[int, int]:
    """Characters at the start and at the end that all stems share, in whole pieces: of a word or more."""
    some = sorted(set(stems))
    if len(some) < 2:
        return 0, 0
    first, last = pieces(some[0]), [pieces(stem) for stem in some]
    head = tail = 0
    while all(head < len(one) - 1 and one[head] == first[head] for one in last) and first[head][0] in ("word", "gap"):
        head += 1
    while all(
        tail < len(one) - head - 1 and one[-1 - tail] == first[-1 - tail] for one in last
    ) and _literal(first[-1 - tail], tail):  # fmt: skip
        tail += 1
    return sum(len(text) for _, text in first[:head]), sum(len(text) for _, text in first[len(first) - tail :])


def _literal(piece: tuple[str, str], at: int) -> bool:
    return piece[0] in ("word", "gap", "number") and (at > 0 or piece[0] != "number")


def _varying(stems: Sequence[str]) -> list[Key]:
    """Numbers, hashes, sides and dates of each stem, without those at places where all stems have the same."""
    cut_up = [pieces(stem) for stem in stems]
    lengths = {len(one) for one in cut_up}
    same: set[int] = set()
    if len(lengths) == 1:
        columns = zip(*cut_up, strict=True)
        same = {at for at, column in enumerate(columns) if len(set(column)) == 1}
    found = []
    for one in cut_up:
        texts = [
            text.lstrip("0") or "0" if kind == "number" else text.casefold()[:1] if kind == "side" else text.casefold()
            for at, (kind, text) in enumerate(one)
            if at not in same and kind in ("number", "hash", "uid", "date", "side")
        ]
        found.append(tuple(texts) or ("?", "".join(text for _, text in one)))
    return found


def match(
    left: Sequence[str], right: Sequence[str], left_slots: Sequence[str], right_slots: Sequence[str]
) -> dict[str, list[str]]:
    """The right files of each left file under a pairing's recipes; left files without any are left out.

    Where several left files have one key (`train/01.png` and `test/01.png` beside `train/01_mask.png`), a right file is of
    those that lie nearest to it, as far as folders and the sides of a split that they are called after tell.
    """
    mine = keys_of(left, *_recipe(left_slots))
    theirs = keys_of(right, *_recipe(right_slots))
    by_key: dict[Key, list[str]] = defaultdict(list)
    known = set(mine)
    find = _within(known) if "stem.within" in right_slots else None
    for key, path in zip(theirs, right, strict=True):
        found = find(key) if find else key
        if found is not None and found in known:
            by_key[found].append(path)
    alike: dict[Key, list[str]] = defaultdict(list)
    for key, path in zip(mine, left, strict=True):
        if key in by_key:
            alike[key].append(path)
    near = {key: nearest(some, by_key[key]) for key, some in alike.items() if len(some) > 1}
    pairs = {path: near[key].get(path, []) if key in near else by_key[key] for key, path in zip(mine, left, strict=True)
             if key in by_key}  # fmt: skip
    return {path: some for path, some in pairs.items() if some}


def _recipe(slots: Sequence[str]) -> tuple[str, str]:
    folder = next((slot for slot in slots if slot.startswith("folders")), "")
    return folder, next((slot for slot in slots if slot and not slot.startswith("folders")), "")


def _within(known: Iterable[Key]) -> Callable[[Key], Key | None]:
    """Finds the longest known stem that a stem begins or ends with, cut at gaps or where letters meet digits."""
    stems = set(known)

    def find(key: Key) -> Key | None:
        *place, stem = key
        if key in stems:
            return key
        texts = [text for _, text in pieces(stem)]
        ends = list(range(len(texts) - 1, 0, -1))
        for at in ends:
            shorter = "".join(texts[:at]).rstrip("_-. ")
            if (found := (*place, shorter)) in stems:
                return found
        for at in range(1, len(texts)):
            shorter = "".join(texts[at:]).lstrip("_-. ")
            if (found := (*place, shorter)) in stems:
                return found
        return None

    return find


def rest_of(left: str, right: str) -> str:
    """What a right file's name has beyond its left file's: the word of a class, the number of an instance."""
    mine, theirs = (cut(os.path.basename(path))[0].casefold() for path in (left, right))
    return theirs.replace(mine, "", 1).strip("_-. ()") if mine in theirs else theirs


def beyond(left: str, right: str) -> str:
    """What tells a right file from its left one: the folder where their names are the same, else the rest of its name."""
    return _folder_word(left, right) or rest_of(left, right)


def _folder_word(left: str, right: str) -> str:
    """Of files of the same name, the folder in which the right one lies."""
    if left.rpartition("/")[2].rpartition(".")[0] != right.rpartition("/")[2].rpartition(".")[0]:
        return ""
    return right.split("/")[-2] if "/" in right else ""
