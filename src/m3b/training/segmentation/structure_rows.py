"""Whether classes are numbered structures in a row (vertebrae, discs, ribs of a side) that their place does not tell apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

LEAST = 6
"""Classes of a row; of fewer each is learnt well enough by itself."""
CASES = 4
"""With two classes or more, from which on a row is looked for."""
AGREED = 0.97
"""Share of the cases in which two structures lie in the same order."""
ANYWHERE = 0.5
"""Pitches by which the place of a class varies between cases, so that it does not tell which class it is."""
STRAIGHT = 0.5
"""Share of the way to the next structure that goes along the axis."""
ALIKE = 3.0
"""Times that a structure may be as large as the next (median of the neighbours)."""
GENTLE = 0.2
"""Part of the usual changes of size and brightness: neighbours in a row differ by a few percent, and by that they are told."""
COARSE = 2_000_000
"""Voxels of a mask beyond which only every n-th is looked at for its centre."""

Centres = Sequence[Mapping[int, np.ndarray]]
Sides = Mapping[tuple[int, int], int | None]


def centre_of(mask: np.ndarray, spacing: Sequence[float] | None) -> np.ndarray | None:
    """(dims,) mean place of what a boolean mask marks, in mm from the first voxel (pixels without spacing); None: nothing."""
    step = max(1, int(np.ceil((mask.size / COARSE) ** (1 / mask.ndim))))
    found = np.argwhere(mask[(slice(None, None, step),) * mask.ndim]) * step
    if step > 1 and not len(found):
        found = np.argwhere(mask)
    return None if not len(found) else found.mean(axis=0) * np.array(spacing or [1.0] * mask.ndim)


def centres_of(images: Sequence[Mapping[str, Any]], known: bool) -> list[dict[int, np.ndarray]]:
    """Of each image what of its classes lies where; images without a spacing are left out where the others have one."""
    some = [item["centres"] for item in images if bool(item["spacing"]) or not known]
    return [{place: centre for place, centre in enumerate(case) if centre is not None} for case in some]


def find_chains(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows among the classes: {"classes" by place along the axis, "numbers" of each, "axis" of the array, "pitch": mm (or
    pixels) along it from one to the next, "closest": pitches between close neighbours, "follows": [first, second, in how many
    masks], "varies": pitches by which places vary}.

    A row is a run of classes by their label numbers that lie in this order along an axis in every case. A class that is often
    missing and lies between two of them where it is there (a thirteenth thoracic vertebra) has a number between theirs.
    """
    centres: Centres = facts["centres"]
    left, chains = list(range(len(facts["classes"]))), []
    while not facts["overlap"] and facts["labels"] and sum(len(case) > 1 for case in centres) >= CASES:
        rows = [row for axis in range(int(facts["dims"])) if (row := _row(facts, centres, left, axis))]
        if not rows:
            break
        best = max(rows, key=lambda row: len(row["classes"]))
        left = [place for place in left if facts["classes"][place] not in best["classes"]]
        chains.append(best)
    return chains


def gentler(augment: Mapping[str, Any], chains: Sequence[Any]) -> dict[str, Any]:
    """`augment` with a fraction of those changes that make one number of a row into another: of size and of brightness."""
    less = {key: round(float(augment[key]) * GENTLE, 4) for key in ("zoom", "contrast", "brightness", "gamma")}
    return {**augment, **(less if chains else {})}


