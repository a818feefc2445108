"""Trains what plan.json describes, within its minutes. Exit codes: 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M] [--start-from DIR]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, curves.png, fold<k>/best.safetensors (model0 for nnU-Net).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from m3b.training.curves import draw_curves
from m3b.training.distributed import is_main, main_first
from m3b.training.entry import refuse_distributed, run_training
from m3b.training.folds import (
    REFIT_FOLD,
    REFIT_NAME,
    TimeShares,
    count_folds,
    count_refit_steps,
    read_result,
    write_member_list,
)
from m3b.training.launch import count_processes, parse_train_options, train_folds_in_parallel
from m3b.training.recipe import get_recipe
from m3b.training.segmentation.dataset import CachedMasks, patient_of
from m3b.training.segmentation.scoring import mean_dice
from m3b.training.standard_error import describe_errors, jackknife_errors


def main(argv: list[str] | None = None) -> int:
    """Train and return the exit code."""
    call = parse_train_options(__doc__, argv, train_parallel_fold)
    if isinstance(call, int):
        return call
    plan, seconds = call[0], 60 * call[1]
    if plan["engine"] == "nnunet":
        from m3b.training.segmentation.nnunet import train_nnunet

        refuse_distributed("nnunet")
        return run_training(lambda: train_nnunet(plan, seconds, write_results))
    return run_training(lambda: train(plan, seconds))


@dataclass
class FoldResult:
    """A trained network and the validation cases that it has not seen.

    Args:
        name: its folder in Logout.
        cases: whole validation cases.
        mean: the mean shape of its training masks, and `baseline`, the (N, K) Dice of the mean shape on the cases.
        scores: Dice of the network on the cases.
    """

    name: str
    cases: Any
    mean: np.ndarray
    baseline: np.ndarray
    scores: Any = None


def train(plan: dict[str, Any], seconds: float) -> None:
    """Run the trainer engine, from the cache to the metrics."""
    from m3b.training.loop import train_by_clock
    from m3b.training.pretrained.trial import compare_starts, trial_seconds
    from m3b.training.segmentation.plan_cost import final_seconds, view_costs

    def train_trial(trial_plan: dict[str, Any], name: str, seconds_left: float) -> dict[str, Any]:
        with main_first():
            factory = make_trainer_factory(*get_recipe().build_datasets(trial_plan))
        return train_by_clock(trial_plan, name, factory, seconds=seconds_left, watch="dice", shrink=shrink_patch)

    plan = compare_starts(plan, seconds, "dice", train_trial)
    seconds -= trial_seconds()
    time_shares: TimeShares | None = None
    results: list[FoldResult] = []
    for fold in range(count_folds(plan)):
        with main_first():
            train_set, valid_set = get_recipe().build_datasets(plan, fold)
        if time_shares is None:
            cases = count_folds(plan) * len(valid_set)
            reserved_seconds = final_seconds(_case_seconds(plan, valid_set), cases, seconds, view_costs(plan))
            time_shares = TimeShares(plan, seconds - reserved_seconds, count_processes(plan))
            train_folds_in_parallel(plan, time_shares)
        result = prepare_fold(plan, fold, train_set, valid_set)
        factory, fold_seconds = make_trainer_factory(train_set, valid_set), time_shares.seconds_for(result.name)
        train_by_clock(plan, result.name, factory, seconds=fold_seconds, watch="dice", shrink=shrink_patch)
        result.scores = score_fold(plan, result, seconds / count_folds(plan)) if is_main() else None
        results.append(result)
    if plan.get("refit") and time_shares:
        with main_first():
            full_set, steps = get_recipe().build_datasets(plan, REFIT_FOLD)[0], count_refit_steps(plan)
        print(f"refit: all {len(set(full_set.rows))} training cases, {steps} steps as the folds had", flush=True)
        factory, fold_seconds = make_trainer_factory(full_set, None), time_shares.seconds_for(REFIT_NAME)
        train_by_clock(plan, REFIT_NAME, factory, seconds=fold_seconds, watch="dice", shrink=shrink_patch, steps=steps)
    if not is_main():
        return
    dice_table, extra = select_on_all_cases(plan, results)
    write_member_list(plan)
    records = [result.cases.records for result in results]
    write_results(plan, dice_table, records, [read_result(result.name) for result in results], extra)


def train_parallel_fold(plan: dict[str, Any], fold: int, seconds: float) -> None:
    """Train one fold while others are trained in parallel."""
    from m3b.training.loop import train_by_clock

    factory = make_trainer_factory(*get_recipe().build_datasets(plan, fold))
    train_by_clock(plan, f"fold{fold}", factory, seconds=seconds, watch="dice", shrink=shrink_patch)


def prepare_fold(plan: dict[str, Any], fold: int, train_set: Any, valid_set: Any) -> FoldResult:
    """Return the fold's cases and its image-blind baseline."""
    from m3b.training.segmentation.mean_shape import baseline_dice_table, mean_shape
    from m3b.training.segmentation.scoring import mean_dice

    masks, truths = (CachedMasks(data_set.volumes, data_set.rows) for data_set in (train_set, valid_set))
    mean = mean_shape(masks, plan)
    baseline = baseline_dice_table(mean, truths, plan)
    print(
        f"{len(set(train_set.rows))} training cases, {len(valid_set)} validation cases; image-blind baseline (mean shape of "
        f"the training masks): validation Dice {mean_dice(baseline):.3f}",
        flush=True,
    )
    return FoldResult(f"fold{fold}", valid_set, mean, baseline)


