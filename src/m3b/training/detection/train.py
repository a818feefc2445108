"""Trains what plan.json describes, within its minutes. Exit codes: 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M] [--start-from DIR]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, calibration.json, curves.png, fold<k>/best.safetensors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from m3b.training.augment_masks import find_mover
from m3b.training.curves import draw_curves
from m3b.training.detection.dataset import Patches, collate
from m3b.training.detection.final_selection import HeldOutCase, predict_held_out, select_settings
from m3b.training.detection.inference import count_windows
from m3b.training.detection.network import build_model
from m3b.training.detection.plan_cost import MAX_FINAL_SHARE, MAX_SCORING_SHARE
from m3b.training.detection.scoring import Scorer
from m3b.training.distributed import is_main, main_first
from m3b.training.entry import refuse_distributed, run_training
from m3b.training.folds import (
    REFIT_FOLD,
    REFIT_NAME,
    TimeShares,
    count_folds,
    count_refit_steps,
    count_rounds,
    list_network_names,
    read_result,
    write_member_list,
)
from m3b.training.launch import count_processes, parse_train_options, train_folds_in_parallel
from m3b.training.loop import MIN_CASES_FOR_BEST, TrainingParts, load_best, train_by_clock
from m3b.training.patients import describe_patients
from m3b.training.precision import device_of
from m3b.training.pretrained.tensors import parameter_groups
from m3b.training.pretrained.trial import compare_starts, trial_seconds
from m3b.training.recipe import get_recipe

LOGOUT = Path("Logout")
WATCHED_METRIC = {"boxes": "map_50", "masks": "quality"}


def main(argv: list[str] | None = None) -> int:
    """Train and return the exit code."""
    call = parse_train_options(__doc__, argv, train_parallel_fold)
    return call if isinstance(call, int) else run_training(lambda: run(*call))


def run(plan: dict[str, Any], minutes: float) -> None:
    """Train, then write the results of the kept weights."""
    if plan.get("engine", "patches") != "patches":
        from m3b.training.detection.fewshot.run import run_fewshot

        refuse_distributed(str(plan["engine"]))
        run_fewshot(plan, minutes, run)
        return

    def train_trial(trial_plan: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
        return train_network(trial_plan, name, *build_parts(trial_plan), seconds, MAX_SCORING_SHARE * minutes * 60)

    plan = compare_starts(plan, minutes * 60, WATCHED_METRIC[plan["target"]], train_trial)
    cases = train_folds(plan, minutes - trial_seconds() / 60)
    if is_main():
        write_results(plan, cases)


def build_parts(plan: dict[str, Any], fold: int = 0) -> tuple[Patches, Patches]:
    """Return training and validation part; with several processes the first one fills the cache."""
    with main_first():
        return get_recipe().build_datasets(plan, fold)


def train_folds(plan: dict[str, Any], minutes: float) -> list[HeldOutCase]:
    """Train the networks in turn, each with an equal part of the remaining time; return the predicted held-out cases."""
    time_shares: TimeShares | None = None
    cases: list[HeldOutCase] = []
    scoring_seconds = MAX_SCORING_SHARE * minutes * 60
    for fold in range(count_folds(plan)):
        train, valid = build_parts(plan, fold)
        patients = describe_patients(record.get("patient") or record["image_path"] for record in valid.records)
        print(f"{len(train.records)} training cases; {len(valid)} validation cases of {patients}", flush=True)
        if time_shares is None:
            case_seconds = seconds_per_case(plan, valid)
            reserved_seconds = min(
                MAX_FINAL_SHARE * minutes * 60, 1.5 * case_seconds * len(valid) * count_folds(plan) + 2.0
            )
            max_cases = max(2, int(reserved_seconds / max(1.5 * case_seconds, 1e-3)) // count_folds(plan))
            time_shares = TimeShares(plan, max(1.0, minutes * 60 - reserved_seconds), count_processes(plan))
            train_folds_in_parallel(plan, time_shares)
        train_network(plan, f"fold{fold}", train, valid, time_shares.seconds_for(f"fold{fold}"), scoring_seconds)
        cases += predict_fold(plan, fold, valid, max_cases) if is_main() else []
    if plan.get("refit") and time_shares:
        full_set, steps = build_parts(plan, REFIT_FOLD)[0], count_refit_steps(plan)
        print(f"refit: all {len(full_set.records)} training cases, {steps} steps as the folds had", flush=True)
        train_network(plan, REFIT_NAME, full_set, None, time_shares.seconds_for(REFIT_NAME), 0.0, steps)
    return cases


def train_network(
    plan: dict[str, Any],
    name: str,
    train: Patches,
    valid: Patches | None,
    seconds: float,
    scoring_seconds: float,
    steps: int = 0,
) -> dict[str, Any]:
    """Train into Logout/<name> and return done.json; a scoring of `valid` takes `scoring_seconds`, without `valid` there is none."""
    factory = make_trainer_factory(train, valid, scoring_seconds)
    metric = WATCHED_METRIC[plan["target"]]
    return train_by_clock(plan, name, factory, seconds=seconds, watch=metric, shrink=shrink_patch, steps=steps)


def train_parallel_fold(plan: dict[str, Any], fold: int, seconds: float) -> None:
    """Train one fold while others are trained in parallel."""
    train_network(
        plan,
        f"fold{fold}",
        *get_recipe().build_datasets(plan, fold),
        seconds,
        MAX_SCORING_SHARE * seconds * count_rounds(plan),
    )


def predict_fold(plan: dict[str, Any], fold: int, valid: Patches, max_cases: int) -> list[HeldOutCase]:
    """Return predictions of the fold's network for at most `max_cases` validation cases."""
    device = device_of(plan)
    model = load_best(build_model(plan), f"fold{fold}", device)
    rows = Scorer(plan, valid, 0.0).rows
    rows = [*rows, *[int(row) for row in valid.rows if int(row) not in set(rows)]][:max_cases]
    return predict_held_out(model, valid, plan, device, rows, fold)


