"""Trains plan.json within its minutes. Exit code 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M] [--start-from DIR]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, calibration.json, curves.png, fold<k>/best.safetensors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from m3b.training.curves import draw_curves
from m3b.training.diagnosis.dataset import CaseDataset, describe_parts
from m3b.training.diagnosis.encoder_choice import weigh_encoders
from m3b.training.diagnosis.linear_probe_fit import add_linear_probe, compute_probe_features
from m3b.training.diagnosis.network import Classifier, build_model
from m3b.training.diagnosis.plan_cost import final_seconds
from m3b.training.diagnosis.recipe_ensemble import average_recipes, write_average_weights
from m3b.training.diagnosis.recipe_plans import check_recipes
from m3b.training.diagnosis.scoring import make_scorer, run_model
from m3b.training.diagnosis.self_training import UnlabelledCases, choose_networks
from m3b.training.diagnosis.targets import get_target
from m3b.training.diagnosis.tta import View, make_views
from m3b.training.distributed import is_main, main_first
from m3b.training.entry import run_training
from m3b.training.folds import (
    DELIVERED_FILE,
    REFIT_FOLD,
    REFIT_NAME,
    TimeShares,
    count_folds,
    count_refit_steps,
    list_network_names,
    list_recipe_names,
    list_recipe_plans,
    list_trainings,
    name_student,
    read_result,
    write_member_list,
)
from m3b.training.launch import count_processes, parse_train_options, train_folds_in_parallel
from m3b.training.loop import MIN_CASES_FOR_BEST, TrainingParts, load_best, train_by_clock
from m3b.training.patients import list_patients, list_sites
from m3b.training.precision import device_of
from m3b.training.pretrained.trial import compare_starts, trial_seconds
from m3b.training.recipe import get_recipe
from m3b.training.standard_error import describe_errors, jackknife_errors
from m3b.training.step_cost import micro_batch

LOGOUT = Path("Logout")
MIN_VIEW_GAIN = 0.01
"""Minimum relative reduction of the validation loss for which averaging over views is worth its time."""


def main(argv: list[str] | None = None) -> int:
    """Train and return the exit code."""
    options = parse_train_options(__doc__, argv, train_parallel_fold)
    return options if isinstance(options, int) else run_training(lambda: train(*options))


def train_parallel_fold(plan: dict[str, Any], fold: int, seconds: float) -> None:
    """Train one of several parallel folds."""
    train_fold(list_recipe_plans(plan)[0], f"fold{fold}", *get_recipe().build_datasets(plan, fold), seconds)


def train(plan: dict[str, Any], minutes: float) -> None:
    """Compare the starts, train the folds and write the results."""
    check_recipes(plan)

    def trial(start_plan: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
        return train_fold(start_plan, name, *load_parts(start_plan, 0), seconds)

    plan = compare_starts(plan, minutes * 60, get_target(plan).watch, trial)
    results = train_folds(plan, minutes - trial_seconds() / 60)
    if is_main():
        write_results(plan, results)


def load_parts(plan: dict[str, Any], fold: int) -> tuple[CaseDataset, CaseDataset]:
    """Return training and validation part; the first of several processes fills the cache."""
    with main_first():
        return get_recipe().build_datasets(plan, fold)


def train_folds(plan: dict[str, Any], minutes: float) -> list[dict[str, Any]]:
    """Train the unfinished folds, each with an equal part of the time left, then a refit for the same number of steps; return the
    validation of each fold."""
    first, *others = list_recipe_plans(plan)
    limit = final_seconds(minutes) / count_folds(plan) / (1 + len(others))
    reserve = final_seconds(minutes) * (1 + bool(plan.get("self_training")))
    shares: TimeShares | None = None
    results: list[dict[str, Any]] = []
    for fold in range(count_folds(plan)):
        train, valid = load_parts(plan, fold)
        if shares is None:
            # decoding all images for the first time does not count as training
            with main_first():
                feature_seconds = compute_probe_features(plan)
            shares = TimeShares(plan, minutes * 60 - reserve - feature_seconds, count_processes(plan))
            train_folds_in_parallel(plan, shares)
        if not read_result(f"fold{fold}"):
            seconds = shares.seconds_for(f"fold{fold}")
            duration = f"{first['max_steps']} steps" if first.get("max_steps") else f"{seconds:.0f} s"
            print(f"fold {fold}: {describe_parts(train, valid)}, {duration}", flush=True)
            train_fold(first, f"fold{fold}", train, valid, seconds)
        if is_main():
            results.append(_validate(first, f"fold{fold}", valid, limit))
    if others and shares:
        train_further_recipes(plan, shares, results, limit)
    if plan.get("refit") and shares and not read_result(REFIT_NAME):
        train, steps = load_parts(plan, REFIT_FOLD)[0], count_refit_steps(plan)
        print(f"refit: all {len(train)} training cases, {steps} steps, as many as the folds", flush=True)
        train_fold(plan, REFIT_NAME, train, None, shares.seconds_for(REFIT_NAME), steps)
    if plan.get("self_training") and shares:
        train_students(plan, shares, results, limit)
    return results


def train_further_recipes(
    plan: dict[str, Any], shares: TimeShares, results: list[dict[str, Any]], limit: float
) -> None:
    """Train the recipes of each fold after the first one; `recipes` of each result gets their validation."""
    for number, recipe_plan in enumerate(list_recipe_plans(plan)[1:], 2):
        for fold, name in enumerate(list_recipe_names(plan, number)):
            train, valid = load_parts(recipe_plan, fold)
            if not read_result(name):
                seconds = shares.seconds_for(name)
                print(f"{name}: another recipe, {len(train)} training cases, {seconds:.0f} s", flush=True)
                train_fold(recipe_plan, name, train, valid, seconds)
            if is_main():
                results[fold].setdefault("recipes", []).append(_validate(recipe_plan, name, valid, limit))


def train_students(plan: dict[str, Any], shares: TimeShares, results: list[dict[str, Any]], limit: float) -> None:
    """Train the second network of each fold, then that of the refit; `student` of each result gets its validation."""
    unlabelled, device = UnlabelledCases(plan), device_of(plan)
    for fold, result in enumerate(results):
        model = load_best(build_model(plan), f"fold{fold}", device)
        logits = run_model(model, unlabelled.cases, device, 2 * micro_batch(plan))[0]
        unlabelled.add_scores(logits, result["logits"][0], result["labels"])
    for fold, name in enumerate(list_network_names(plan)):
        is_refit, student = name == REFIT_NAME, name_student(name)
        train, valid = load_parts(plan, REFIT_FOLD if is_refit else fold)
        cases, count = unlabelled.build_training_set(train, valid, None if is_refit else fold)
        if not read_result(student):
            seconds, steps = shares.seconds_for(student), int(read_result(name)["steps"]) if is_refit else 0
            print(f"{student}: {len(train)} training cases, {count} pseudo-labels, {seconds:.0f} s", flush=True)
            train_fold(plan, student, cases, None if is_refit else valid, seconds, steps)
        if not is_refit:
            results[fold]["student"] = {**_validate(plan, student, valid, limit), "pseudo_labels": count}


def train_fold(
    plan: dict[str, Any], name: str, train: CaseDataset, valid: CaseDataset | None, seconds: float, steps: int = 0
) -> dict[str, Any]:
    """Train one network and return its done.json in Logout/<name>; without `valid` nothing is scored."""
    transforms = get_recipe().build_transforms(plan, training=True)

    def make(plan: dict[str, Any]) -> TrainingParts:
        model = build_model(plan)
        scorer = make_scorer(plan, valid) if valid else None
        keep_last = valid is None or has_too_few_cases(get_target(plan).binary_outcomes(valid.labels[valid.rows]))
        return TrainingParts(model, train, scorer, transforms, groups=model.groups(plan), keep_last=keep_last)

    return train_by_clock(plan, name, make, seconds=seconds, watch=get_target(plan).watch, steps=steps)


def has_too_few_cases(labels: np.ndarray) -> bool:
    """Return whether the best AUROC of (N, K) labels would be chance: the median class has too few cases on a side."""
    positive, known_cases = (labels > 0.5).sum(axis=0), (~np.isnan(labels)).sum(axis=0)
    return bool(np.median(np.minimum(positive, known_cases - positive)) < MIN_CASES_FOR_BEST)


def _validate(plan: dict[str, Any], name: str, valid: CaseDataset, limit: float) -> dict[str, Any]:
    """Predict the validation part of a network with its best weights, once and, as far as `limit` seconds allow, in several views.

    `logits` and `seen` are (encoders, N, K).
    """
    device = device_of(plan)
    model = load_best(build_model(plan), name, device)
    assert isinstance(model, Classifier)
    batch, views, use_views = 2 * micro_batch(plan), _list_views(plan), plan.get("tta", {}).get("use", False)
    start = time.monotonic()
    logits, labels = _predict_by_encoder(model, valid, device, batch)
    seconds_once = time.monotonic() - start
    view_logits = np.full_like(logits, np.nan)
    if use_views and len(views) > 1:
        stride = 1 if use_views is True else max(1, int(np.ceil(seconds_once * len(views) / max(limit, 0.1))))
        rows = np.arange(0, len(valid), stride)
        subset = torch.utils.data.Subset(valid, rows.tolist())
        view_logits[:, rows] = _predict_by_encoder(model, subset, device, batch, views)[0]
    done = read_result(name)
    seconds_per_case = seconds_once / len(logits) / max(len(valid), 1)
    return {**done, "logits": logits, "seen": view_logits, "labels": labels, "cases": valid, "case": seconds_per_case}


def _predict_by_encoder(
    model: Classifier, cases: Any, device: torch.device, batch: int, views: Sequence[View] = ({},)
) -> tuple[np.ndarray, np.ndarray]:
    """Return (encoders, N, K) logits of each encoder alone, and the labels."""
    parts = []
    for part in range(model.encoders):
        model.slice_weight = float(part)
        logits, labels, _ = run_model(model, cases, device, batch, views)
        parts.append(logits)
    return np.stack(parts), labels


def _list_views(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return make_views(plan.get("tta") or {}, plan["augment"].get("flip", []), int(plan["dims"]))


def choose_views(plan: dict[str, Any], results: list[dict[str, Any]]) -> tuple[np.ndarray, dict[str, Any]]:
    """Return (N, K) final logits and the choice of views, which are used if they lower the loss and stay within the time."""
    logits, view_logits = (np.concatenate([result[key] for result in results]) for key in ("logits", "seen"))
    labels, target = np.concatenate([result["labels"] for result in results]), get_target(plan)
    views = _list_views(plan)
    rows = np.isfinite(view_logits).all(axis=1)
    if not rows.any():
        return logits, {"views": [{}], "figures": {"used": False}}
    losses = [target.view_loss(part, labels[rows]) for part in (logits[rows], view_logits[rows])]
    networks_per_case = 1 if plan.get("refit") else len(results)
    seconds = float(np.mean([result["case"] for result in results])) * len(views) * networks_per_case
    use_views = plan["tta"]["use"]
    if use_views == "auto":
        use_views = losses[1] < losses[0] * (1 - MIN_VIEW_GAIN) and seconds <= float(plan["tta"]["max_seconds"])
    figures = {"used": bool(use_views), "loss_once": round(losses[0], 4), "loss_views": round(losses[1], 4)}
    figures |= {"views": len(views), "cases": int(rows.sum()), "seconds_per_case": round(seconds, 4)}
    final_logits = np.where(rows[:, None], view_logits, logits) if use_views else logits
    return final_logits, {"views": views if use_views else [{}], "figures": figures}


def write_results(plan: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Write metrics.json, calibration.json, valid_predictions.json and curves.png from all held-out cases."""
    for name in list_network_names(plan):
        (LOGOUT / name / DELIVERED_FILE).unlink(missing_ok=True)
    write_average_weights(plan)
    results, recipe_choice = average_recipes(plan, results)
    results, self_training_choice = choose_networks(plan, results)
    results, encoder_choice = weigh_encoders(plan, results)
    logits, view_choice = choose_views(plan, results)
    logits, probe_choice = add_linear_probe(plan, results, logits)
    predictions = gather_predictions(plan, results, logits)
    logits, labels, records, target = predictions.logits, predictions.labels, predictions.records, get_target(plan)
    shared_arguments = (None, None) if predictions.shared is None else (predictions.shared, predictions.networks)
    fitted = target.calibrate(logits, labels, list_patients(records), *shared_arguments)
    figures = {name: round(value, 4) for name, value in target.figures(logits, labels, predictions.networks).items()}
    errors = jackknife_errors(
        list_patients(records), lambda rows: target.figures(logits[rows], labels[rows], predictions.networks[rows])
    )
    site_figures = measure_sites(plan, predictions)
    metrics = {
        "validation": {**figures, "cases": len(labels), "standard_errors": errors},
        "networks": predictions.figures,
        **({"sites": site_figures} if site_figures else {}),
        "recall": target.recall(logits, labels),
        "calibration": fitted.pop("figures"),
        "tta": view_choice.pop("figures"),
        **({"linear_probe": probe_choice} if probe_choice else {}),
        **({"recipes": recipe_choice} if recipe_choice else {}),
        **({"encoders": encoder_choice} if encoder_choice else {}),
        **({"self_training": self_training_choice} if self_training_choice else {}),
        "epochs": [result["epochs"] for result in results],
        "best_epoch": [result["best_epoch"] for result in results],
        "seconds": round(
            sum(float((read_result(name) or {"seconds": 0.0})["seconds"]) for name in list_trainings(plan)), 1
        ),
    }
    if plan.get("refit"):
        metrics["refit"] = read_result(REFIT_NAME)
    write_member_list(plan)
    arrays: dict[str, Any] = {"logits": logits, "labels": labels}
    if predictions.shared is not None:
        arrays["shared"] = predictions.shared
    np.savez(LOGOUT / "valid_logits.npz", **arrays)
    (LOGOUT / "calibration.json").write_text(
        json.dumps(
            {
                **fitted,
                **view_choice,
                "linear_probe": probe_choice,
                "encoders": encoder_choice,
                "recipes": recipe_choice,
                "self_training": self_training_choice,
            },
            indent=2,
        )
    )
    (LOGOUT / "valid_predictions.json").write_text(
        json.dumps(_format_cases(plan, records, target.scores(logits), labels), indent=1)
    )
    draw_curves()
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    description = f"{len(labels)} held-out cases"
    if len(results) > 1:
        description += (
            f", each by one of {len(results)} networks"
            if (predictions.networks >= 0).all()
            else f", the average of {len(results)} networks"
        )
    description += f", mean of {len(view_choice['views'])} views of each" if len(view_choice["views"]) > 1 else ""
    description += f", mean of {1 + len(results[0]['recipes'])} recipes" if recipe_choice else ""
    description += ", with the linear probe" if probe_choice.get("weight") else ""
    description += ", of networks that the delivered one, trained on every case, is not" if plan.get("refit") else ""
    description += describe_errors(errors)
    for site, values in site_figures.items():
        print(f"{site}: {', '.join(f'{name} {value}' for name, value in values.items())}", flush=True)
    print(f"done: {target.describe(metrics, description)}", flush=True)


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions for the cases that networks were not trained on.

    Attributes:
        logits: (H, K), of a single network or of the average of all.
        labels: (H, ...).
        networks: (H,) the network of each row; -1 for the average of all.
        records: of the index, with `fold`, the same number.
        shared: (networks, M, K) logits of cases that no network was trained on, if the average is delivered and `logits` are of single
            networks.
        figures: of each network on the cases that it was not trained on.
    """

    logits: np.ndarray
    labels: np.ndarray
    networks: np.ndarray
    records: list[dict[str, Any]]
    shared: np.ndarray | None
    figures: list[dict[str, float]]


def gather_predictions(plan: dict[str, Any], results: list[dict[str, Any]], logits: np.ndarray) -> HeldOutPredictions:
    """Collect each held-out case once: by the delivered average if no network was trained on any of them, else by one network."""
    target, has_several = get_target(plan), len(results) > 1
    network_of_row = np.repeat(np.arange(len(results)), [len(result["labels"]) for result in results])
    rows, first, case_of_row = np.unique(
        np.concatenate([result["cases"].rows for result in results]), return_index=True, return_inverse=True
    )
    labels = np.concatenate([result["labels"] for result in results])
    table = np.zeros((len(results), len(rows), logits.shape[1]), logits.dtype)
    is_predicted = np.zeros(table.shape[:2], bool)
    table[network_of_row, case_of_row], is_predicted[network_of_row, case_of_row] = logits, True
    network_figures = [
        target.figures(logits[network_of_row == k], labels[network_of_row == k]) for k in range(len(results))
    ]
    figures = [
        {name: round(value, 4) for name, value in figures_of_network.items() if np.isfinite(value)}
        for figures_of_network in network_figures
    ]
    shared, indices = is_predicted.all(axis=0), np.arange(len(rows))
    networks = np.where(shared, indices % len(results), is_predicted.argmax(axis=0))
    final_logits = table[networks, indices]
    is_average = has_several and not plan.get("refit")
    if is_average and shared.all():
        final_logits, networks = table.mean(axis=0), np.full(len(rows), -1)
    all_records = [record for result in results for record in result["cases"].records]
    records = [{**all_records[k], "fold": int(network)} for k, network in zip(first, networks, strict=True)]
    shared_rows = table[:, shared] if is_average and shared.any() and not shared.all() else None
    return HeldOutPredictions(final_logits, labels[first], networks, records, shared_rows, figures)


def measure_sites(plan: dict[str, Any], predictions: HeldOutPredictions) -> dict[str, dict[str, float]]:
    """Return the figures of the held-out cases of each site, with their number; {} if fewer than two sites are known."""
    sites = np.array(list_sites(predictions.records))
    names = sorted(set(sites.tolist()) - {""})
    figures: dict[str, dict[str, float]] = {}
    for name in names if len(names) > 1 else ():
        rows = sites == name
        logits, labels, networks = predictions.logits[rows], predictions.labels[rows], predictions.networks[rows]
        figures[name] = {"cases": int(rows.sum())}
        if (labels == labels[0]).all():
            continue  # with one class, no figure is defined
        values = get_target(plan).figures(logits, labels, networks)
        figures[name] |= {metric: round(value, 4) for metric, value in values.items() if np.isfinite(value)}
    return figures


def _format_cases(
    plan: dict[str, Any], records: list[Any], scores: np.ndarray, labels: np.ndarray
) -> list[dict[str, Any]]:
    target = get_target(plan)
    return [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "fold": record["fold"],
            **target.format_case(record, score, truth),
        }
        for record, score, truth in zip(records, scores, labels, strict=True)
    ]
