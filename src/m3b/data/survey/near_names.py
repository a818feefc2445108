"""Names on two sides of a join that are not the same but look as if they were meant to be."""

from __future__ import annotations

import re
from collections.abc import Sequence

from m3b.data.survey.keys import key

MOST_LEFT, MOST_RIGHT = 2_000, 300
"""Names of each side that are compared."""
MIN_LENGTH, MIN_SHARE = 6, 0.4
"""Characters of the shorter name, and its share of the longer one."""
_WORD_SIGNS = re.compile(r"[^0-9a-z]+")


def near_names(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str]]:
    """The texts of the right side that hold one text of the left side alone, or are held by it, as (left, right).

    Signs between words and leading zeros do not count, and a number is never a piece of a longer one: `scan12` and
    `scan_012_resized` are near, `scan12` and `scan123` are not.
    """
    mine = [(text, bare) for text in left[:MOST_LEFT] if len(bare := _bare(text)) >= MIN_LENGTH]
    found = []
    for text in right[:MOST_RIGHT]:
        own = _bare(text)
        near = [other for other, bare in mine if len(own) >= MIN_LENGTH and _holds(own, bare)]
        if len(near) == 1:
            found.append((near[0], text))
    return found


def _bare(text: str) -> str:
    return _WORD_SIGNS.sub("", key("unpadded", text))


def _holds(one: str, other: str) -> bool:
    long, short = (one, other) if len(one) >= len(other) else (other, one)
    at = long.find(short)
    if at < 0 or len(short) < MIN_SHARE * len(long):
        return False
    before, after = long[:at], long[at + len(short) :]
    return not (before[-1:].isdigit() and short[0].isdigit()) and not (after[:1].isdigit() and short[-1].isdigit())