def make_trainer_factory(
    train: Patches, valid: Patches | None, scoring_seconds: float
) -> Callable[[dict[str, Any]], TrainingParts]:
    """Return a function that builds the parts of a training from a plan, which may have been reduced."""

    def build_parts_of_plan(plan: dict[str, Any]) -> TrainingParts:
        transforms = get_recipe().build_transforms(plan, training=True)
        train.resize(plan["patch"], find_mover(transforms))
        scorer = None
        if valid is not None:
            valid.resize(plan["patch"])
            scorer = Scorer(plan, valid, max(1.0, scoring_seconds))
        model, keeps_last = build_model(plan), valid is not None and len(valid) < MIN_CASES_FOR_BEST
        rate_groups = parameter_groups(model, plan)
        return TrainingParts(model, train, scorer, transforms, collate, groups=rate_groups, keep_last=keeps_last)

    return build_parts_of_plan


@torch.no_grad()
def seconds_per_case(plan: dict[str, Any], valid: Patches) -> float:
    """Return the seconds of a validation image: one window with untrained weights, times the windows of a median image."""
    device, patch = device_of(plan), [int(n) for n in plan["patch"]]
    model = build_model(plan).to(device).eval()
    counts = [count_windows(np.asarray(valid.cases.image(int(row))), patch) for row in valid.rows[:5]]
    try:
        for _ in range(2):
            start = time.monotonic()
            model(pixel_values=torch.zeros(1, int(plan["channels"]), *patch, device=device))["logits"].cpu()
    except (torch.OutOfMemoryError, MemoryError, RuntimeError):
        return 1.0  # the training handles it and reports it
    return (time.monotonic() - start) * float(np.median(counts)) + 0.02


def shrink_patch(plan: dict[str, Any]) -> bool:
    """Halve the longest side of the patch, as long as the network's strides allow it."""
    strides = np.prod(np.array(plan["network"].get("strides") or [[16] * plan["dims"]]), axis=0)
    smaller = [int(n // 2 // step * step) for n, step in zip(plan["patch"], strides, strict=True)]
    smaller = [n if n >= 2 * step else 0 for n, step in zip(smaller, strides, strict=True)]
    if not any(smaller):
        return False
    axis = int(np.argmax(smaller))
    plan["patch"][axis] = smaller[axis]
    return True


def _round_finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: round(value, 4) if np.isfinite(value) else None for name, value in values.items()}


def write_results(plan: dict[str, Any], cases: list[HeldOutCase]) -> None:
    """Write metrics.json, valid_predictions.json, calibration.json and curves.png from the held-out cases of all networks."""
    selection = select_settings(plan, cases)
    figures = _round_finite(selection["figures"])
    patients = len({json.dumps(row["patient"] or row["image"]) for row in selection["rows"]})
    patient_text = describe_patients(row["patient"] or row["image"] for row in selection["rows"])
    by_class = {metric: _round_finite(values) for metric, values in selection["by_class"].items()}
    training_records = [read_result(name) for name in list_network_names(plan)]
    metrics = {
        "validation": {**figures, "cases": len(cases), "patients": patients},
        "by_class": by_class,
        "epochs": [entry["epochs"] for entry in training_records],
        "best_epoch": [entry["best_epoch"] for entry in training_records],
        "seconds": round(sum(entry["seconds"] for entry in training_records), 1),
    }
    write_member_list(plan)
    (LOGOUT / "calibration.json").write_text(json.dumps({**selection["config"], "patch": plan["patch"]}, indent=2))
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(selection["rows"], indent=1))
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    draw_curves()
    metric_text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
    caution = "; this is too few patients to generalise" if patients < 10 else ""
    axes = ", ".join(selection["config"]["mirror"])
    remarks = [f", mirrored along {axes}"] if axes else []
    remarks += [", each predicted by the fold that did not train on it"] if count_folds(plan) > 1 else []
    if plan.get("refit"):
        remarks.append("; the delivered network was trained on every case and has no metrics of its own")
    text = f"done: validation {metric_text} on {len(cases)} held-out cases of {patient_text}{''.join(remarks)}{caution}"
    print(text, flush=True)
    for metric, values in by_class.items() if len(plan["classes"]) > 1 else ():
        class_text = ", ".join(f"{name}: {value}" for name, value in values.items())
        print(f"{metric.replace('_', ' ')} by class: {class_text}", flush=True)
