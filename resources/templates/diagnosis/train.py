"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, curves.png, and fold<k>/best.safetensors.
"""

from __future__ import annotations

import time

START = time.monotonic()  # the slow imports below are part of the minutes

import argparse
import json
import os
import shutil
import sys
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
from transformers import PrinterCallback, ProgressCallback, TrainingArguments, set_seed
from Utils.curves import draw_curves
from Utils.ranks import balanced_accuracy, macro_auroc
from Utils.trainer import ByTheClock, Clock, FoldTrainer, NotFinite, probabilities, run_model

LOGOUT = Path("Logout")


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted training stopped")
    parser.add_argument("--minutes", type=float, help="instead of the plan's")
    options = parser.parse_args(argv)
    plan = json.loads(Path("plan.json").read_text())
    minutes = options.minutes or float(plan["minutes"])
    if not options.resume:
        _clean()
    LOGOUT.mkdir(exist_ok=True)
    try:
        results = train_folds(plan, minutes)
    except NotFinite as error:
        print(f"training ended: {error}. Lower lr in plan.json, or look for broken intensities in the data.")
        return 3
    except OutOfMemory as error:
        print(f"training ended: out of memory even with {error}. Make size or network smaller in plan.json.")
        return 4
    finish(plan, results)
    return 0


def _cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class OutOfMemory(RuntimeError):
    """No smaller batch is left to try."""


def _clean() -> None:
    """A fresh start keeps nothing but the cache of decoded images."""
    for item in LOGOUT.glob("*"):
        if item.name.startswith("fold"):
            shutil.rmtree(item)
        elif item.name in ("log.csv", "metrics.json", "valid_predictions.json", "valid_logits.npz", "spent.json"):
            item.unlink()


def train_folds(plan: dict[str, Any], minutes: float) -> list[dict[str, Any]]:
    """Every fold in turn, each with an equal part of the time that is left; finished ones are not trained again."""
    torch.set_num_threads(max(1, int(plan.get("threads") or _cores())))
    results: list[dict[str, Any]] = []
    folds = int(plan["folds"])
    before = _spent_before(folds)
    for fold in range(folds):
        done = LOGOUT / f"fold{fold}" / "done.json"
        train, valid = build_datasets(plan, fold)
        if not done.exists():
            own = _checkpoint_spent(fold)
            left = minutes * 60 - (time.monotonic() - START) - before - 2.0  # the last seconds are for the results
            budget = (left + sum(_checkpoint_spent(k) for k in range(fold, folds))) / (folds - fold)
            print(
                f"fold {fold}: {len(train)} training cases, {len(valid)} validation cases, {budget:.0f} s", flush=True
            )
            _train_until_it_fits(plan, fold, train, valid, budget, own)
        results.append(_validate(plan, fold, valid))
    return results


def _spent_before(folds: int) -> float:
    """Seconds that earlier starts of this training used."""
    finished = [LOGOUT / f"fold{fold}" / "done.json" for fold in range(folds)]
    spent = sum(float(json.loads(file.read_text())["seconds"]) for file in finished if file.exists())
    return spent + sum(_checkpoint_spent(fold) for fold in range(folds) if not finished[fold].exists())


def _last_checkpoint(fold: int) -> Path | None:
    """The newest checkpoint that was written to its end."""
    found = [file.parent for file in (LOGOUT / f"fold{fold}").glob("checkpoint-*/complete.json")]
    return max(found, key=lambda folder: int(folder.name.split("-")[1])) if found else None


def _checkpoint_spent(fold: int) -> float:
    folder = _last_checkpoint(fold)
    return float(json.loads((folder / "complete.json").read_text())["spent"]) if folder else 0.0


def _train_until_it_fits(
    plan: dict[str, Any], fold: int, train: Cases, valid: Cases, budget: float, spent: float
) -> None:
    clock = Clock(budget, int(plan["max_epochs"]), spent)
    while True:
        try:
            return train_fold(plan, fold, train, valid, clock)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "memory" in str(error).lower()
            if not memory or isinstance(error, NotFinite):
                raise
            if plan["batch"] <= 2:
                raise OutOfMemory(f"batch {plan['batch']}") from error
        plan["batch"] = max(2, int(plan["batch"]) // 2)
        print(f"out of memory: going on with batch {plan['batch']}", flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def train_fold(plan: dict[str, Any], fold: int, train: Cases, valid: Cases, clock: Clock) -> None:
    """Trains one fold to the end of its time; leaves best.safetensors and done.json in its folder."""
    folder = LOGOUT / f"fold{fold}"
    folder.mkdir(parents=True, exist_ok=True)
    set_seed(int(plan["seed"]) + fold)
    on_cpu = plan["device"] == "cpu" or not torch.cuda.is_available()
    batch = min(int(plan["batch"]), len(train))
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch * 2,
        num_train_epochs=float(plan["max_epochs"]),
        learning_rate=float(plan["lr"]),
        weight_decay=float(plan["weight_decay"]),
        max_grad_norm=1.0,
        eval_strategy="no",  # the callback evaluates, with the averaged weights
        save_strategy="no",  # and asks for the checkpoints
        logging_strategy="no",
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
        label_names=["labels"],
        use_cpu=on_cpu,
        bf16=not on_cpu and torch.cuda.is_bf16_supported(),
        dataloader_num_workers=int(plan["workers"]),
        dataloader_pin_memory=not on_cpu,
        dataloader_drop_last=len(train) % batch == 1,  # batch normalisation needs two cases
        seed=int(plan["seed"]) + fold,
    )
    trainer = FoldTrainer(
        plan, fold, clock, model=build_model(plan), args=arguments, train_dataset=train, eval_dataset=valid
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(ByTheClock(trainer))
    last = _last_checkpoint(fold)
    if last:
        trainer.restore(last)
        print(f"fold {fold}: going on from {last.name} after {clock.spent():.0f} s", flush=True)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    if not (folder / "best.safetensors").exists():
        trainer.score()
    epochs = round(float(trainer.state.epoch or 0), 2)
    print(
        f"fold {fold}: best validation AUROC {trainer.best[0]:.3f} at epoch {trainer.best_epoch:.0f} of {epochs:.0f}",
        flush=True,
    )
    state = {"epochs": epochs, "seconds": round(clock.spent(), 1), "best_epoch": trainer.best_epoch}
    (folder / "done.json").write_text(json.dumps({**state, "steps": trainer.state.global_step}))
    for old in folder.glob("checkpoint-*"):
        shutil.rmtree(old, ignore_errors=True)


def _validate(plan: dict[str, Any], fold: int, valid: Cases) -> dict[str, Any]:
    """What the fold's best weights say on its validation part."""
    from safetensors.torch import load_file

    folder = LOGOUT / f"fold{fold}"
    device = "cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu"
    model = build_model(plan)
    model.load_state_dict(load_file(str(folder / "best.safetensors")))
    loader = torch.utils.data.DataLoader(valid, batch_size=max(1, int(plan["batch"])))
    logits, labels, _ = run_model(model.to(device), loader, device)
    done = json.loads((folder / "done.json").read_text())
    return {"logits": logits, "labels": labels, "records": valid.records, **done}


