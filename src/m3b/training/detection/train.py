"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, calibration.json, curves.png, fold<k>/best.safetensors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from m3b.training.augment_masks import AugmentMasks
from m3b.training.curves import draw_curves
from m3b.training.detection.augment_boxes import AugmentBoxes
from m3b.training.detection.dataset import Patches, collate, every_case
from m3b.training.detection.final_selection import Case, ask, settle
from m3b.training.detection.inference import window_count
from m3b.training.detection.network import build_model
from m3b.training.detection.plan_cost import END_SHARE, SCORED_SHARE
from m3b.training.detection.scoring import Scorer
from m3b.training.distributed import is_main, main_first
from m3b.training.entry import guarded, refuse_distributed
from m3b.training.folds import ALL, TimeShares, count, done_of, names, note_members, refit_steps, rounds
from m3b.training.launch import parse_call, processes_here, train_folds_in_parallel
from m3b.training.loop import MIN_CASES_FOR_BEST, TrainingParts, load_best, train_by_clock
from m3b.training.patients import people
from m3b.training.precision import device_of
from m3b.training.pretrained.tensors import groups
from m3b.training.pretrained.trial import settle_start, trial_seconds
from m3b.training.recipe import get_recipe

LOGOUT = Path("Logout")
WATCH = {"boxes": "map_50", "masks": "quality"}


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    call = parse_call(__doc__, argv, train_beside)
    return call if isinstance(call, int) else guarded(lambda: run(*call))


