"""The words by which people call the sides of a split."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

Side = Literal["train", "val", "test", "other"]

SIDES: tuple[Side, ...] = ("train", "val", "test")
_WORDS: dict[Side, str] = {
    "train": "train training trn tr trainset trainingset imagestr labelstr entrainement apprentissage entrenamiento",
    "val": "val valid validate validation dev devel development vali tune valset validierung validacion",
    "test": "test testing tst ts te testset imagests labelsts eval evaluation holdout heldout unseen prueba",
    "other": "all trainval full total whole everything unlabeled unlabelled",
}
_BY_WORD = {word: side for side, words in _WORDS.items() for word in words.split()}
_FIRST: tuple[Side, ...] = ("other", "val", "test", "train")


def side_of(text: str) -> Side | Literal[""]:
    """Which side of a split a folder's, list's or value's name speaks of; empty where of none.

    One word of the name has to say it: "train", "stage1_train", "Training_Set", "test.list", "x_val".
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    words = [word for word in re.split(r"[\W_\d]+", spaced.lower()) if word]
    joined = "".join(words)
    if joined in _BY_WORD:
        return _BY_WORD[joined]
    found = {_BY_WORD[word] for word in words if word in _BY_WORD}
    if len(words) > 4 or not found:
        return ""
    if {"train", "val"} <= found:
        return "other"  # both of them: `train_val_list`
    return next(side for side in _FIRST if side in found)


def all_but_test(text: str) -> bool:
    """Whether a name speaks of training and validation together: `trainval`, `train_val_list`."""
    return side_of(text) == "other" and bool(re.search(r"train[\W_]*val", text, re.IGNORECASE))


def sides_of(names: Iterable[str]) -> dict[str, Side | Literal[""]]:
    """Name -> its side: what is for training and validation together is for training, where no other name is."""
    sides = {name: side_of(name) for name in names}
    if "train" not in sides.values():
        sides |= {name: "train" for name in sides if all_but_test(name)}
    return sides


def is_split(names: Iterable[str]) -> bool:
    """Whether names speak of at least two of training, validation and test, and nearly all of a side."""
    sides = list(sides_of(names).values())
    return len(set(sides) & set(SIDES)) >= 2 and sum(1 for side in sides if not side) <= len(sides) // 3


def beside_a_test_part(counts: Mapping[str, int]) -> dict[str, Side | Literal[""]]:
    """Name -> its side, of two folders of which one is called after testing and the larger other after nothing of the kind:
    `NCT-CRC-HE-100K` beside `CRC-VAL-HE-7K`. Empty where that is not so.

    Args:
        counts: name -> files.
    """
    sides = {name: side_of(name) for name in counts}
    told = [name for name, side in sides.items() if side in ("val", "test")]
    others = [name for name, side in sides.items() if not side]
    if len(told) != 1 or len(others) != 1 or len(counts) != 2:
        return {}
    (tested,), (other,) = told, others
    if counts[other] <= counts[tested] or tested.casefold() in other.casefold():  # `valid` and `invalid` are classes
        return {}
    return {**sides, other: "train"}
