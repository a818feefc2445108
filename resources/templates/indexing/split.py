"""Splitting cases into train and test: whole patients to one side, labels in proportion."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from folder_layouts import Case


def split_cases(cases: list[Case], share: float, seed: int, *, capped: bool = False) -> tuple[list[Case], list[Case]]:
    """Split by patient, stratified by label, so that test has about `share` of the cases.

    Args:
        capped: never more than that share, even if a rare label has no case in test then (for many classes an image).

    Labels go from the one with fewest patients to the one with most; of each, patients are drawn at random into test
    until it has its share, large ones only where they fit. Of every label with two patients or more, one stays in
    train and one goes to test, as far as patients with several labels allow.
    """
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.patient].append(case)
    order = sorted(groups)
    random.Random(seed).shuffle(order)
    held = {name: Counter(value for case in groups[name] for value in strata(case)) for name in order}
    patients: dict[str, list[str]] = defaultdict(list)
    for name in order:
        for value in held[name]:
            patients[value].append(name)
    side: dict[str, str] = {}
    most = max(1.0, share * len(cases) + 0.5)
    for value in sorted(patients, key=lambda v: (len(patients[v]), v)):
        taken = sum(len(groups[name]) for name, where in side.items() if where == "test")
        if not capped or taken + 1 <= most:
            _share_out(value, patients[value], held, share, side)
    test = {name for name in groups if side.get(name) == "test"}
    return [c for c in cases if c.patient not in test], [c for c in cases if c.patient in test]


def _share_out(value: str, mine: list[str], held: dict[str, Counter[str]], share: float, side: dict[str, str]) -> None:
    """Send some of one label's patients to test and bind one to train; those left over are free for later labels."""
    if len(mine) < 2:
        for name in mine:
            side.setdefault(name, "train")
        return
    total = sum(held[name][value] for name in mine)
    wanted = max(1.0, share * total)
    taken = sum(held[name][value] for name in mine if side.get(name) == "test")
    free = [name for name in mine if name not in side]
    if free and not any(side.get(name) == "train" for name in mine):
        keep = free.pop()  # the last of a random order
        side[keep] = "train"
    if free and not taken:
        first = min(free, key=lambda name: max(0.0, held[name][value] - wanted))
        free.remove(first)
        side[first] = "test"
        taken = held[first][value]
    for name in free:
        if taken >= wanted:
            break
        if taken + held[name][value] <= wanted + max(0.5, 0.1 * wanted):
            side[name] = "test"
            taken += held[name][value]


def strata(case: Case) -> list[str]:
    """What a case counts for: its labels, or having none."""
    return case.values or ["(none)"]


def limit(cases: list[Case], most: int, balanced: bool, seed: int) -> list[Case]:
    """At most `most` cases, chosen at random but with two of each label; `balanced`: as many of each label."""
    if not balanced and (not most or len(cases) <= most):
        return cases
    order = list(range(len(cases)))
    random.Random(seed + 1).shuffle(order)
    by_label: dict[str, list[int]] = defaultdict(list)
    for at in order:
        for value in strata(cases[at]):
            by_label[value].append(at)
    if not balanced:
        first = list(dict.fromkeys(at for members in by_label.values() for at in members[:2]))
        return [cases[at] for at in sorted(list(dict.fromkeys([*first, *order]))[:most])]
    each = min((len(members) for members in by_label.values()), default=0)
    if most:
        each = min(each, max(1, most // len(by_label)))
    return [cases[at] for at in sorted({at for members in by_label.values() for at in members[:each]})]