def run(plan: dict[str, Any], minutes: float) -> None:
    """Trains, then writes what is known of the kept weights."""
    if plan.get("engine", "patches") != "patches":
        from m3b.training.detection.fewshot.run import run_fewshot

        refuse_distributed(str(plan["engine"]))
        run_fewshot(plan, minutes, run)
        return

    def trial(side: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
        return train_one(side, name, *parts_of(side), seconds, SCORED_SHARE * minutes * 60)

    plan = settle_start(plan, minutes * 60, WATCH[plan["target"]], trial)
    cases = train_folds(plan, minutes - trial_seconds() / 60)
    if is_main():
        finish(plan, cases)


def parts_of(plan: dict[str, Any], fold: int = 0) -> tuple[Patches, Patches]:
    """Training and validation part; of several processes the first one fills the cache."""
    with main_first():
        return get_recipe().build_datasets(plan, fold)


def train_folds(plan: dict[str, Any], minutes: float) -> list[Case]:
    """Every network in turn, each with an equal part of the time that is left; what each fold's says of its held-out cases."""
    turns: TimeShares | None = None
    cases: list[Case] = []
    look = SCORED_SHARE * minutes * 60
    for fold in range(count(plan)):
        train, valid = parts_of(plan, fold)
        whose = people(record.get("patient") or record["image_path"] for record in valid.records)
        print(f"{len(train.records)} training cases; {len(valid)} validation cases of {whose}", flush=True)
        if turns is None:
            each = seconds_a_case(plan, valid)
            end = min(END_SHARE * minutes * 60, 1.5 * each * len(valid) * count(plan) + 2.0)
            most = max(2, int(end / max(1.5 * each, 1e-3)) // count(plan))
            turns = TimeShares(plan, max(1.0, minutes * 60 - end), processes_here(plan))
            train_folds_in_parallel(plan, turns)
        train_one(plan, f"fold{fold}", train, valid, turns.of(f"fold{fold}"), look)
        cases += asked(plan, fold, valid, most) if is_main() else []
    if plan.get("refit") and turns:
        whole, steps = every_case(plan), refit_steps(plan)
        print(f"refit: all {len(whole.records)} training cases, {steps} steps as the folds had", flush=True)
        train_one(plan, ALL, whole, None, turns.of(ALL), 0.0, steps)
    return cases


def train_one(
    plan: dict[str, Any], name: str, train: Patches, valid: Patches | None, seconds: float, look: float, steps: int = 0
) -> dict[str, Any]:
    """Leaves best.safetensors and done.json, which it returns, in Logout/<name>; a look at `valid` takes `look` seconds, without
    it there is none."""
    make = make_parts(train, valid, look)
    return train_by_clock(plan, name, make, seconds=seconds, watch=WATCH[plan["target"]], shrink=shrink, steps=steps)


def train_beside(plan: dict[str, Any], fold: int, seconds: float) -> None:
    """One fold, while others are trained beside it."""
    train_one(
        plan, f"fold{fold}", *get_recipe().build_datasets(plan, fold), seconds, SCORED_SHARE * seconds * rounds(plan)
    )


def asked(plan: dict[str, Any], fold: int, valid: Patches, most: int) -> list[Case]:
    """What the fold's network says of its validation cases, of as many as time allows."""
    device = device_of(plan)
    model = load_best(build_model(plan), f"fold{fold}", device)
    rows = Scorer(plan, valid, 0.0).rows
    rows = [*rows, *[int(row) for row in valid.rows if int(row) not in set(rows)]][:most]
    return ask(model, valid, plan, device, rows, fold)


def make_parts(train: Patches, valid: Patches | None, look: float) -> Callable[[dict[str, Any]], TrainingParts]:
    """Builds the parts of a training from a plan, which may have been made smaller."""

    def make(plan: dict[str, Any]) -> TrainingParts:
        change = AugmentBoxes(plan["augment"]) if plan["target"] == "boxes" else _pairs(plan)
        train.resize(plan["patch"], None if plan["target"] == "boxes" else AugmentMasks(plan["augment"]))
        scorer = None
        if valid is not None:
            valid.resize(plan["patch"])
            scorer = Scorer(plan, valid, max(1.0, look))
        model, last = build_model(plan), valid is not None and len(valid) < MIN_CASES_FOR_BEST
        slow = groups(model, plan)
        return TrainingParts(model, train, scorer, prepare=change, collate=collate, groups=slow, keep_last=last)

    return make


def _pairs(plan: dict[str, Any]) -> Any:
    change = AugmentMasks(plan["augment"])

    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        images, labels = change.pair(batch["pixel_values"], batch["labels"], batch["move"], plan["patch"])
        return {"pixel_values": images, "labels": labels}

    return prepare


@torch.no_grad()
def seconds_a_case(plan: dict[str, Any], valid: Patches) -> float:
    """How long one validation image takes: one window, with untrained weights, times the windows of a usual image."""
    device, patch = device_of(plan), [int(n) for n in plan["patch"]]
    model = build_model(plan).to(device).eval()
    counts = [window_count(valid.cases.image(int(row)), patch) for row in valid.rows[:5]]
    try:
        for _ in range(2):
            start = time.monotonic()
            model(pixel_values=torch.zeros(1, int(plan["channels"]), *patch, device=device))["logits"].cpu()
    except (torch.OutOfMemoryError, MemoryError, RuntimeError):
        return 1.0  # the training finds out by itself, and says so
    return (time.monotonic() - start) * float(np.median(counts)) + 0.02


def shrink(plan: dict[str, Any]) -> bool:
    """Halves the longest side of the patch, as long as the network's strides allow."""
    strides = np.prod(np.array(plan["network"].get("strides") or [[16] * plan["dims"]]), axis=0)
    smaller = [int(n // 2 // step * step) for n, step in zip(plan["patch"], strides, strict=True)]
    smaller = [n if n >= 2 * step else 0 for n, step in zip(smaller, strides, strict=True)]
    if not any(smaller):
        return False
    axis = int(np.argmax(smaller))
    plan["patch"][axis] = smaller[axis]
    return True


def finish(plan: dict[str, Any], cases: list[Case]) -> None:
    """metrics.json, valid_predictions.json, calibration.json, curves.png, from the held-out cases of all networks."""
    final = settle(plan, cases)
    figures = {name: round(value, 4) if np.isfinite(value) else None for name, value in final["figures"].items()}
    patients = len({json.dumps(row["patient"] or row["image"]) for row in final["rows"]})
    whose = people(row["patient"] or row["image"] for row in final["rows"])
    by_class = {
        metric: {name: round(value, 4) if np.isfinite(value) else None for name, value in values.items()}
        for metric, values in final["by_class"].items()
    }
    done = [done_of(name) for name in names(plan)]
    metrics = {
        "validation": {**figures, "cases": len(cases), "patients": patients},
        "by_class": by_class,
        "epochs": [one["epochs"] for one in done],
        "best_epoch": [one["best_epoch"] for one in done],
        "seconds": round(sum(one["seconds"] for one in done), 1),
    }
    note_members(plan)
    (LOGOUT / "calibration.json").write_text(json.dumps({**final["config"], "patch": plan["patch"]}, indent=2))
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(final["rows"], indent=1))
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    draw_curves()
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
    few = "; so few patients say little about others" if patients < 10 else ""
    mirror = f", mirrored along {', '.join(final['config']['mirror'])}" if final["config"]["mirror"] else ""
    folds = f", each by the one of {count(plan)} networks that has not seen it" if count(plan) > 1 else ""
    folds += (
        "; the delivered network was trained on every case and has no figure of its own" if plan.get("refit") else ""
    )
    print(f"done: validation {told} on {len(cases)} held-out cases of {whose}{mirror}{folds}{few}", flush=True)
    for metric, values in by_class.items() if len(plan["classes"]) > 1 else ():
        print(
            f"{metric.replace('_', ' ')} by class: {', '.join(f'{name} {value}' for name, value in values.items())}",
            flush=True,
        )
