"""Choice of test-time augmentation and of post-processing for each class, on the validation cases.

A choice that is evaluated on the cases it was made on is biased. Metrics are therefore cross-fitted: the cases of one half are scored
with the choice of the other half. The delivered choice uses all cases.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m3b.training.ignored_voxels import IGNORE
from m3b.training.segmentation.mask_cleaning import OPERATION_SETS
from m3b.training.segmentation.scoring import class_dice, decide_mask, finish_mask, predict_case
from m3b.training.segmentation.sliding_window import SHIFTS

MIN_CASES = 10
"""Minimum cases with a class for a choice for it."""
MAX_VIEW_SECONDS = 20.0
"""Maximum seconds of a mirrored or shifted prediction of a case."""


@dataclass(frozen=True)
class View:
    """Test-time augmentation: average of predictions of the image mirrored along `axes`, and `shifted` by some voxels."""

    axes: tuple[str, ...] = ()
    shifted: bool = False

    @property
    def cost(self) -> int:
        """Predictions that are averaged."""
        return int(2 ** len(self.axes) * (len(SHIFTS) if self.shifted else 1))

    def apply_to(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plan with this view."""
        return {**plan, "mirror": list(self.axes), "shifted": self.shifted}


def list_views(plan: Mapping[str, Any]) -> list[View]:
    """Return the plan's own view, and those that validation may choose: mirrored as in training, and shifted.

    Rows of structures have output fields that cannot be averaged over shifts.
    """
    own_view = View(() if plan.get("mirror") in (None, "auto") else tuple(plan["mirror"]), plan.get("shifted") is True)
    flips = tuple(map(str, plan["augment"].get("flip") or [])) if plan.get("mirror") == "auto" else ()
    candidates = [own_view, *([View(flips, own_view.shifted)] if flips else [])]
    can_shift = plan.get("shifted") == "auto" and not plan.get("chains")
    return [*candidates, View(own_view.axes, True)] if can_shift else candidates


@dataclass(frozen=True)
class ViewScores:
    """Dice of each case, view of `list_views`, set of `OPERATION_SETS` (4) and class; NaN if not measured."""

    table: np.ndarray
    empty: np.ndarray
    """(N,) cases whose true mask is empty."""
    seconds: float
    """Seconds of one prediction without augmentation."""


def score_views(model: torch.nn.Module, cases: Any, plan: Mapping[str, Any], device: Any, limit: float) -> ViewScores:
    """Score every case once, and as many cases in each other view as `limit` seconds allow, in random order."""
    own_view, *other_views = list_views(plan)
    table = np.full((len(cases), 1 + len(other_views), len(OPERATION_SETS), len(plan["classes"])), np.nan)
    empty, seconds = np.zeros(len(cases), bool), []
    for row in range(len(cases)):
        item, start = cases[row], time.monotonic()
        predicted = _predict_mask(model, item, own_view.apply_to(plan), device)
        seconds.append(time.monotonic() - start)
        truth = item["labels"].numpy()
        empty[row] = not truth[truth != IGNORE].any()
        table[row, 0] = _score_operations(predicted, truth, plan)
    for view_index, view in enumerate(other_views, start=1):
        view_seconds, start = view.cost / own_view.cost * float(np.median(seconds)), time.monotonic()
        if view_seconds > MAX_VIEW_SECONDS or limit < MIN_CASES * view_seconds:
            continue
        for row in np.random.default_rng(0).permutation(len(cases)):
            if time.monotonic() - start > limit:
                break
            item = cases[int(row)]
            predicted = _predict_mask(model, item, view.apply_to(plan), device)
            table[row, view_index] = _score_operations(predicted, item["labels"].numpy(), plan)
    return ViewScores(table, empty, float(np.median(seconds)))


def join_scores(parts: Sequence[ViewScores]) -> ViewScores:
    """Join the scores of the cases of several networks."""
    table, empty = np.concatenate([part.table for part in parts]), np.concatenate([part.empty for part in parts])
    return ViewScores(table, empty, float(np.median([part.seconds for part in parts])))


def _predict_mask(model: torch.nn.Module, item: Mapping[str, Any], plan: Mapping[str, Any], device: Any) -> Any:
    return decide_mask(predict_case(model, item["pixel_values"], plan, device), bool(plan["overlap"]))


