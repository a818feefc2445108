"""The order of grades: by their numbers, letters or words, or as the request lists them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from m3b.data.spec.proposals.language import listed, negative, plain, stem, words

SCALE = (
    "none absent normal healthy no negative",
    "trace minimal trivial borderline doubtful questionable subtle",
    "mild low slight minor early small",
    "moderate medium intermediate",
    "marked considerable high",
    "severe major advanced large late",
    "extreme critical complete proliferative end",
)
"""Words of severity from the least to the most; those of one step stand together."""
_STEP = {stem(word): step for step, line in enumerate(SCALE) for word in line.split()}
_ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6}


def in_order(names: Sequence[str], request: str) -> list[str]:
    """The grades from low to high; empty where nothing tells their order."""
    for place in (_numbers, _letters, _romans, _severity):
        places = [place(name) for name in names]
        if None not in places and len(set(places)) == len(places):
            return sorted(names, key=lambda name: place(name) or 0.0)
    asked = [" ".join(words(item)) for item in listed(request)]
    by = {" ".join(words(name)): name for name in names}
    told = [by[item] for item in dict.fromkeys(asked) if item in by]
    return told if len(told) == len(names) else []


def _numbers(name: str) -> float | None:
    """`0`, `grade 2`, `KL3`, `stage_1`: the one number of a name."""
    found = re.findall(r"\d+(?:\.\d+)?", name)
    return float(found[0]) if len(found) == 1 else None


def _last(name: str) -> str:
    pieces = re.findall(r"[^\W\d_]+", plain(name))
    return pieces[-1] if pieces else ""


def _letters(name: str) -> float | None:
    """`a`, `BI-RADS c`, `density D`."""
    last = _last(name)
    return float(ord(last)) if len(last) == 1 and "a" <= last <= "h" else None


def _romans(name: str) -> float | None:
    return float(_ROMAN[last]) if (last := _last(name)) in _ROMAN else None


def _severity(name: str) -> float | None:
    """By the words of severity; of several the strongest counts, and absence where nothing else is said."""
    steps = [_STEP[word] for word in words(name) if word in _STEP]
    if steps and max(steps) > 0:
        return float(max(steps))
    return 0.0 if steps or negative(name) else None
