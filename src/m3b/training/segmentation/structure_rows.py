"""Detection of classes that are numbered structures in a row (vertebrae, discs, ribs of a side) and vary in position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

MIN_ROW_CLASSES = 6
"""Minimum classes of a row; fewer are learnt well enough as separate classes."""
MIN_CASES = 4
"""Minimum cases with two or more classes to look for a row."""
MIN_ORDER_SHARE = 0.97
"""Minimum share of the cases in which two structures have the same order."""
MIN_POSITION_SPREAD = 0.5
"""Minimum standard deviation in pitches of the position of a class between cases, so that position does not determine it."""
MIN_AXIS_SHARE = 0.5
"""Minimum share of the distance to the next structure that lies along the axis."""
MAX_SIZE_RATIO = 3.0
"""Maximum ratio of the sizes of neighbouring structures (median of the neighbours)."""
AUGMENT_SHARE = 0.2
"""Factor for changes of size and brightness: neighbours in a row differ by a few percent."""
MAX_MASK_VOXELS = 2_000_000
"""Voxels of a mask above which its centre is computed from every n-th voxel."""

Centres = Sequence[Mapping[int, np.ndarray]]
PairOrders = Mapping[tuple[int, int], int | None]


def mask_centre(mask: np.ndarray, spacing: Sequence[float] | None) -> np.ndarray | None:
    """Return the (dims,) centre of a boolean mask in mm from the first voxel (pixels without spacing); None if it is empty."""
    step = max(1, int(np.ceil((mask.size / MAX_MASK_VOXELS) ** (1 / mask.ndim))))
    voxels = np.argwhere(mask[(slice(None, None, step),) * mask.ndim]) * step
    if step > 1 and not len(voxels):
        voxels = np.argwhere(mask)
    return None if not len(voxels) else voxels.mean(axis=0) * np.array(spacing or [1.0] * mask.ndim)


def collect_centres(images: Sequence[Mapping[str, Any]], has_spacing: bool) -> list[dict[int, np.ndarray]]:
    """Return class index -> centre for each image; images without spacing are left out if the others have one."""
    cases = [item["centres"] for item in images if bool(item["spacing"]) or not has_spacing]
    return [{k: centre for k, centre in enumerate(case) if centre is not None} for case in cases]


def find_chains(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows among the classes.

    Each is {"classes" in order along the axis, "numbers" of each, "axis" of the array, "pitch": mm (or pixels) between neighbours
    along it, "closest": pitches between close neighbours, "follows": [first, second, number of masks], "varies": standard deviation
    of positions in pitches}.

    A row is a run of classes by their label numbers with this order along an axis in every case. A class that is often missing and
    lies between two of them if present (a thirteenth thoracic vertebra) has a number between theirs.
    """
    centres: Centres = facts["centres"]
    remaining, chains = list(range(len(facts["classes"]))), []
    while not facts["overlap"] and facts["labels"] and sum(len(case) > 1 for case in centres) >= MIN_CASES:
        rows = [row for axis in range(int(facts["dims"])) if (row := _find_row(facts, centres, remaining, axis))]
        if not rows:
            break
        longest = max(rows, key=lambda row: len(row["classes"]))
        remaining = [k for k in remaining if facts["classes"][k] not in longest["classes"]]
        chains.append(longest)
    return chains


def reduce_augmentation(augment: Mapping[str, Any], chains: Sequence[Any]) -> dict[str, Any]:
    """Return `augment` with a fraction of the changes that make one structure of a row look like another: size and brightness."""
    reduced = {
        key: round(float(augment[key]) * AUGMENT_SHARE, 4) for key in ("zoom", "contrast", "brightness", "gamma")
    }
    return {**augment, **(reduced if chains else {})}


