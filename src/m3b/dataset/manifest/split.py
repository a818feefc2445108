"""A drawn split: groups of cases that stay together, and which of them are for testing, stratified by class."""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

WITHOUT_CLASS = "(none)"
"""The stratum of a case without any class."""
MIN_TEST_GROUPS = 5
"""Groups of a class for testing if three times as many are there: a verdict needs five patients (`m3b.metrics.verdict`)."""


@dataclass(frozen=True, slots=True)
class SplitUnit:
    """What the drawing of a split needs to know of a case.

    Args:
        group: cases of the same group stay together.
        classes: those of the case; none is a stratum of its own.
    """

    group: int
    classes: tuple[str, ...]


def group_cases(keys: Iterable[Sequence[Hashable]]) -> Sequence[int]:
    """Return the group of each case, the same for cases that share any of their keys, also by way of a third case.

    Args:
        keys: of each case, such as its patient and what it is a copy of; empty ones join nothing.

    Returns:
        The place of the first case of the group.
    """
    parent = array("q")
    first_places: dict[int, dict[Hashable, int]] = defaultdict(dict)

    def find_root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for place, own_keys in enumerate(keys):
        parent.append(place)
        for number, key in enumerate(own_keys):
            if key:
                low, high = sorted((find_root(place), find_root(first_places[number].setdefault(key, place))))
                parent[high] = low
    return array("q", map(find_root, range(len(parent))))


def draw_test_groups(units: Iterable[SplitUnit], share: float, seed: int) -> set[int]:
    """The groups for testing, about `share` of the cases.

    Classes go from the one that fewest groups have to the one that most have; of each, groups are drawn at random until it has
    its share, large ones only if they fit. Of every class that two groups or more have, one stays for training and one goes to
    testing, as far as groups with several classes allow; of a class that `3 * MIN_TEST_GROUPS` groups or more have,
    `MIN_TEST_GROUPS` go there. Otherwise never more than the share plus one case.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    groups: set[int] = set()
    for unit in units:
        groups.add(unit.group)
        for label in unit.classes or (WITHOUT_CLASS,):
            counts[label][unit.group] += 1
    order = sorted(groups)
    random.Random(seed).shuffle(order)
    sides: dict[int, str] = {}
    for label in sorted(counts, key=lambda label: (len(counts[label]), label)):
        _share_out([group for group in order if group in counts[label]], counts[label], share, sides)
    return {group for group in groups if sides.get(group) == "test"}


def _share_out(groups: list[int], counts: Counter[int], share: float, sides: dict[int, str]) -> None:
    """Send some of one class's groups to testing, and bind one to training.

    Args:
        counts: group -> its cases of the class.
    """
    if len(groups) < 2:
        for group in groups:
            sides.setdefault(group, "train")
        return
    total = counts.total()
    min_cases = MIN_TEST_GROUPS * total / len(groups) if len(groups) >= 3 * MIN_TEST_GROUPS else 1.0
    target_cases = max(1.0, min_cases, share * total)
    test_cases = sum(counts[group] for group in groups if sides.get(group) == "test")
    free = [group for group in groups if group not in sides]
    if free and not any(sides.get(group) == "train" for group in groups):
        sides[free.pop()] = "train"
    if free and not test_cases:
        first = min(free, key=lambda group: max(0.0, counts[group] - target_cases))
        free.remove(first)
        sides[first], test_cases = "test", counts[first]
    for group in free:
        if test_cases >= target_cases:
            break
        if test_cases + counts[group] <= target_cases + max(0.5, 0.1 * target_cases):
            sides[group] = "test"
            test_cases += counts[group]


def name_fifths(values: Sequence[float]) -> list[str]:
    """The fifth of all numbers that each lies in; equal numbers lie in the same."""
    ordered = sorted(values)
    return [f"fifth {min(4, 5 * bisect_left(ordered, value) // len(ordered))}" for value in values]
