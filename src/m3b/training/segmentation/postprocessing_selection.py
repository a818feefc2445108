"""What the validation cases choose of a trained network: test-time augmentation, and what is done to each class's mask.

Whoever chooses the best of several on some cases, and reports it on the same, flatters himself. So the figures are
cross-fitted: the cases of one half are scored as the other half chose. What is delivered is chosen by all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m3b.training.segmentation.mask_cleaning import WAYS, changed
from m3b.training.segmentation.scoring import decide, dice_pair, run_whole
from m3b.training.segmentation.sliding_window import SHIFTS

ENOUGH = 10
"""Cases with a class on which a choice is made for it."""
SLOWEST = 20.0
"""Seconds that a mirrored or shifted prediction of a case may take."""


@dataclass(frozen=True)
class View:
    """Test-time augmentation: predictions of the image mirrored along `axes`, and `shifted` by some voxels, are averaged."""

    axes: tuple[str, ...] = ()
    shifted: bool = False

    @property
    def cost(self) -> int:
        """Predictions that are averaged."""
        return int(2 ** len(self.axes) * (len(SHIFTS) if self.shifted else 1))

    def of(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """The plan that predicts so."""
        return {**plan, "mirror": list(self.axes), "shifted": self.shifted}


def views(plan: Mapping[str, Any]) -> list[View]:
    """The plan's own view, and those that are left to the validation: mirrored as in training, and shifted. Rows of structures
    have fields besides chances, which are not averaged over shifts."""
    own = View(() if plan.get("mirror") in (None, "auto") else tuple(plan["mirror"]), plan.get("shifted") is True)
    flips = tuple(map(str, plan["augment"].get("flip") or [])) if plan.get("mirror") == "auto" else ()
    found = [own, *([View(flips, own.shifted)] if flips else [])]
    return [*found, View(own.axes, True)] if plan.get("shifted") == "auto" and not plan.get("chains") else found


@dataclass(frozen=True)
class Looked:
    """Dice of each case, view of `views`, way of `WAYS` (4) and class; NaN where it was not measured."""

    table: np.ndarray
    empty: np.ndarray
    """(N,) cases in which nothing is marked, rightly so."""
    seconds: float
    """What one plain prediction takes."""


def look(model: torch.nn.Module, cases: Any, plan: Mapping[str, Any], device: Any, limit: float) -> Looked:
    """Every case once, and as many in each other view as `limit` seconds allow (a random order, so that any part is a fair one)."""
    own, *others = views(plan)
    table = np.full((len(cases), 1 + len(others), len(WAYS), len(plan["classes"])), np.nan)
    empty, plain = np.zeros(len(cases), bool), []
    for row in range(len(cases)):
        item, begun = cases[row], time.monotonic()
        found = _decided(model, item, own.of(plan), device)
        plain.append(time.monotonic() - begun)
        truth = item["labels"].numpy()
        empty[row] = not truth.any()
        table[row, 0] = _ways(found, truth, plan)
    for place, view in enumerate(others, start=1):
        each, start = view.cost / own.cost * float(np.median(plain)), time.monotonic()
        if each > SLOWEST or limit < ENOUGH * each:
            continue
        for row in np.random.default_rng(0).permutation(len(cases)):
            if time.monotonic() - start > limit:
                break
            item = cases[int(row)]
            table[row, place] = _ways(_decided(model, item, view.of(plan), device), item["labels"].numpy(), plan)
    return Looked(table, empty, float(np.median(plain)))


def joined(parts: Sequence[Looked]) -> Looked:
    """The cases of several networks, each as its own network has it, one after the other."""
    table, empty = np.concatenate([part.table for part in parts]), np.concatenate([part.empty for part in parts])
    return Looked(table, empty, float(np.median([part.seconds for part in parts])))


def _decided(model: torch.nn.Module, item: Mapping[str, Any], plan: Mapping[str, Any], device: Any) -> Any:
    return decide(run_whole(model, item["pixel_values"], plan, device), bool(plan["overlap"]))


def _ways(found: np.ndarray, truth: np.ndarray, plan: Mapping[str, Any]) -> np.ndarray:
    """(4, K) Dice of each class by itself."""
    result = np.zeros((len(WAYS), len(plan["classes"])))
    for place in range(len(plan["classes"])):
        own, wanted = (part[place] > 0 if plan["overlap"] else part == place + 1 for part in (found, truth))
        taken = None if plan["overlap"] else (found > 0) & ~own
        for row, ways in enumerate(WAYS):
            result[row, place] = dice_pair(changed(own, ways, taken), wanted)
    return result


@dataclass(frozen=True)
class Choice:
    """The place of a view among `views`, and the row of `WAYS` of each class."""

    view: int
    ways: tuple[int, ...]

    def of(self, table: np.ndarray) -> np.ndarray:
        """(N, K) Dice; a case that was not looked at in this view counts as it was."""
        columns = [table[:, self.view, way, place] for place, way in enumerate(self.ways)]
        plain = [table[:, 0, way, place] for place, way in enumerate(self.ways)]
        seen = ~np.isnan(table[:, self.view]).all(axis=(1, 2))
        return np.where(seen[:, None], np.stack(columns, 1), np.stack(plain, 1))


def choose(table: np.ndarray) -> Choice:
    """What raises the Dice by more than its standard error over the cases; all else stays as the network has it."""
    views = [_gain(table[:, 0, 0], table[:, view, 0]) for view in range(table.shape[1])]
    view = int(np.argmax(views)) if max(views) > 0 else 0
    part = table[~np.isnan(table[:, view]).all(axis=(1, 2)), view]
    ways = []
    for place in range(table.shape[3]):
        gains = [_gain(part[:, 0, place, None], part[:, way, place, None]) for way in range(len(WAYS))]
        ways.append(int(np.argmax(gains)) if max(gains) > 0 else 0)
    return Choice(view, tuple(ways))


def _gain(before: np.ndarray, after: np.ndarray) -> float:
    """Mean gain a case, of (N, K) Dice averaged over the classes, less its standard error; below 0 where too few tell."""
    change = after - before
    told = ~np.isnan(change).all(axis=1)
    if told.sum() < ENOUGH:
        return -1.0
    each = np.nanmean(change[told], axis=1)
    return float(each.mean() - each.std(ddof=1) / np.sqrt(len(each)))


def cross_fitted(table: np.ndarray, patients: Sequence[str]) -> np.ndarray:
    """(N, K) Dice, each half of the patients as the other half chose."""
    names = {name: place for place, name in enumerate(dict.fromkeys(patients))}
    half = np.random.default_rng(0).permutation(len(names))[[names[name] for name in patients]] % 2
    result = np.full((len(table), table.shape[3]), np.nan)
    for side in (0, 1):
        result[half == side] = choose(table[half != side]).of(table[half == side])
    return result


def settle(plan: dict[str, Any], looked: Looked, patients: Sequence[str]) -> np.ndarray:
    """Puts `mirror`, `shifted` and `refine` into the plan as all cases choose them; the cross-fitted (N, K) Dice."""
    chosen = choose(looked.table)
    fixed = dict(plan.get("refine") or {})
    if fixed:  # what the plan names is not chosen
        named = [fixed.get(name) or [] for name in plan["classes"]]
        ways = [WAYS.index(tuple(way for way in WAYS[-1] if way in own)) for own in named]
        chosen = Choice(chosen.view, tuple(ways))
    plan |= views(plan)[chosen.view].of({})
    plan["refine"] = {name: list(WAYS[way]) for name, way in zip(plan["classes"], chosen.ways, strict=True) if way}
    fair = chosen.of(looked.table) if fixed else cross_fitted(looked.table, patients)
    return fair


def told(plan: Mapping[str, Any]) -> str:
    """What was chosen, for people."""
    done = [f"{name}: {' and '.join(ways)}" for name, ways in plan["refine"].items()]
    mirror = f"mirrored along {', '.join(plan['mirror'])} and averaged" if plan["mirror"] else "not mirrored"
    shifts = f"averaged over {len(SHIFTS)} shifts of the image" if plan["shifted"] else "not shifted"
    return f"chosen on the validation cases: predictions {mirror}, {shifts}; masks {', '.join(done) or 'as the network has them'}"