def score_fold(plan: dict[str, Any], fold_result: FoldResult, seconds: float) -> Any:
    """Return the scores of the network on its cases; in other views as far as their share of `seconds` allows."""
    from m3b.training.loop import load_best
    from m3b.training.precision import device_of
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.plan_cost import MAX_VIEW_SHARE
    from m3b.training.segmentation.postprocessing_selection import score_views

    model = load_best(build_model(plan), fold_result.name, device_of(plan))
    return score_views(model, fold_result.cases, plan, device_of(plan), MAX_VIEW_SHARE * seconds)


def make_trainer_factory(train_set: Any, valid_set: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a function that builds the parts of a training from a plan, which may have been reduced; no scoring without
    `valid_set`.
    """
    from m3b.training.augment_masks import collate_blocks, find_mover
    from m3b.training.loop import MIN_CASES_FOR_BEST, TrainingParts
    from m3b.training.pretrained.tensors import parameter_groups
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.plan_cost import MAX_SCORED_CASES
    from m3b.training.segmentation.scoring import dice_table, mean_dice, sample_cases

    rows = sample_cases(valid_set, MAX_SCORED_CASES) if valid_set else []

    def build_parts(plan: dict[str, Any]) -> TrainingParts:
        transforms = get_recipe().build_transforms(plan, training=True)

        def score_model(model: torch.nn.Module, device: torch.device) -> dict[str, float]:
            table = dice_table(model, valid_set, rows, plan, device)
            columns = zip(plan["classes"], table.T, strict=True)
            class_metrics = {f"dice_{name}": float(np.nanmean(column)) for name, column in columns if has_value(column)}
            return {"dice": mean_dice(table), **(class_metrics if len(class_metrics) > 1 else {})}

        train_set.resize(plan["patch"], find_mover(transforms))
        model, keeps_last = (
            build_model(plan),
            plan.get("keep") != "best" or not valid_set or len(valid_set) < MIN_CASES_FOR_BEST,
        )
        scorer = score_model if valid_set else None
        rate_groups = parameter_groups(model, plan)
        return TrainingParts(
            model, train_set, scorer, transforms, collate_blocks, groups=rate_groups, keep_last=keeps_last
        )

    return build_parts


def select_on_all_cases(plan: dict[str, Any], fold_results: Sequence[FoldResult]) -> tuple[np.ndarray, dict[str, Any]]:
    """Write the choice of all validation cases into the plan; return (N, K) Dice of networks that had not seen the cases, and
    other metrics.
    """
    from m3b.training.loop import load_best
    from m3b.training.precision import device_of
    from m3b.training.segmentation import surfaces
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.postprocessing_selection import (
        describe_selection,
        join_scores,
        select_postprocessing,
    )
    from m3b.training.segmentation.scoring import mean_dice

    device = device_of(plan)
    scores = join_scores([result.scores for result in fold_results])
    patients = [patient_of(record) for result in fold_results for record in result.cases.records]
    table = select_postprocessing(plan, scores, patients)
    rows = []
    for result in fold_results:
        model = load_best(build_model(plan), result.name, device)
        cases_per_fold = max(1, surfaces.MAX_CASES // len(fold_results))
        rows.append(surfaces.surface_rows(model, result.cases, plan, device, result.mean, cases_per_fold))
    borders = surfaces.average_rows(np.concatenate(rows))
    baseline = mean_dice(np.concatenate([result.baseline for result in fold_results]))
    print(f"{describe_selection(plan)}\n{surfaces.describe_surfaces(borders, plan)}", flush=True)
    empty_counts = {"empty": int(scores.empty.sum()), "falsely_marked": _count_false_positives(table, scores.empty)}
    return table, {"mean_shape_dice": round(baseline, 4), **borders, **empty_counts}


def _count_false_positives(table: np.ndarray, empty: np.ndarray) -> int:
    """Return the cases with an empty true mask and a non-empty prediction."""
    return int(np.isfinite(table[empty]).any(axis=1).sum()) if empty.any() else 0


def _case_seconds(plan: dict[str, Any], cases: Any) -> float:
    """Return the seconds that the prediction of a validation case takes, measured on one of them."""
    from m3b.training.precision import device_of
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.scoring import predict_case

    device = device_of(plan)
    model = build_model(plan).to(device).eval()
    seconds = []
    with torch.no_grad():
        for _ in range(2):  # the first one is a warm-up
            start = time.monotonic()
            predict_case(model, cases[0]["pixel_values"], plan, device)
            seconds.append(time.monotonic() - start)
    return min(seconds)


def shrink_patch(plan: dict[str, Any]) -> bool:
    """Reduce the patch if one patch per step is out of memory, down to twice the network's strides."""
    from m3b.training.segmentation.sliding_window import total_strides

    steps = total_strides(plan)
    smaller = [max(2 * step, int(size * 0.75) // step * step) for size, step in zip(plan["patch"], steps, strict=True)]
    if smaller == list(plan["patch"]) or math.prod(smaller) >= math.prod(plan["patch"]):
        return False
    plan["patch"] = smaller
    return True


LOGOUT = Path("Logout")


def write_results(
    plan: dict[str, Any],
    table: np.ndarray,
    records: Sequence[Sequence[dict[str, Any]]],
    done: Sequence[dict[str, Any]],
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write metrics.json, valid_predictions.json, curves.png, and trained.json: the plan as it was trained.

    Args:
        table: (N, K) Dice of all held-out cases, fold by fold.
        records: of each fold; `done` is done.json of its network.
        extra: more metrics of the same cases: NSD and HD95, the mean shape, empty masks.
    """
    classes = plan["classes"]
    class_means = {
        name: _round_finite(np.nanmean(column))
        for name, column in zip(classes, table.T, strict=True)
        if has_value(column)
    }
    figures = {"dice": round(mean_dice(table), 4), "dice_by_class": class_means, "cases": len(table)}
    figures |= extra
    patients = [patient_of(record) for fold_records in records for record in fold_records]
    errors = jackknife_errors(patients, lambda rows: {"dice": mean_dice(table[rows])})
    figures |= {"standard_errors": errors}
    all_records = [*done, *([read_result(REFIT_NAME)] if plan.get("refit") else [])]
    metrics: dict[str, Any] = {
        "validation": figures,
        "seconds": round(sum(entry["seconds"] for entry in all_records), 1),
    }
    for key in ("epochs", "steps", "best_epoch"):
        metrics[key] = all_records[0][key] if len(all_records) == 1 else [entry[key] for entry in all_records]
    rows = [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "fold": fold,
            "dice": {name: _round_finite(value) for name, value in zip(classes, values, strict=True)},
        }
        for (fold, record), values in zip(
            ((fold, record) for fold, fold_records in enumerate(records) for record in fold_records), table, strict=True
        )
    ]
    (LOGOUT / "trained.json").write_text(json.dumps(plan, indent=1))
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(rows, indent=1))
    draw_curves()
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    print(describe_results(figures, classes, plan), flush=True)


def describe_results(figures: Mapping[str, Any], classes: list[str], plan: Mapping[str, Any]) -> str:
    """Return the end of a training as text for people."""
    folds = count_folds(plan)
    suffix = ", each predicted by the fold that did not train on it" if folds > 1 else ""
    suffix += (
        "; the delivered network was trained on every case and has no metrics of its own" if plan.get("refit") else ""
    )
    suffix += "; true masks are boxes, and the Dice is that of boxes" if plan.get("boxes") else ""
    dice, class_dice, baseline = figures["dice"], figures["dice_by_class"], figures.get("mean_shape_dice")
    lines = [
        f"done: validation Dice {dice} on {figures['cases']} held-out cases{suffix}"
        f"{describe_errors(figures['standard_errors'])}; by class {class_dice}"
    ]
    if baseline is not None:
        verdict = "above" if dice > baseline else "NOT above"
        lines.append(
            f"Dice is {verdict} that of the image-blind baseline (mean shape of the training masks): {baseline}"
        )
    if empty := figures.get("empty"):
        false_positives = figures["falsely_marked"]
        lines.append(
            f"{empty} held-out cases have an empty true mask: {empty - false_positives} are predicted empty (and not in the mean), "
            f"{false_positives} have false positives (and count as Dice 0)"
        )
    if unmeasured := [name for name in classes if name not in class_dice]:
        lines.append(f"not measured, as no held-out mask contains them on the plan's grid: {', '.join(unmeasured)}")
    return "\n".join(lines)


def _round_finite(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def has_value(column: np.ndarray) -> bool:
    """Return whether any case has a value."""
    return bool(np.isfinite(column).any())