def told(chains: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a row: why its classes are told apart by order."""
    return [
        f"{len(chain['classes'])} classes ({chain['classes'][0]} to {chain['classes'][-1]}) lie in a row along "
        f"{'hwd'[chain['axis']]}, one every {chain['pitch']:.0f}; where one lies varies by {chain['varies']:.1f} of that between "
        "cases and does not tell which it is: they are learnt as one structure with a number, and told apart by their order"
        for chain in chains
    ]


def check(plan: Mapping[str, Any]) -> None:
    """Ends the program where rows contradict other settings."""
    axes = {"hwd"[int(row["axis"])] for row in plan.get("chains") or []}
    names = [name for row in plan.get("chains") or [] for name in row["classes"]]
    if not axes:
        return
    if plan["engine"] == "nnunet" or plan["overlap"] or plan["side"]:
        raise SystemExit(
            "chains in plan.json: the trainer engine alone has them, of classes in one mask at a spacing: chains=[]"
        )
    if len(set(names)) < len(names) or not set(names) <= set(plan["classes"]):
        raise SystemExit("chains in plan.json: each of their classes is one of `classes`, once")
    mirrored = axes & {
        *(plan["augment"].get("flip") or []),
        *([] if plan["mirror"] == "auto" else plan["mirror"] or []),
    }
    if mirrored:
        raise SystemExit(
            f"plan.json mirrors along {mirrored.pop()!r}, along which classes are told apart by order: leave it out, or set "
            "chains=[]"
        )


def _row(facts: Mapping[str, Any], centres: Centres, left: Sequence[int], axis: int) -> dict[str, Any]:
    """The longest row along an axis, or nothing."""
    sides = {(a, b): _side(centres, a, b, axis) for a in left for b in left if a != b}
    values = [int(facts["labels"][name]) for name in facts["classes"]]
    run = max(_runs(left, sides, values), key=len, default=[])
    seen = [place for place in run if any(place in case for case in centres)]
    if len(seen) < LEAST:
        return {}
    numbers = {place: float(number) for number, place in enumerate(run, start=1)}
    for place in left:
        _insert(place, numbers, sides, centres)
    places = sorted(numbers, key=lambda place: numbers[place])
    apart = np.array([case[b] - case[a] for case in centres for a, b in pairwise(run) if a in case and b in case])
    along, far = np.abs(apart[:, axis]), np.linalg.norm(apart, axis=1)
    pitch = max(float(np.median(along)), 1e-6)
    varies = _varies(centres, seen, axis) / pitch
    if varies < ANYWHERE or np.median(along / np.maximum(far, 1e-6)) < STRAIGHT or not _alike(facts, seen):
        return {}
    if np.median(apart[:, axis]) < 0:
        places.reverse()
    return {
        "classes": [facts["classes"][place] for place in places],
        "numbers": [numbers[place] for place in places],
        "axis": axis,
        "pitch": round(pitch, 3),
        "closest": round(float(np.clip(np.percentile(along, 5) / pitch, 0.3, 1.0)), 3),
        "follows": _follows(centres, places),
        "varies": round(varies, 2),
    }


def _side(centres: Centres, first: int, second: int, axis: int) -> int | None:
    """1 where the second lies further along the axis than the first in (nearly) all cases, -1 where less far, 0 where that
    varies; None where no case has both."""
    ways = [case[second][axis] > case[first][axis] for case in centres if first in case and second in case]
    if not ways:
        return None
    share = float(np.mean(ways))
    return 1 if share >= AGREED else -1 if share <= 1 - AGREED else 0


def _runs(left: Sequence[int], sides: Sides, values: Sequence[int]) -> list[list[int]]:
    """The classes by their label numbers, cut where the order along the axis breaks. One that is never seen together with a
    class of the run belongs to it where its label number is the next."""
    runs: list[list[int]] = []
    for place in left:
        run = runs[-1] if runs else []
        known = {side for member in run if (side := sides[member, place]) is not None}
        way = {side for a, b in pairwise(run) if (side := sides[a, b]) is not None}
        fits = len(known | way) == 1 and known | way != {0} if known else values[place] == values[place - 1] + 1
        if run and fits:
            run.append(place)
        else:
            runs.append([place])
    return runs


def _insert(place: int, numbers: dict[int, float], sides: Sides, centres: Centres) -> None:
    """Gives a class that is rare, and lies between two of the row where it is there, a number between theirs."""
    if place in numbers or not any(place in case for case in centres):
        return
    members = sorted(numbers, key=lambda member: numbers[member])
    known = [(member, sides[member, place]) for member in members if sides[member, place] is not None]
    way = next((s for a, b in pairwise(members) if (s := sides[a, b]) is not None), 0)
    before = [member for member, side in known if side == way]
    after = [member for member, side in known if side == -way]
    if not before or not after or [m for m, _ in known] != before + after:
        return
    both = [case for case in centres if before[-1] in case and after[0] in case]
    if both and np.mean([place in case for case in both]) < 0.5:
        numbers[place] = (numbers[before[-1]] + numbers[after[0]]) / 2


def _varies(centres: Centres, seen: Sequence[int], axis: int) -> float:
    """Median standard deviation of the classes' places along the axis."""
    places = [[case[place][axis] for case in centres if place in case] for place in seen]
    return float(np.median([np.std(found) for found in places if len(found) > 1] or [0.0]))


def _alike(facts: Mapping[str, Any], seen: Sequence[int]) -> bool:
    """Whether neighbours are about as large."""
    sizes = [np.median([n for n in facts["sizes"][facts["classes"][place]] if n] or [0]) for place in seen]
    ratios = [max(a, b) / min(a, b) for a, b in pairwise(sizes) if a and b]
    return bool(ratios) and float(np.median(ratios)) <= ALIKE


def _follows(centres: Centres, places: Sequence[int]) -> list[list[int]]:
    """[first, second, in how many masks]: which place of the row is the next one seen after which."""
    counts = Counter(
        pair for case in centres for pair in pairwise(order for order, place in enumerate(places) if place in case)
    )
    return [[first, second, often] for (first, second), often in sorted(counts.items())]