def _score_operations(predicted: np.ndarray, truth: np.ndarray, plan: Mapping[str, Any]) -> np.ndarray:
    """Return (4, K) Dice of each class in the labelled voxels, after each set of operations on all classes."""
    classes = plan["classes"]
    refined_plans = [{**plan, "refine": dict.fromkeys(classes, operations)} for operations in OPERATION_SETS]
    masks = [finish_mask(predicted, truth, refined_plan) for refined_plan in refined_plans]
    return np.array([class_dice(mask, truth, len(classes), bool(plan["overlap"])) for mask in masks])


@dataclass(frozen=True)
class Choice:
    """Index of a view in `list_views`, and the row of `OPERATION_SETS` for each class."""

    view: int
    operations: tuple[int, ...]

    def select(self, table: np.ndarray) -> np.ndarray:
        """Return (N, K) Dice; a case without a score in this view keeps that of the plan's own view."""
        columns = [table[:, self.view, operation, k] for k, operation in enumerate(self.operations)]
        default_columns = [table[:, 0, operation, k] for k, operation in enumerate(self.operations)]
        is_scored = ~np.isnan(table[:, self.view]).all(axis=(1, 2))
        return np.where(is_scored[:, None], np.stack(columns, 1), np.stack(default_columns, 1))


def choose_view_and_operations(table: np.ndarray) -> Choice:
    """Return the choice that raises the Dice by more than its standard error over the cases; else the plan's own view."""
    view_gains = [_gain(table[:, 0, 0], table[:, view, 0]) for view in range(table.shape[1])]
    view = int(np.argmax(view_gains)) if max(view_gains) > 0 else 0
    scored = table[~np.isnan(table[:, view]).all(axis=(1, 2)), view]
    operations = []
    for k in range(table.shape[3]):
        gains = [_gain(scored[:, 0, k, None], scored[:, row, k, None]) for row in range(len(OPERATION_SETS))]
        operations.append(int(np.argmax(gains)) if max(gains) > 0 else 0)
    return Choice(view, tuple(operations))


def _gain(before: np.ndarray, after: np.ndarray) -> float:
    """Return the mean gain per case of (N, K) Dice averaged over classes, minus its standard error; below 0 for too few cases."""
    change = after - before
    is_scored = ~np.isnan(change).all(axis=1)
    if is_scored.sum() < MIN_CASES:
        return -1.0
    case_gains = np.nanmean(change[is_scored], axis=1)
    return float(case_gains.mean() - case_gains.std(ddof=1) / np.sqrt(len(case_gains)))


def cross_fit(table: np.ndarray, patients: Sequence[str]) -> np.ndarray:
    """Return (N, K) Dice, each half of the patients scored with the choice of the other half."""
    names = {name: place for place, name in enumerate(dict.fromkeys(patients))}
    half = np.random.default_rng(0).permutation(len(names))[[names[name] for name in patients]] % 2
    result = np.full((len(table), table.shape[3]), np.nan)
    for side in (0, 1):
        result[half == side] = choose_view_and_operations(table[half != side]).select(table[half == side])
    return result


def select_postprocessing(plan: dict[str, Any], scores: ViewScores, patients: Sequence[str]) -> np.ndarray:
    """Write `mirror`, `shifted` and `refine` of all cases' choice into the plan; return the cross-fitted (N, K) Dice."""
    choice = choose_view_and_operations(scores.table)
    fixed = dict(plan.get("refine") or {})
    if fixed:  # operations that the plan sets are not chosen
        fixed_operations = [fixed.get(name) or [] for name in plan["classes"]]
        operations = [
            OPERATION_SETS.index(tuple(way for way in OPERATION_SETS[-1] if way in names)) for names in fixed_operations
        ]
        choice = Choice(choice.view, tuple(operations))
    plan |= list_views(plan)[choice.view].apply_to({})
    plan["refine"] = {
        name: list(OPERATION_SETS[way]) for name, way in zip(plan["classes"], choice.operations, strict=True) if way
    }
    fair = choice.select(scores.table) if fixed else cross_fit(scores.table, patients)
    return fair


def describe_selection(plan: Mapping[str, Any]) -> str:
    """Return a sentence about the choice."""
    operations = [f"{name}: {' and '.join(ways)}" for name, ways in plan["refine"].items()]
    mirror = f"mirrored along {', '.join(plan['mirror'])} and averaged" if plan["mirror"] else "not mirrored"
    shifts = f"averaged over {len(SHIFTS)} shifts of the image" if plan["shifted"] else "not shifted"
    return f"chosen on the validation cases: predictions {mirror}, {shifts}; mask cleaning: {', '.join(operations) or 'none'}"
