"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, calibration.json, curves.png, fold<k>/best.safetensors.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads cost most of the time on a busy machine

import numpy as np
import torch
from Datapath.dataloader import Cases, build_datasets
from Model.network import build_model
from Utils.augment import Augment
from Utils.clock import NotFinite, OutOfMemory, seconds_spent
from Utils.curves import draw_curves
from Utils.kinds import kind_of
from Utils.launch import count_of, launched, side_by_side
from Utils.looks import micro
from Utils.pretrained_trial import settle_start, settled, trial_seconds
from Utils.price import final_seconds
from Utils.scoring import make_scorer, run_model
from Utils.start import begin, cores, guarded, trains_on_cpu
from Utils.together import first, first_alone
from Utils.training import FEW, Parts, device_of, load_best, train_by_clock
from Utils.tta import make_views

LOGOUT = Path("Logout")
GAIN = 0.01
"""Averaging over views must lower the validation loss by this share to be worth its time."""


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted training stopped")
    parser.add_argument("--minutes", type=float, help="instead of the plan's")
    parser.add_argument(
        "--only", nargs=2, metavar=("FOLD", "SECONDS"), help="one fold, beside others: train.py calls it so"
    )
    options = parser.parse_args(argv)
    plan = json.loads(Path("plan.json").read_text())
    if options.only:
        return only(plan, int(options.only[0]), float(options.only[1]))
    given = sys.argv[1:] if argv is None else argv
    if int(plan["folds"]) < 2 and (code := launched(plan, given)) is not None:
        return code
    minutes = options.minutes or float(plan["minutes"])
    begin(options.resume, on_cpu=trains_on_cpu(plan))
    return guarded(lambda: train(plan, minutes))