def finish(plan: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """metrics.json, valid_predictions.json, valid_logits.npz, curves.png; the figures cover all folds together."""
    logits = np.concatenate([result["logits"] for result in results])
    labels = np.concatenate([result["labels"] for result in results])
    scores = probabilities(logits, bool(plan["multi_label"]))
    records = [record for result in results for record in result["records"]]
    figures = {
        "auroc": round(macro_auroc(labels, scores), 4),
        "balanced_accuracy": round(balanced_accuracy(labels, scores, bool(plan["multi_label"])), 4),
        "cases": len(labels),
    }
    metrics = {
        "validation": figures,
        "epochs": [result["epochs"] for result in results],
        "best_epoch": [result["best_epoch"] for result in results],
        "seconds": round(sum(result["seconds"] for result in results), 1),
    }
    rows = [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "labels": record["labels"],
            "probabilities": {name: round(float(p), 5) for name, p in zip(plan["classes"], row, strict=True)},
        }
        for record, row in zip(records, scores, strict=True)
    ]
    np.savez(LOGOUT / "valid_logits.npz", logits=logits, labels=labels)
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(rows, indent=1))
    draw_curves()
    held = f"{len(labels)} held-out cases" + (f" of {len(results)} folds together" if len(results) > 1 else "")
    print(
        f"done: validation AUROC {figures['auroc']}, balanced accuracy {figures['balanced_accuracy']} on {held}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
