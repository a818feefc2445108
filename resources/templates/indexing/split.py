"""Splitting cases into train and test: whole patients to one side, labels in proportion."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from layouts import Case


def split_cases(cases: list[Case], share: float, seed: int) -> tuple[list[Case], list[Case]]:
    """Split by patient, stratified by label, so that test has `share` of the cases.

    Patients go in random order, those with rare labels first, each to the side that lacks most of its labels. Test
    takes small and large patients alike, so that it holds many patients, not a few large ones.
    """
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.patient].append(case)
    total = Counter(value for case in cases for value in _strata(case))
    wanted = {value: max(1.0, share * count) for value, count in total.items()}
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    names.sort(key=lambda name: min(total[v] for case in groups[name] for v in _strata(case)))
    test: list[Case] = []
    taken: Counter[str] = Counter()
    for value in sorted(total, key=lambda v: total[v]):
        mine = [name for name in names if any(value in _strata(case) for case in groups[name])]
        for place, name in enumerate(mine):
            if taken[value] >= wanted[value]:
                break
            gain = Counter(v for case in groups[name] for v in _strata(case))
            overshoot = max(taken[v] + n - wanted[v] for v, n in gain.items())
            left = len(mine) - place - 1
            if overshoot > max(1.0, 0.15 * wanted[value]) and left > 0:
                continue  # too large a patient for what is still missing
            if left == 0 and taken[value] == 0 and len(mine) == 1:
                continue  # the only patient of a class belongs to train
            test += groups[name]
            taken += gain
            names.remove(name)
    chosen = {id(case) for case in test}
    return [case for case in cases if id(case) not in chosen], test


def _strata(case: Case) -> list[str]:
    return case.values or ["(none)"]


def limit(cases: list[Case], most: int, balanced: bool, seed: int) -> list[Case]:
    """At most `most` cases, chosen at random; with `balanced`, the same number of each label as far as there are."""
    if not balanced and (not most or len(cases) <= most):
        return cases
    order = list(range(len(cases)))
    random.Random(seed + 1).shuffle(order)
    if not balanced:
        return [cases[at] for at in sorted(order[:most])]
    by_label: dict[str, list[int]] = defaultdict(list)
    for at in order:
        by_label["|".join(_strata(cases[at]))].append(at)
    each = min(len(members) for members in by_label.values())
    if most:
        each = min(each, max(1, most // len(by_label)))
    return [cases[at] for at in sorted(at for members in by_label.values() for at in members[:each])]