def train(plan: dict[str, Any], minutes: float) -> None:
    """From the question what to start from to the figures."""
    torch.set_num_threads(max(1, int(plan.get("threads") or cores())))

    def trial(side: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
        return train_fold(side, name, *build_datasets(side, 0), seconds)

    plan = settle_start(plan, minutes * 60, kind_of(plan).watch, trial)
    minutes -= trial_seconds() / 60
    beside(plan, minutes)
    results = train_folds(plan, minutes)
    if first():
        finish(plan, results)


def beside(plan: dict[str, Any], minutes: float) -> None:
    """Where there are several folds and several GPUs: the folds at the same time, one a GPU. What is left undone (a process
    broke down) is for `train_folds`."""
    folds = [fold for fold in range(int(plan["folds"])) if not (LOGOUT / f"fold{fold}" / "done.json").exists()]
    count = min(count_of(plan), len(folds))
    if int(plan["folds"]) < 2 or count < 2:
        return
    build_datasets(plan, 0)  # the cache is filled once
    seconds = (minutes * 60 - final_seconds(minutes)) / -(-len(folds) // count)
    print(f"{len(folds)} folds, {count} at a time, {seconds:.0f} s each", flush=True)
    codes = side_by_side(plan, [["--resume", "--only", str(fold), f"{seconds:.1f}"] for fold in folds], count)
    if 3 in codes:
        raise NotFinite(f"fold {folds[codes.index(3)]}: see above")
    if 4 in codes:
        raise OutOfMemory(f"the least batch (fold {folds[codes.index(4)]})")


def only(plan: dict[str, Any], fold: int, seconds: float) -> int:
    """The exit code of one fold's training, while others are trained beside it."""
    torch.set_num_threads(max(1, int(plan.get("threads") or cores() // count_of(plan))))
    plan = settled(plan)
    return guarded(lambda: _trained(plan, fold, seconds))


def _trained(plan: dict[str, Any], fold: int, seconds: float) -> None:
    train_fold(plan, f"fold{fold}", *build_datasets(plan, fold), seconds)


def train_folds(plan: dict[str, Any], minutes: float) -> list[dict[str, Any]]:
    """Every fold in turn, each with an equal part of the time that is left; finished ones are not trained again."""
    folds = int(plan["folds"])
    spent = [seconds_spent(LOGOUT / f"fold{fold}") for fold in range(folds)]  # by earlier starts
    reserve = final_seconds(minutes)
    results: list[dict[str, Any]] = []
    start = 0.0
    for fold in range(folds):
        with first_alone():
            train, valid = build_datasets(plan, fold)
        start = start or time.monotonic()  # decoding every image for the first time is no training
        if not (LOGOUT / f"fold{fold}" / "done.json").exists():
            left = minutes * 60 - (time.monotonic() - start) - sum(spent) - reserve
            seconds = (left + sum(spent[fold:])) / (folds - fold)
            told = f"{plan['max_steps']} steps" if plan.get("max_steps") else f"{seconds:.0f} s"
            print(f"fold {fold}: {len(train)} training cases, {len(valid)} validation cases, {told}", flush=True)
            train_fold(plan, f"fold{fold}", train, valid, seconds)
        if first():
            results.append(_validate(plan, fold, valid, reserve / folds))
    return results


def train_fold(plan: dict[str, Any], name: str, train: Cases, valid: Cases, seconds: float) -> dict[str, Any]:
    """Leaves best.safetensors and done.json, which it returns, in Logout/<name>."""
    augment = Augment(plan["augment"])

    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "pixel_values": augment(batch["pixel_values"])}

    def make(plan: dict[str, Any]) -> Parts:
        model = build_model(plan)
        scorer = make_scorer(plan, valid)
        last = too_few(valid.labels[valid.rows])
        return Parts(model, train, scorer, prepare, groups=model.groups(plan), keep_last=last)

    return train_by_clock(plan, name, make, seconds=seconds, watch=kind_of(plan).watch)


def too_few(labels: np.ndarray) -> bool:
    """Whether the best AUROC of so few cases, (N, K), would be chance: the median class has fewer than `FEW` on a side."""
    positive = (labels > 0.5).sum(axis=0)
    return bool(np.median(np.minimum(positive, len(labels) - positive)) < FEW)


def _validate(plan: dict[str, Any], fold: int, valid: Cases, limit: float) -> dict[str, Any]:
    """What the fold's best weights say on its validation part, seen once and, as far as `limit` seconds go, in views."""
    device = device_of(plan)
    model = load_best(build_model(plan), f"fold{fold}", device)
    batch, views, use = 2 * micro(plan), _views(plan), plan.get("tta", {}).get("use", False)
    start = time.monotonic()
    logits, labels, _ = run_model(model, valid, device, batch)
    once = time.monotonic() - start
    seen = np.full_like(logits, np.nan)
    if use and len(views) > 1:
        every = 1 if use is True else max(1, int(np.ceil(once * len(views) / max(limit, 0.1))))
        rows = np.arange(0, len(valid), every)
        seen[rows] = run_model(model, torch.utils.data.Subset(valid, rows.tolist()), device, batch, views)[0]
    done = json.loads((LOGOUT / f"fold{fold}" / "done.json").read_text())
    case = once / max(len(valid), 1)
    records = [{**record, "fold": fold} for record in valid.records]
    return {**done, "logits": logits, "seen": seen, "labels": labels, "records": records, "case": case}


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
    seconds = float(np.mean([result["case"] for result in results])) * len(views) * len(results)
    use = plan["tta"]["use"]
    if use == "auto":
        use = losses[1] < losses[0] * (1 - GAIN) and seconds <= float(plan["tta"]["max_seconds"])
    figures = {"used": bool(use), "loss_once": round(losses[0], 4), "loss_views": round(losses[1], 4)}
    figures |= {"views": len(views), "cases": int(rows.sum()), "seconds_per_case": round(seconds, 4)}
    chosen = np.where(rows[:, None], seen, logits) if use else logits
    return chosen, {"views": views if use else [{}], "figures": figures}


def finish(plan: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """metrics.json, calibration.json, valid_predictions.json, curves.png; the figures cover all folds together."""
    logits, looked = choose_views(plan, results)
    labels = np.concatenate([result["labels"] for result in results])
    records = [record for result in results for record in result["records"]]
    kind = kind_of(plan)
    patients = [str(record.get("patient") or json.dumps(record["image_path"])) for record in records]
    fitted = kind.calibrate(logits, labels, patients)
    figures = {name: round(value, 4) for name, value in kind.figures(logits, labels).items()}
    metrics = {
        "validation": {**figures, "cases": len(labels)},
        "calibration": fitted.pop("figures"),
        "tta": looked.pop("figures"),
        "epochs": [result["epochs"] for result in results],
        "best_epoch": [result["best_epoch"] for result in results],
        "seconds": round(sum(result["seconds"] for result in results), 1),
    }
    np.savez(LOGOUT / "valid_logits.npz", logits=logits, labels=labels)
    (LOGOUT / "calibration.json").write_text(json.dumps({**fitted, **looked}, indent=2))
    (LOGOUT / "valid_predictions.json").write_text(
        json.dumps(_rows(plan, records, kind.scores(logits), labels), indent=1)
    )
    draw_curves()
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    held = f"{len(labels)} held-out cases" + (f" of {len(results)} folds together" if len(results) > 1 else "")
    print(f"done: {kind.told(metrics, held)}", flush=True)


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


if __name__ == "__main__":
    sys.exit(main())
