"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, curves.png, fold<k>/best.safetensors (model0 of nnU-Net).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from m3b.training.distributed import is_main, main_first
from m3b.training.entry import guarded, refuse_distributed
from m3b.training.folds import ALL, TimeShares, count, done_of, note_members, refit_steps
from m3b.training.launch import parse_call, processes_here, train_folds_in_parallel
from m3b.training.recipe import get_recipe
from m3b.training.segmentation.results import finish, some


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    call = parse_call(__doc__, argv, train_beside)
    if isinstance(call, int):
        return call
    plan, seconds = call[0], 60 * call[1]
    if plan["engine"] == "nnunet":
        from m3b.training.segmentation.nnunet import train_nnunet

        refuse_distributed("nnunet")
        return guarded(lambda: train_nnunet(plan, seconds, finish))
    return guarded(lambda: train(plan, seconds))


@dataclass
class Asked:
    """A trained network and the validation cases that it has not seen.

    Args:
        name: its folder in Logout.
        cases: whole validation cases.
        mean: the mean shape of its training masks, and `blind`, the (N, K) Dice of that on the cases.
        looked: what it says of the cases.
    """

    name: str
    cases: Any
    mean: np.ndarray
    blind: np.ndarray
    looked: Any = None


def train(plan: dict[str, Any], seconds: float) -> None:
    """The trainer engine, from the cache to the figures."""
    from m3b.training.loop import train_by_clock
    from m3b.training.pretrained.trial import settle_start, trial_seconds
    from m3b.training.segmentation.dataset import every_case
    from m3b.training.segmentation.plan_cost import final_seconds, other_costs

    def trial(side: dict[str, Any], name: str, share: float) -> dict[str, Any]:
        with main_first():
            make = maker(*get_recipe().build_datasets(side))
        return train_by_clock(side, name, make, seconds=share, watch="dice", shrink=shrink)

    plan = settle_start(plan, seconds, "dice", trial)
    seconds -= trial_seconds()
    turns: TimeShares | None = None
    members: list[Asked] = []
    for fold in range(count(plan)):
        with main_first():
            train_set, valid_set = get_recipe().build_datasets(plan, fold)
        if turns is None:
            held = count(plan) * len(valid_set)
            end = final_seconds(_case_seconds(plan, valid_set), held, seconds, other_costs(plan))
            turns = TimeShares(plan, seconds - end, processes_here(plan))
            train_folds_in_parallel(plan, turns)
        one = begun(plan, fold, train_set, valid_set)
        make, left = maker(train_set, valid_set), turns.of(one.name)
        train_by_clock(plan, one.name, make, seconds=left, watch="dice", shrink=shrink)
        one.looked = looked_at(plan, one, seconds / count(plan)) if is_main() else None
        members.append(one)
    if plan.get("refit") and turns:
        whole, steps = every_case(plan), refit_steps(plan)
        print(f"refit: all {len(set(whole.rows))} training cases, {steps} steps as the folds had", flush=True)
        make, left = maker(whole, None), turns.of(ALL)
        train_by_clock(plan, ALL, make, seconds=left, watch="dice", shrink=shrink, steps=steps)
    if not is_main():
        return
    table, extra = settle_all(plan, members)
    note_members(plan)
    finish(plan, table, [one.cases.records for one in members], [done_of(one.name) for one in members], extra)


def train_beside(plan: dict[str, Any], fold: int, seconds: float) -> None:
    """One fold, while others are trained beside it."""
    from m3b.training.loop import train_by_clock

    make = maker(*get_recipe().build_datasets(plan, fold))
    train_by_clock(plan, f"fold{fold}", make, seconds=seconds, watch="dice", shrink=shrink)


def begun(plan: dict[str, Any], fold: int, train_set: Any, valid_set: Any) -> Asked:
    """The fold's cases, and what its mean shape is worth."""
    from m3b.training.segmentation.mean_shape import blind_table, mean_shape
    from m3b.training.segmentation.scoring import mean_dice

    volumes = train_set.volumes
    masks, truths = ([volumes.mask(int(row)) for row in part.rows] for part in (train_set, valid_set))
    mean = mean_shape(masks, plan)
    blind = blind_table(mean, truths, plan)
    print(
        f"{len(set(train_set.rows))} training cases, {len(valid_set)} validation cases; the mean shape of the training masks, "
        f"which looks at no image, has a validation Dice of {mean_dice(blind):.3f}",
        flush=True,
    )
    return Asked(f"fold{fold}", valid_set, mean, blind)