def describe_rows(chains: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per row: why its classes are distinguished by order."""
    return [
        f"{len(chain['classes'])} classes ({chain['classes'][0]} to {chain['classes'][-1]}) lie in a row along "
        f"{'hwd'[chain['axis']]}, one every {chain['pitch']:.0f}; positions vary by {chain['varies']:.1f} of that between cases and "
        "do not determine the class: they are learnt as one structure with a number, and distinguished by their order"
        for chain in chains
    ]


def check_rows(plan: Mapping[str, Any]) -> None:
    """End the program if rows contradict other settings."""
    axes = {"hwd"[int(row["axis"])] for row in plan.get("chains") or []}
    names = [name for row in plan.get("chains") or [] for name in row["classes"]]
    if not axes:
        return
    if plan["engine"] == "nnunet" or plan["overlap"] or plan["side"]:
        raise SystemExit(
            "chains in plan.json need engine=trainer, classes that do not overlap and a spacing (no side): set chains=[]"
        )
    if len(set(names)) < len(names) or not set(names) <= set(plan["classes"]):
        raise SystemExit("chains in plan.json: each of their classes must occur in `classes`, and in one chain only")
    mirrored = axes & {
        *(plan["augment"].get("flip") or []),
        *([] if plan["mirror"] == "auto" else plan["mirror"] or []),
    }
    if mirrored:
        raise SystemExit(
            f"plan.json mirrors along {mirrored.pop()!r}, the axis of a row of classes: remove it from augment.flip and mirror, "
            "or set chains=[]"
        )


def _find_row(facts: Mapping[str, Any], centres: Centres, remaining: Sequence[int], axis: int) -> dict[str, Any]:
    """Return the longest row along an axis, or an empty dict."""
    orders = {(a, b): _pair_order(centres, a, b, axis) for a in remaining for b in remaining if a != b}
    label_numbers = [int(facts["labels"][name]) for name in facts["classes"]]
    run = max(_split_runs(remaining, orders, label_numbers), key=len, default=[])
    present = [k for k in run if any(k in case for case in centres)]
    if len(present) < MIN_ROW_CLASSES:
        return {}
    numbers = {k: float(number) for number, k in enumerate(run, start=1)}
    for k in remaining:
        _insert_rare_class(k, numbers, orders, centres)
    places = sorted(numbers, key=lambda k: numbers[k])
    offsets = np.array([case[b] - case[a] for case in centres for a, b in pairwise(run) if a in case and b in case])
    axis_distances, distances = np.abs(offsets[:, axis]), np.linalg.norm(offsets, axis=1)
    pitch = max(float(np.median(axis_distances)), 1e-6)
    spread = _position_spread(centres, present, axis) / pitch
    if (
        spread < MIN_POSITION_SPREAD
        or np.median(axis_distances / np.maximum(distances, 1e-6)) < MIN_AXIS_SHARE
        or not _has_similar_sizes(facts, present)
    ):
        return {}
    if np.median(offsets[:, axis]) < 0:
        places.reverse()
    return {
        "classes": [facts["classes"][k] for k in places],
        "numbers": [numbers[k] for k in places],
        "axis": axis,
        "pitch": round(pitch, 3),
        "closest": round(float(np.clip(np.percentile(axis_distances, 5) / pitch, 0.3, 1.0)), 3),
        "follows": _count_transitions(centres, places),
        "varies": round(spread, 2),
    }


def _pair_order(centres: Centres, first: int, second: int, axis: int) -> int | None:
    """Return 1 if the second lies further along the axis in (nearly) all cases, -1 if less far, 0 if it varies; None: never
    together.
    """
    is_further = [case[second][axis] > case[first][axis] for case in centres if first in case and second in case]
    if not is_further:
        return None
    share = float(np.mean(is_further))
    return 1 if share >= MIN_ORDER_SHARE else -1 if share <= 1 - MIN_ORDER_SHARE else 0


def _split_runs(remaining: Sequence[int], orders: PairOrders, label_numbers: Sequence[int]) -> list[list[int]]:
    """Split the classes in order of their label numbers into runs with one order along the axis.

    A class that never occurs together with a class of the run belongs to it if its label number is the next one.
    """
    runs: list[list[int]] = []
    for k in remaining:
        run = runs[-1] if runs else []
        member_orders = {order for member in run if (order := orders[member, k]) is not None}
        run_orders = {order for a, b in pairwise(run) if (order := orders[a, b]) is not None}
        if member_orders:
            fits = len(member_orders | run_orders) == 1 and member_orders | run_orders != {0}
        else:
            fits = label_numbers[k] == label_numbers[k - 1] + 1
        if run and fits:
            run.append(k)
        else:
            runs.append([k])
    return runs


def _insert_rare_class(class_index: int, numbers: dict[int, float], orders: PairOrders, centres: Centres) -> None:
    """Give a rare class that lies between two classes of the row a number between theirs."""
    if class_index in numbers or not any(class_index in case for case in centres):
        return
    members = sorted(numbers, key=lambda member: numbers[member])
    member_orders = [
        (member, orders[member, class_index]) for member in members if orders[member, class_index] is not None
    ]
    row_order = next((s for a, b in pairwise(members) if (s := orders[a, b]) is not None), 0)
    before = [member for member, order in member_orders if order == row_order]
    after = [member for member, order in member_orders if order == -row_order]
    if not before or not after or [m for m, _ in member_orders] != before + after:
        return
    cases = [case for case in centres if before[-1] in case and after[0] in case]
    if cases and np.mean([class_index in case for case in cases]) < 0.5:
        numbers[class_index] = (numbers[before[-1]] + numbers[after[0]]) / 2


def _position_spread(centres: Centres, present: Sequence[int], axis: int) -> float:
    """Return the median standard deviation of the classes' positions along the axis."""
    positions = [[case[k][axis] for case in centres if k in case] for k in present]
    return float(np.median([np.std(values) for values in positions if len(values) > 1] or [0.0]))


def _has_similar_sizes(facts: Mapping[str, Any], present: Sequence[int]) -> bool:
    """Return whether neighbours have similar sizes."""
    sizes = [np.median([n for n in facts["sizes"][facts["classes"][k]] if n] or [0]) for k in present]
    ratios = [max(a, b) / min(a, b) for a, b in pairwise(sizes) if a and b]
    return bool(ratios) and float(np.median(ratios)) <= MAX_SIZE_RATIO


def _count_transitions(centres: Centres, row_classes: Sequence[int]) -> list[list[int]]:
    """Return [first, second, number of masks]: row indices of consecutive structures that are present."""
    counts = Counter(
        pair for case in centres for pair in pairwise(row_index for row_index, k in enumerate(row_classes) if k in case)
    )
    return [[first, second, count] for (first, second), count in sorted(counts.items())]
