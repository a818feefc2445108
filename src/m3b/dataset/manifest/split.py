"""A drawn split: groups of cases that stay together, and which of them are for testing, stratified by class."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

WITHOUT_CLASS = "(none)"
"""The stratum of a case without any class."""
MIN_TEST_GROUPS = 5
"""Groups of a class for testing if three times as many are there: a verdict needs five patients (`m3b.metrics.verdict`)."""


@dataclass(frozen=True)
class SplitUnit:
    """What the drawing of a split needs to know of a case.

    Args:
        group: cases of the same group stay together.
        classes: those of the case; none is a stratum of its own.
    """

    group: str
    classes: tuple[str, ...]


def group_cases(keys: Sequence[Sequence[str]]) -> list[str]:
    """One group a case, the same for cases that share any of their keys, also by way of a third case.

    Args:
        keys: of each case, such as its patient and what it is a copy of; empty texts join nothing.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for place, own_keys in enumerate(keys):
        case = root(f"case {place:09d}")
        for number, key in enumerate(own_keys):
            if key:
                low, high = sorted((case, root(f"key {number} {key}")))
                parent[high] = case = low
    return [root(f"case {place:09d}") for place in range(len(keys))]


def draw_test_groups(units: Sequence[SplitUnit], share: float, seed: int) -> set[str]:
    """The groups for testing, about `share` of the cases.

    Classes go from the one that fewest groups have to the one that most have; of each, groups are drawn at random until it has
    its share, large ones only if they fit. Of every class that two groups or more have, one stays for training and one goes to
    testing, as far as groups with several classes allow; of a class that `3 * MIN_TEST_GROUPS` groups or more have,
    `MIN_TEST_GROUPS` go there. Otherwise never more than the share plus one case.
    """
    members: dict[str, list[SplitUnit]] = defaultdict(list)
    for unit in units:
        members[unit.group].append(unit)
    order = sorted(members)
    random.Random(seed).shuffle(order)
    counts = {
        name: Counter(label for unit in members[name] for label in unit.classes or (WITHOUT_CLASS,)) for name in order
    }
    groups_of: dict[str, list[str]] = defaultdict(list)
    for name in order:
        for label in counts[name]:
            groups_of[label].append(name)
    sides: dict[str, str] = {}
    for label in sorted(groups_of, key=lambda label: (len(groups_of[label]), label)):
        _share_out(label, groups_of[label], counts, share, sides)
    return {name for name in members if sides.get(name) == "test"}


def _share_out(
    label: str, groups: list[str], counts: dict[str, Counter[str]], share: float, sides: dict[str, str]
) -> None:
    """Send some of one class's groups to testing, and bind one to training."""
    if len(groups) < 2:
        for name in groups:
            sides.setdefault(name, "train")
        return
    total = sum(counts[name][label] for name in groups)
    min_cases = MIN_TEST_GROUPS * total / len(groups) if len(groups) >= 3 * MIN_TEST_GROUPS else 1.0
    target_cases = max(1.0, min_cases, share * total)
    test_cases = sum(counts[name][label] for name in groups if sides.get(name) == "test")
    free = [name for name in groups if name not in sides]
    if free and not any(sides.get(name) == "train" for name in groups):
        sides[free.pop()] = "train"
    if free and not test_cases:
        first = min(free, key=lambda name: max(0.0, counts[name][label] - target_cases))
        free.remove(first)
        sides[first], test_cases = "test", counts[first][label]
    for name in free:
        if test_cases >= target_cases:
            break
        if test_cases + counts[name][label] <= target_cases + max(0.5, 0.1 * target_cases):
            sides[name] = "test"
            test_cases += counts[name][label]


def name_fifths(values: Sequence[float]) -> list[str]:
    """The fifth of all numbers that each lies in; equal numbers lie in the same."""
    ordered = sorted(values)
    return [f"fifth {min(4, 5 * bisect_left(ordered, value) // len(ordered))}" for value in values]