def looked_at(plan: dict[str, Any], one: Asked, seconds: float) -> Any:
    """What the network says of its cases; in other views as far as their share of `seconds` goes."""
    from m3b.training.loop import load_best
    from m3b.training.precision import device_of
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.plan_cost import TRIED
    from m3b.training.segmentation.postprocessing_selection import look

    model = load_best(build_model(plan), one.name, device_of(plan))
    return look(model, one.cases, plan, device_of(plan), TRIED * seconds)


def maker(train_set: Any, valid_set: Any) -> Callable[[dict[str, Any]], Any]:
    """Builds the parts of a training from a plan, which may have been made smaller; without `valid_set` nothing is scored."""
    from m3b.training.augment_masks import AugmentMasks, collate_cuts
    from m3b.training.loop import MIN_CASES_FOR_BEST, TrainingParts
    from m3b.training.pretrained.tensors import groups
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.plan_cost import SCORED
    from m3b.training.segmentation.scoring import dice_table, mean_dice, subset

    rows = subset(valid_set, SCORED) if valid_set else []

    def make(now: dict[str, Any]) -> TrainingParts:
        augment = AugmentMasks(now["augment"])

        def prepare(batch: dict[str, Any]) -> dict[str, Any]:
            image, mask = augment.pair(batch["pixel_values"], batch["labels"], batch["move"], now["patch"])
            return {"pixel_values": image, "labels": mask}

        def scorer(model: torch.nn.Module, device: torch.device) -> dict[str, float]:
            table = dice_table(model, valid_set, rows, now, device)
            columns = zip(now["classes"], table.T, strict=True)
            each = {f"dice_{name}": float(np.nanmean(column)) for name, column in columns if some(column)}
            return {"dice": mean_dice(table), **(each if len(each) > 1 else {})}

        train_set.resize(now["patch"], augment)
        model, last = (
            build_model(now),
            now.get("keep") != "best" or not valid_set or len(valid_set) < MIN_CASES_FOR_BEST,
        )
        judge = scorer if valid_set else None
        return TrainingParts(model, train_set, judge, prepare, collate_cuts, groups=groups(model, now), keep_last=last)

    return make


def settle_all(plan: dict[str, Any], members: Sequence[Asked]) -> tuple[np.ndarray, dict[str, Any]]:
    """What all validation cases choose goes into the plan; (N, K) Dice, each case by the network that has not seen it, and
    other figures."""
    from m3b.training.loop import load_best
    from m3b.training.precision import device_of
    from m3b.training.segmentation import surfaces
    from m3b.training.segmentation.dataset import patient_of
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.postprocessing_selection import joined, settle, told
    from m3b.training.segmentation.scoring import mean_dice

    device = device_of(plan)
    looked = joined([one.looked for one in members])
    table = settle(plan, looked, [patient_of(record) for one in members for record in one.cases.records])
    rows = []
    for one in members:
        model = load_best(build_model(plan), one.name, device)
        most = max(1, surfaces.MOST // len(members))
        rows.append(surfaces.border_rows(model, one.cases, plan, device, one.mean, most))
    borders, blind = surfaces.averaged(np.concatenate(rows)), mean_dice(np.concatenate([one.blind for one in members]))
    print(f"{told(plan)}\n{surfaces.told(borders, plan)}", flush=True)
    marks = {"empty": int(looked.empty.sum()), "falsely_marked": _false(table, looked.empty)}
    return table, {"mean_shape_dice": round(blind, 4), **borders, **marks}


def _false(table: np.ndarray, empty: np.ndarray) -> int:
    """Cases in which nothing is to be marked and something is."""
    return int(np.isfinite(table[empty]).any(axis=1).sum()) if empty.any() else 0


def _case_seconds(plan: dict[str, Any], cases: Any) -> float:
    """Seconds that predicting a validation case takes, guessed from one of them."""
    from m3b.training.precision import device_of
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.scoring import run_whole

    device = device_of(plan)
    model = build_model(plan).to(device).eval()
    taken = []
    with torch.no_grad():
        for _ in range(2):  # the first one warms up
            start = time.monotonic()
            run_whole(model, cases[0]["pixel_values"], plan, device)
            taken.append(time.monotonic() - start)
    return min(taken)


def shrink(plan: dict[str, Any]) -> bool:
    """Out of memory with one patch a step: smaller patches, down to what the network divides them by, twice."""
    from m3b.training.segmentation.sliding_window import steps_of

    steps = steps_of(plan)
    smaller = [max(2 * step, int(size * 0.75) // step * step) for size, step in zip(plan["patch"], steps, strict=True)]
    if smaller == list(plan["patch"]) or math.prod(smaller) >= math.prod(plan["patch"]):
        return False
    plan["patch"] = smaller
    return True
