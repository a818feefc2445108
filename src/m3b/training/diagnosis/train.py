"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, calibration.json, curves.png, fold<k>/best.safetensors.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from m3b.training.augment import Augment
from m3b.training.curves import draw_curves
from m3b.training.diagnosis.covariates import blank
from m3b.training.diagnosis.dataset import Cases, every_case
from m3b.training.diagnosis.network import build_model
from m3b.training.diagnosis.plan_cost import final_seconds
from m3b.training.diagnosis.scoring import make_scorer, run_model
from m3b.training.diagnosis.targets import kind_of
from m3b.training.diagnosis.tta import make_views
from m3b.training.diagnosis.views import each
from m3b.training.distributed import is_main, main_first
from m3b.training.entry import guarded
from m3b.training.folds import ALL, TimeShares, count, done_of, note_members, refit_steps
from m3b.training.launch import parse_call, processes_here, train_folds_in_parallel
from m3b.training.loop import MIN_CASES_FOR_BEST, TrainingParts, load_best, train_by_clock
from m3b.training.patients import people_of
from m3b.training.precision import device_of
from m3b.training.pretrained.trial import settle_start, trial_seconds
from m3b.training.recipe import get_recipe
from m3b.training.step_cost import micro_batch

LOGOUT = Path("Logout")
GAIN = 0.01
"""Averaging over views must lower the validation loss by this share to be worth its time."""


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    call = parse_call(__doc__, argv, train_beside)
    return call if isinstance(call, int) else guarded(lambda: train(*call))


def train_beside(plan: dict[str, Any], fold: int, seconds: float) -> None:
    """One fold, while others are trained beside it."""
    train_fold(plan, f"fold{fold}", *get_recipe().build_datasets(plan, fold), seconds)


