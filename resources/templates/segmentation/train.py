"""Trains what plan.json describes, within its minutes. Ends with 0, 3 (loss not finite) or 4 (out of memory).

    python train.py [--resume] [--minutes M]

Writes Logout/: log.csv, metrics.json, valid_predictions.json, curves.png, and the weights (model0/best.safetensors).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads cost most of the time on a busy machine

import numpy as np
import torch
from Utils.clock import seconds_spent
from Utils.curves import draw_curves
from Utils.launch import launched
from Utils.start import alone, begin, cores, guarded, trains_on_cpu
from Utils.together import first, first_alone

LOGOUT = Path("Logout")
NAME = "model0"


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true", help="go on where an interrupted training stopped")
    parser.add_argument("--minutes", type=float, help="instead of the plan's")
    options = parser.parse_args(argv)
    plan = json.loads(Path("plan.json").read_text())
    if (code := launched(plan, sys.argv[1:] if argv is None else argv)) is not None:
        return code
    seconds = (options.minutes or float(plan["minutes"])) * 60
    begin(options.resume, on_cpu=trains_on_cpu(plan))
    torch.set_num_threads(max(1, int(plan.get("threads") or cores())))
    if plan["engine"] == "nnunet":
        from Utils.nnunet import train_nnunet

        alone("nnunet")

        return guarded(lambda: train_nnunet(plan, seconds, finish))
    return guarded(lambda: train(plan, seconds))


def train(plan: dict[str, Any], seconds: float) -> None:
    """The trainer engine, from the cache to the figures."""
    from Datapath.dataloader import build_datasets
    from Utils.blind import blind_dice
    from Utils.choosing import candidates
    from Utils.pretrained_trial import settle_start, trial_seconds
    from Utils.price import final_seconds
    from Utils.training import train_by_clock

    def trial(side: dict[str, Any], name: str, share: float) -> dict[str, Any]:
        return train_by_clock(side, name, maker(*build_datasets(side)), seconds=share, watch="dice", shrink=shrink)

    plan = settle_start(plan, seconds, "dice", trial)
    seconds -= trial_seconds()
    with first_alone():
        train_set, valid_set = build_datasets(plan)
    volumes = train_set.volumes
    masks, truths = ([volumes.mask(int(row)) for row in part.rows] for part in (train_set, valid_set))
    blind = blind_dice(masks, truths, plan)
    print(
        f"{len(set(train_set.rows))} training cases, {len(valid_set)} validation cases; the mean shape of the training masks, "
        f"which looks at no image, has a validation Dice of {blind:.3f}",
        flush=True,
    )

    left = seconds - final_seconds(_case_seconds(plan, valid_set), len(valid_set), seconds, bool(candidates(plan)))
    spent = seconds_spent(LOGOUT / NAME)
    done = train_by_clock(plan, NAME, maker(train_set, valid_set), seconds=left + spent, watch="dice", shrink=shrink)
    if not first():
        return
    table, extra = settle_all(plan, valid_set, masks, seconds)
    finish(plan, table, valid_set.records, done, {"mean_shape_dice": round(blind, 4), **extra})


def maker(train_set: Any, valid_set: Any) -> Callable[[dict[str, Any]], Any]:
    """Builds the parts of a training from a plan, which may have been made smaller."""
    from Model.network import build_model
    from Utils.adapting import groups
    from Utils.augment_masks import AugmentMasks
    from Utils.price import SCORED
    from Utils.scoring import dice_table, mean_dice, subset
    from Utils.training import FEW, Parts

    rows = subset(valid_set, SCORED)

    def make(now: dict[str, Any]) -> Parts:
        augment = AugmentMasks(now["augment"])

        def prepare(batch: dict[str, Any]) -> dict[str, Any]:
            image, mask = augment.pair(batch["pixel_values"], batch["labels"], now["patch"])
            return {**batch, "pixel_values": image, "labels": mask}

        def scorer(model: torch.nn.Module, device: torch.device) -> dict[str, float]:
            table = dice_table(model, valid_set, rows, now, device)
            columns = zip(now["classes"], table.T, strict=True)
            each = {f"dice_{name}": float(np.nanmean(column)) for name, column in columns if _any(column)}
            return {"dice": mean_dice(table), **(each if len(each) > 1 else {})}

        train_set.resize(now["patch"], augment.reach(now["patch"]))
        model, last = build_model(now), now.get("keep") != "best" or len(valid_set) < FEW
        return Parts(model, train_set, scorer, prepare, groups=groups(model, now), keep_last=last)

    return make


def settle_all(
    plan: dict[str, Any], valid_set: Any, masks: list[np.ndarray], seconds: float
) -> tuple[np.ndarray, dict[str, Any]]:
    """The kept weights on every validation case: what they choose goes into the plan; (N, K) Dice, and other figures."""
    from Datapath.dataloader import patient_of
    from Model.network import build_model
    from Utils import surfaces
    from Utils.blind import mean_shape
    from Utils.choosing import look, settle, told
    from Utils.price import MIRRORED
    from Utils.training import device_of, load_best

    device = device_of(plan)
    model = load_best(build_model(plan), NAME, device)
    looked = look(model, valid_set, plan, device, MIRRORED * seconds)
    table = settle(plan, looked, [patient_of(record) for record in valid_set.records])
    borders = surfaces.compare(model, valid_set, plan, device, mean_shape(masks, plan))
    print(f"{told(plan)}\n{surfaces.told(borders, plan)}", flush=True)
    return table, {**borders, "empty": int(looked.empty.sum()), "falsely_marked": _false(table, looked.empty)}


def _false(table: np.ndarray, empty: np.ndarray) -> int:
    """Cases in which nothing is to be marked and something is."""
    return int(np.isfinite(table[empty]).any(axis=1).sum()) if empty.any() else 0


def _any(column: np.ndarray) -> bool:
    return bool(np.isfinite(column).any())


def _case_seconds(plan: dict[str, Any], cases: Any) -> float:
    """Seconds that predicting a validation case takes, guessed from one of them."""
    from Model.network import build_model
    from Utils.scoring import run_whole
    from Utils.training import device_of

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
    from Utils.windows import steps_of

    steps = steps_of(plan)
    smaller = [max(2 * step, int(size * 0.75) // step * step) for size, step in zip(plan["patch"], steps, strict=True)]
    if smaller == list(plan["patch"]) or math.prod(smaller) >= math.prod(plan["patch"]):
        return False
    plan["patch"] = smaller
    return True


def finish(
    plan: dict[str, Any],
    table: np.ndarray,
    records: list[dict[str, Any]],
    done: dict[str, Any],
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """metrics.json, valid_predictions.json, curves.png; the plan as it was really trained, in trained.json.

    Args:
        extra: more figures of the same cases: Dice, NSD and HD95 beside those of the mean shape, cases without marks.
    """
    from Utils.scoring import mean_dice

    classes = plan["classes"]
    each = {name: _rounded(np.nanmean(c)) for name, c in zip(classes, table.T, strict=True) if _any(c)}
    figures = {"dice": round(mean_dice(table), 4), "dice_by_class": each, "cases": len(table)}
    figures |= extra
    metrics = {"validation": figures, **{key: done[key] for key in ("epochs", "seconds", "steps", "best_epoch")}}
    rows = [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "dice": {name: _rounded(value) for name, value in zip(classes, values, strict=True)},
        }
        for record, values in zip(records, table, strict=True)
    ]
    (LOGOUT / "trained.json").write_text(json.dumps(plan, indent=1))
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(rows, indent=1))
    draw_curves()
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    print(told(figures, classes), flush=True)


def told(figures: Mapping[str, Any], classes: list[str]) -> str:
    """The end of a training, for people."""
    dice, each, blind = figures["dice"], figures["dice_by_class"], figures.get("mean_shape_dice")
    lines = [f"done: validation Dice {dice} on {figures['cases']} held-out cases; by class {each}"]
    if blind is not None:
        verdict = "above" if dice > blind else "NOT above"
        lines.append(f"{verdict} the mean shape of the training masks, which looks at no image: Dice {blind}")
    if empty := figures.get("empty"):
        false = figures["falsely_marked"]
        lines.append(
            f"in {empty} held-out cases nothing is to be marked: {empty - false} are left empty (and not in the mean), "
            f"{false} are falsely marked (and count as Dice 0)"
        )
    if lost := [name for name in classes if name not in each]:
        lines.append(f"not measured, since no held-out mask has them on the plan's grid: {', '.join(lost)}")
    return "\n".join(lines)


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


if __name__ == "__main__":
    sys.exit(main())
