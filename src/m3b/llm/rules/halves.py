"""Files that belong together: the one for training and the one for testing."""

from __future__ import annotations

import re
from collections.abc import Sequence

TRAIN, TEST = ("train", "training"), ("test", "testing", "valid", "validation", "val")


def halves(files: Sequence[str]) -> list[tuple[str, str]]:
    """(file, its test file or nothing), those with a test file first; a file of test cases stands in no other place."""
    pairs, used = [], set()
    for file in files:
        if _half(file) != "train":
            continue
        mates = [other for other in files if _half(other) in TEST and _rest(other) == _rest(file)]
        mates.sort(key=lambda other: TEST.index(_half(other)))
        if mates:
            pairs.append((file, mates[0]))
            used |= {file, *mates}
    return [*pairs, *((file, "") for file in files if file not in used)]


def _words(file: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", file.rpartition("/")[2].lower())


def _half(file: str) -> str:
    words = _words(file)
    if any(word in TRAIN for word in words):
        return "train"
    return next((word for word in words if word in TEST), "")


def _rest(file: str) -> list[str]:
    return [word for word in _words(file) if word not in (*TRAIN, *TEST)]