def train(plan: dict[str, Any], minutes: float) -> None:
    """From the question what to start from to the figures."""

    def trial(side: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
        return train_fold(side, name, *parts_of(side, 0), seconds)

    plan = settle_start(plan, minutes * 60, kind_of(plan).watch, trial)
    results = train_folds(plan, minutes - trial_seconds() / 60)
    if is_main():
        finish(plan, results)


def parts_of(plan: dict[str, Any], fold: int) -> tuple[Cases, Cases]:
    """Training and validation part; of several processes the first one fills the cache."""
    with main_first():
        return get_recipe().build_datasets(plan, fold)


def train_folds(plan: dict[str, Any], minutes: float) -> list[dict[str, Any]]:
    """Every fold in turn, each with an equal part of the time that is left; finished ones are not trained again. A refit is
    trained last, for as many steps."""
    reserve = final_seconds(minutes)
    turns: TimeShares | None = None
    results: list[dict[str, Any]] = []
    for fold in range(count(plan)):
        train, valid = parts_of(plan, fold)
        if turns is None:
            turns = TimeShares(
                plan, minutes * 60 - reserve, processes_here(plan)
            )  # decoding every image for the first time is no training
            train_folds_in_parallel(plan, turns)
        if not done_of(f"fold{fold}"):
            seconds = turns.of(f"fold{fold}")
            told = f"{plan['max_steps']} steps" if plan.get("max_steps") else f"{seconds:.0f} s"
            print(f"fold {fold}: {len(train)} training cases, {len(valid)} validation cases, {told}", flush=True)
            train_fold(plan, f"fold{fold}", train, valid, seconds)
        if is_main():
            results.append(_validate(plan, fold, valid, reserve / count(plan)))
    if plan.get("refit") and turns and not done_of(ALL):
        train, steps = every_case(plan), refit_steps(plan)
        print(f"refit: all {len(train)} training cases, {steps} steps as the folds had", flush=True)
        train_fold(plan, ALL, train, None, turns.of(ALL), steps)
    return results


def train_fold(
    plan: dict[str, Any], name: str, train: Cases, valid: Cases | None, seconds: float, steps: int = 0
) -> dict[str, Any]:
    """Leaves best.safetensors and done.json, which it returns, in Logout/<name>; without `valid` nothing is scored."""
    augment = Augment(plan["augment"])
    rules, share = plan.get("covariates") or [], float(plan.get("covariate_dropout") or 0.0)

    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        given = {"covariates": blank(batch["covariates"], rules, share)} if rules else {}
        return {**batch, "pixel_values": each(plan, augment, batch["pixel_values"]), **given}

    def make(plan: dict[str, Any]) -> TrainingParts:
        model = build_model(plan)
        scorer = make_scorer(plan, valid) if valid else None
        last = valid is None or too_few(kind_of(plan).sides(valid.labels[valid.rows]))
        return TrainingParts(model, train, scorer, prepare, groups=model.groups(plan), keep_last=last)

    return train_by_clock(plan, name, make, seconds=seconds, watch=kind_of(plan).watch, steps=steps)


def too_few(labels: np.ndarray) -> bool:
    """Whether the best AUROC of so few cases, (N, K), would be chance: the median class has fewer than ten on a side."""
    positive, known = (labels > 0.5).sum(axis=0), (~np.isnan(labels)).sum(axis=0)
    return bool(np.median(np.minimum(positive, known - positive)) < MIN_CASES_FOR_BEST)


def _validate(plan: dict[str, Any], fold: int, valid: Cases, limit: float) -> dict[str, Any]:
    """What the fold's best weights say on its validation part, seen once and, as far as `limit` seconds go, in views."""
    device = device_of(plan)
    model = load_best(build_model(plan), f"fold{fold}", device)
    batch, views, use = 2 * micro_batch(plan), _views(plan), plan.get("tta", {}).get("use", False)
    start = time.monotonic()
    logits, labels, _ = run_model(model, valid, device, batch)
    once = time.monotonic() - start
    seen = np.full_like(logits, np.nan)
    if use and len(views) > 1:
        every = 1 if use is True else max(1, int(np.ceil(once * len(views) / max(limit, 0.1))))
        rows = np.arange(0, len(valid), every)
        seen[rows] = run_model(model, torch.utils.data.Subset(valid, rows.tolist()), device, batch, views)[0]
    done = done_of(f"fold{fold}")
    case = once / max(len(valid), 1)
    return {**done, "logits": logits, "seen": seen, "labels": labels, "cases": valid, "case": case}


def _views(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return make_views(plan.get("tta") or {}, plan["augment"].get("flip", []), int(plan["dims"]))


def choose_views(plan: dict[str, Any], results: list[dict[str, Any]]) -> tuple[np.ndarray, dict[str, Any]]:
    """(N, K) logits to go on with, and why: views are used where they lower the loss and stay within the time."""
    logits, seen = (np.concatenate([result[key] for result in results]) for key in ("logits", "seen"))
    labels, kind = np.concatenate([result["labels"] for result in results]), kind_of(plan)
    views = _views(plan)
    rows = np.isfinite(seen).all(axis=1)
    if not rows.any():
        return logits, {"views": [{}], "figures": {"used": False}}
    losses = [kind.view_loss(part, labels[rows]) for part in (logits[rows], seen[rows])]
    asked = 1 if plan.get("refit") else len(results)
    seconds = float(np.mean([result["case"] for result in results])) * len(views) * asked
    use = plan["tta"]["use"]
    if use == "auto":
        use = losses[1] < losses[0] * (1 - GAIN) and seconds <= float(plan["tta"]["max_seconds"])
    figures = {"used": bool(use), "loss_once": round(losses[0], 4), "loss_views": round(losses[1], 4)}
    figures |= {"views": len(views), "cases": int(rows.sum()), "seconds_per_case": round(seconds, 4)}
    chosen = np.where(rows[:, None], seen, logits) if use else logits
    return chosen, {"views": views if use else [{}], "figures": figures}


def finish(plan: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """metrics.json, calibration.json, valid_predictions.json, curves.png, from all cases that networks were not trained on."""
    logits, looked = choose_views(plan, results)
    held = gather(plan, results, logits)
    logits, labels, records, kind = held.logits, held.labels, held.records, kind_of(plan)
    apart = (None, None) if held.shared is None else (held.shared, held.networks)
    fitted = kind.calibrate(logits, labels, people_of(records), *apart)
    figures = {name: round(value, 4) for name, value in kind.figures(logits, labels, held.networks).items()}
    metrics = {
        "validation": {**figures, "cases": len(labels)},
        "networks": held.figures,
        "recall": kind.recall(logits, labels),
        "calibration": fitted.pop("figures"),
        "tta": looked.pop("figures"),
        "epochs": [result["epochs"] for result in results],
        "best_epoch": [result["best_epoch"] for result in results],
        "seconds": round(sum(result["seconds"] for result in (*results, done_of(ALL) or {"seconds": 0.0})), 1),
    }
    if plan.get("refit"):
        metrics["refit"] = done_of(ALL)
    note_members(plan)
    np.savez(
        LOGOUT / "valid_logits.npz",
        logits=logits,
        labels=labels,
        **({} if held.shared is None else {"shared": held.shared}),
    )
    (LOGOUT / "calibration.json").write_text(json.dumps({**fitted, **looked}, indent=2))
    (LOGOUT / "valid_predictions.json").write_text(
        json.dumps(_rows(plan, records, kind.scores(logits), labels), indent=1)
    )
    draw_curves()
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    said = f"{len(labels)} held-out cases"
    if len(results) > 1:
        said += (
            f", each by one of {len(results)} networks"
            if (held.networks >= 0).all()
            else f", the average of {len(results)} networks"
        )
    said += f", mean of {len(looked['views'])} views of each" if len(looked["views"]) > 1 else ""
    said += ", of networks that the delivered one, trained on every case, is not" if plan.get("refit") else ""
    print(f"done: {kind.told(metrics, said)}", flush=True)


@dataclass(frozen=True)
class HeldOut:
    """Answers to the cases that networks were not trained on.

    Attributes:
        logits: (H, K), of a single network or of the average of all.
        labels: (H, ...).
        networks: (H,) the network that gave each row; -1 for the average of all.
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


def gather(plan: dict[str, Any], results: list[dict[str, Any]], logits: np.ndarray) -> HeldOut:
    """Each held-out case once: answered by the delivered average if no network was trained on any of them, else by one network."""
    kind, several = kind_of(plan), len(results) > 1
    owners = np.repeat(np.arange(len(results)), [len(result["labels"]) for result in results])
    rows, first, place = np.unique(
        np.concatenate([result["cases"].rows for result in results]), return_index=True, return_inverse=True
    )
    labels = np.concatenate([result["labels"] for result in results])
    table = np.zeros((len(results), len(rows), logits.shape[1]), logits.dtype)
    answered = np.zeros(table.shape[:2], bool)
    table[owners, place], answered[owners, place] = logits, True
    found = [kind.figures(logits[owners == k], labels[owners == k]) for k in range(len(results))]
    figures = [{name: round(value, 4) for name, value in one.items() if np.isfinite(value)} for one in found]
    shared, at = answered.all(axis=0), np.arange(len(rows))
    networks = np.where(shared, at % len(results), answered.argmax(axis=0))
    chosen = table[networks, at]
    average = several and not plan.get("refit")
    if average and shared.all():
        chosen, networks = table.mean(axis=0), np.full(len(rows), -1)
    every = [record for result in results for record in result["cases"].records]
    records = [{**every[k], "fold": int(network)} for k, network in zip(first, networks, strict=True)]
    apart = table[:, shared] if average and shared.any() and not shared.all() else None
    return HeldOut(chosen, labels[first], networks, records, apart, figures)


def _rows(plan: dict[str, Any], records: list[Any], scores: np.ndarray, labels: np.ndarray) -> list[dict[str, Any]]:
    kind = kind_of(plan)
    return [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "fold": record["fold"],
            **kind.row(record, score, truth),
        }
        for record, score, truth in zip(records, scores, labels, strict=True)
    ]
