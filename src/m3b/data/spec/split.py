"""Which cases are for testing: the data set's own split, or one drawn by patient and stratified by class."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

NONE = "(none)"
"""The stratum of a case without any class."""
JUDGED = 5
"""Groups of a class for testing where three times as many are there: a verdict needs five patients (`m3b.metrics.verdict`)."""


@dataclass(frozen=True)
class Unit:
    """What the drawing of a split needs to know of a case.

    Args:
        group: cases with the same one stay together.
        classes: that it has; none is a stratum of its own.
    """

    group: str
    classes: tuple[str, ...]


def draw(units: Sequence[Unit], share: float, seed: int) -> set[str]:
    """The groups for testing, about `share` of the cases.

    Classes go from the one that fewest groups have to the one that most have; of each, groups are drawn at random until
    it has its share, large ones only where they fit. Of every class that two groups or more have, one stays for training
    and one goes to testing as far as groups with several classes allow; of a class that `3 * JUDGED` groups or more have,
    `JUDGED` go there. Otherwise never more than the share plus one case.
    """
    members: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        members[unit.group].append(unit)
    order = sorted(members)
    random.Random(seed).shuffle(order)
    held = {name: Counter(one for unit in members[name] for one in unit.classes or (NONE,)) for name in order}
    having: dict[str, list[str]] = defaultdict(list)
    for name in order:
        for one in held[name]:
            having[one].append(name)
    side: dict[str, str] = {}
    for one in sorted(having, key=lambda value: (len(having[value]), value)):
        _share_out(one, having[one], held, share, side)
    return {name for name in members if side.get(name) == "test"}


def _share_out(one: str, mine: list[str], held: dict[str, Counter[str]], share: float, side: dict[str, str]) -> None:
    """Send some of one class's groups to testing and bind one to training."""
    if len(mine) < 2:
        for name in mine:
            side.setdefault(name, "train")
        return
    total = sum(held[name][one] for name in mine)
    least = JUDGED * total / len(mine) if len(mine) >= 3 * JUDGED else 1.0
    wanted = max(1.0, least, share * total)
    taken = sum(held[name][one] for name in mine if side.get(name) == "test")
    free = [name for name in mine if name not in side]
    if free and not any(side.get(name) == "train" for name in mine):
        side[free.pop()] = "train"
    if free and not taken:
        first = min(free, key=lambda name: max(0.0, held[name][one] - wanted))
        free.remove(first)
        side[first], taken = "test", held[first][one]
    for name in free:
        if taken >= wanted:
            break
        if taken + held[name][one] <= wanted + max(0.5, 0.1 * wanted):
            side[name] = "test"
            taken += held[name][one]


def fifths(values: Sequence[float]) -> list[str]:
    """The fifth of all numbers that each lies in; equal numbers lie in the same."""
    ordered = sorted(values)
    return [f"fifth {min(4, 5 * bisect_left(ordered, value) // len(ordered))}" for value in values]


def together(keys: Sequence[Sequence[str]]) -> list[str]:
    """One group name a case, the same for cases that share any of their keys, also by way of a third case.

    Args:
        keys: of each case, such as its patient and what it is a copy of; empty texts join nothing.
    """
    parent: dict[str, str] = {}

    def top(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for place, own in enumerate(keys):
        first = top(f"case {place:09d}")
        for number, key in enumerate(own):
            if key:
                other = top(f"key {number} {key}")
                low, high = sorted((first, other))
                parent[high] = low
                first = low
    return [top(f"case {place:09d}") for place in range(len(keys))]
