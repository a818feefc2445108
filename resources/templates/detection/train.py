"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, calibration.json, curves.png, model/best.safetensors.
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
from Datapath.dataloader import Patches, build_datasets, collate
from Model.inference import window_count
from Model.network import build_model
from Utils.augment_boxes import AugmentBoxes
from Utils.augment_masks import AugmentMasks
from Utils.curves import draw_curves
from Utils.launch import launched
from Utils.people import people
from Utils.price import END_SHARE, SCORED_SHARE
from Utils.scoring import Scorer, final_boxes, final_masks
from Utils.start import alone, begin, cores, guarded, trains_on_cpu
from Utils.together import first, first_alone
from Utils.training import FEW, Parts, device_of, load_best, train_by_clock

LOGOUT = Path("Logout")
NAME = "model"
WATCH = {"boxes": "map_50", "masks": "quality"}


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted training stopped")
    parser.add_argument("--minutes", type=float, help="instead of the plan's")
    options = parser.parse_args(argv)
    plan = json.loads(Path("plan.json").read_text())
    if (code := launched(plan, sys.argv[1:] if argv is None else argv)) is not None:
        return code
    begin(options.resume, on_cpu=trains_on_cpu(plan))
    torch.set_num_threads(max(1, int(plan.get("threads") or cores())))
    return guarded(lambda: run(plan, options.minutes or float(plan["minutes"])))


def run(plan: dict[str, Any], minutes: float) -> None:
    """Trains, then writes what is known of the kept weights."""
    if plan.get("engine", "patches") != "patches":
        from Fewshot.run import run_fewshot

        alone(str(plan["engine"]))
        run_fewshot(plan, minutes)
        return
    with first_alone():
        train, valid = build_datasets(plan)
    whose = people(record.get("patient") or record["image_path"] for record in valid.records)
    print(f"{len(train.records)} training cases; {len(valid)} validation cases of {whose}", flush=True)
    each = seconds_a_case(plan, valid)
    end = min(END_SHARE * minutes * 60, 1.5 * each * len(valid) + 2.0)
    seconds = max(1.0, minutes * 60 - end)

    def make(smaller: dict[str, Any]) -> Parts:
        change = AugmentBoxes(smaller["augment"]) if plan["target"] == "boxes" else _pairs(smaller)
        valid.resize(smaller["patch"], smaller["patch"])
        train.resize(smaller["patch"], room_of(smaller))
        scorer = Scorer(smaller, valid, max(1.0, SCORED_SHARE * minutes * 60))
        last = len(valid) < FEW
        return Parts(build_model(smaller), train, scorer, prepare=change, collate=collate, keep_last=last)

    done = train_by_clock(plan, NAME, make, seconds=seconds, watch=WATCH[plan["target"]], shrink=shrink)
    if first():
        finish(plan, valid, done, max(1, int(end / max(1.5 * each, 1e-3))))


def room_of(plan: dict[str, Any]) -> list[int]:
    """What is cut for a training patch: masks need room to be turned in, boxes do not."""
    patch = [int(n) for n in plan["patch"]]
    return patch if plan["target"] == "boxes" else AugmentMasks(plan["augment"]).reach(patch)


def _pairs(plan: dict[str, Any]) -> Any:
    change = AugmentMasks(plan["augment"])

    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        images, labels = change.pair(batch["pixel_values"], batch["labels"], plan["patch"])
        return {**batch, "pixel_values": images, "labels": labels}

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


def finish(plan: dict[str, Any], valid: Patches, done: dict[str, Any], most: int) -> None:
    """metrics.json, valid_predictions.json, calibration.json, curves.png, from as many validation cases as time allows."""
    device = device_of(plan)
    model = load_best(build_model(plan), NAME, device)
    rows = Scorer(plan, valid, 0.0).rows
    rows = [*rows, *[int(row) for row in valid.rows if int(row) not in set(rows)]][: max(most, 2)]
    final = (final_boxes if plan["target"] == "boxes" else final_masks)(model, valid, plan, device, rows)
    figures = {name: round(value, 4) if np.isfinite(value) else None for name, value in final["figures"].items()}
    patients = len({json.dumps(row["patient"] or row["image"]) for row in final["rows"]})
    whose = people(row["patient"] or row["image"] for row in final["rows"])
    by_class = {
        metric: {name: round(value, 4) if np.isfinite(value) else None for name, value in values.items()}
        for metric, values in final["by_class"].items()
    }
    metrics = {
        "validation": {**figures, "cases": len(rows), "patients": patients},
        "by_class": by_class,
        "epochs": [done["epochs"]],
        "best_epoch": [done["best_epoch"]],
        "seconds": done["seconds"],
    }
    (LOGOUT / "calibration.json").write_text(json.dumps({**final["config"], "patch": plan["patch"]}, indent=2))
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(final["rows"], indent=1))
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    draw_curves()
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
    few = "; so few patients say little about others" if patients < 10 else ""
    print(f"done: validation {told} on {len(rows)} held-out cases of {whose}{few}", flush=True)
    for metric, values in by_class.items() if len(plan["classes"]) > 1 else ():
        print(
            f"{metric.replace('_', ' ')} by class: {', '.join(f'{name} {value}' for name, value in values.items())}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
