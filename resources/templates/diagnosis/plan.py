"""Looks at the training cases and writes plan.json, which every other file here obeys. Edit it as you see fit.

python plan.py --minutes 10 [--set lr=0.001 network.name=densenet121 size=[128,128] ...]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py does, so that the pace is that of training

import numpy as np
from Utils.formats import ImageError
from Utils.images import read_image

SAMPLE = 200


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="wall time that train.py may take")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides; a dot enters an object")
    options = parser.parse_args(argv)
    records = json.loads(Path("Datapath/train.json").read_text())
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = fingerprint(records, label_dict)
    plan = make_plan(facts, options.minutes, has_gpu())
    for setting in options.set:
        override(plan, setting)
    Path("plan.json").write_text(json.dumps(plan, indent=2) + "\n")
    print(summary(facts, plan))
    print(pace(plan, facts["cases"]))


def has_gpu() -> bool:
    """Asked of torch, and only here: the rest of this file needs NumPy alone."""
    import torch

    return bool(torch.cuda.is_available())


def fingerprint(records: list[dict[str, Any]], label_dict: dict[str, int]) -> dict[str, Any]:
    """What was measured: counts from every record, image properties from a sample of up to 200."""
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])]
    lists = [r["labels"] if isinstance(r["labels"], list) else [r["labels"]] for r in records]
    counts = Counter(classes[v] if isinstance(v, int) else v for labels in lists for v in labels)
    sample = random.Random(0).sample(records, min(SAMPLE, len(records)))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda record: _measure(record["image_path"]), sample))
    read = [item for item in found if isinstance(item, dict)]
    if not read:
        raise SystemExit(f"none of {len(sample)} sampled training images can be read; first: {found[0]}")
    dims = Counter(item["dims"] for item in read).most_common(1)[0][0]
    same = [item for item in read if item["dims"] == dims]
    spacings = [item["spacing"] for item in same if item["spacing"]]
    return {
        "cases": len(records),
        "patients": len({str(r.get("patient") or r["image_path"]) for r in records}),
        "classes": classes,
        "counts": {name: counts.get(name, 0) for name in classes},
        "multi_label": any(len(labels) != 1 for labels in lists),
        "dims": dims,
        "channels": Counter(item["channels"] for item in same).most_common(1)[0][0],
        "modality": Counter(item["modality"] for item in same).most_common(1)[0][0],
        "eight_bit": all(item["eight_bit"] for item in same),
        "shapes": np.array([item["shape"] for item in same]),
        "spacing": [float(v) for v in np.median(spacings, axis=0)] if len(spacings) > len(same) / 2 else None,
        "low": float(np.median([item["low"] for item in same])),
        "high": float(np.median([item["high"] for item in same])),
        "mean": float(np.mean([item["mean"] for item in same])),
        "std": float(np.mean([item["std"] for item in same])),
        "unreadable": [item for item in found if isinstance(item, str)],
    }


def _measure(path: str | list[str]) -> dict[str, Any] | str:
    try:
        image = read_image(path)
    except ImageError as error:
        return str(error)
    low, high = (float(v) for v in np.percentile(image.array, (0.5, 99.5)))
    return {
        "dims": image.dims,
        "channels": int(image.array.shape[0]),
        "shape": image.array.shape[1:],
        "spacing": image.spacing,
        "modality": image.modality,
        "eight_bit": image.array.dtype == np.uint8,
        "low": low,
        "high": high,
        "mean": float(image.array.mean()),
        "std": float(image.array.std()),
    }


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool) -> dict[str, Any]:
    """The choices; `summary` tells their reasons."""
    small, dims = facts["cases"] < 500, facts["dims"]
    size = _size(facts, gpu)
    voxels = int(np.prod(size))
    batch = int(np.clip((2**19 if gpu else 2**18) * (4 if dims == 3 else 2) // voxels, 2, 64))
    batch = max(2, min(batch, 16 if small else 64, facts["cases"] // 4))
    counts = np.array([max(facts["counts"][name], 1) for name in facts["classes"]], float)
    if facts["multi_label"]:
        weights = np.clip((facts["cases"] - counts) / counts, 0.2, 10.0)
    else:
        weights = np.clip((counts.sum() / (len(counts) * counts)) ** 0.5, 0.2, 5.0)
    network: dict[str, Any] = {"name": "small_cnn", "width": 16}
    if gpu:
        network = {"name": "resnet18" if small else "densenet121"}
    network["dropout"] = 0.4 if small else 0.2
    return {
        "task": "diagnosis",
        "classes": facts["classes"],
        "multi_label": facts["multi_label"],
        "dims": dims,
        "channels": 1 if facts["channels"] in (2, 4) and facts["eight_bit"] else min(facts["channels"], 4),
        "size": size,
        "spacing": None,
        "fit": "stretch",
        "intensity": _intensity(facts),
        "network": network,
        "batch": batch,
        "lr": 3e-4 if small and gpu else 1e-3,
        "weight_decay": 0.1 if small else 0.02,
        "label_smoothing": 0.05,
        "class_weights": [round(float(v), 4) for v in weights],
        "max_epochs": 1000 if small else 200,
        "patience": 200 if small else 60,
        "minutes": minutes,
        "folds": _folds(facts, minutes),
        "validation_share": 0.15,
        "ema": 0.99,
        "augment": _augment(facts, small),
        "device": "auto",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }


def _size(facts: dict[str, Any], gpu: bool) -> list[int]:
    median = np.median(facts["shapes"], axis=0)
    if facts["dims"] == 2:
        longest = float(median.max())
        if longest <= 64:
            return [max(16, round(float(v) / 4) * 4) for v in median]
        side = min(320 if gpu else 224, longest)
        if not gpu and not 500 <= facts["cases"] <= 3000:
            side = min(side, 128)  # few cases: more epochs in the same time were worth more than more pixels
        return [max(32, round(side / 16) * 16)] * 2
    limit = 128 if gpu else 64
    return [int(np.clip(round(float(v) / 8) * 8, 16, limit)) for v in median]


def _intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: a window in Hounsfield units. 8-bit pictures: 0..1, since brightness can tell. MR and the rest: each by itself."""
    if facts["modality"] == "ct":
        low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
        low, high = (low, high) if high - low > 100 else (-1000.0, 1000.0)
        return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}
    if facts["eight_bit"]:
        return {"mode": "unit", "mean": round(facts["mean"] / 255, 4), "std": max(round(facts["std"] / 255, 4), 0.02)}
    return {"mode": "percentile"}


def _folds(facts: dict[str, Any], minutes: float) -> int:
    """Small sets overfit before the time is over: the time then goes into an ensemble over patient-wise folds."""
    fewest = min(count for count in facts["counts"].values() if count) if any(facts["counts"].values()) else 0
    if facts["cases"] >= 500 or fewest < 5 or facts["patients"] < 20:
        return 1
    return int(np.clip(minutes / 0.5, 1, 5)) if minutes >= 1.5 else 1


def _augment(facts: dict[str, Any], small: bool) -> dict[str, Any]:
    """No flips by default: left and right matter in the body. Skin, retina and microscopy (colour) get both."""
    more = 1.5 if small else 1.0
    tiny = max(np.median(facts["shapes"], axis=0)) <= 64
    return {
        "flip": ["h", "w"] if facts["dims"] == 2 and facts["channels"] >= 3 else [],
        "rotate": round(10 * more),
        "zoom": round(0.1 * more, 3),
        "shift": round(0.05 * more, 3),
        "contrast": round(0.15 * more, 3),
        "brightness": round(0.1 * more, 3),
        "gamma": 0.0 if tiny else 0.2,
        "noise": 0.05,
        "erase": 0.0 if tiny else 0.25,
    }


def pace(plan: dict[str, Any], cases: int) -> str:
    """How far the minutes will go, from the quickest of eight training steps on noise."""
    import torch
    from Model.network import build_model

    device = "cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu"
    model = build_model(plan).to(device).train()
    images = torch.randn(int(plan["batch"]), int(plan["channels"]), *plan["size"], device=device)
    labels = torch.zeros(int(plan["batch"]), len(plan["classes"]), device=device)
    labels[:, 0] = 1.0
    taken = []
    for _ in range(8):
        start = time.monotonic()
        model(images, labels)["loss"].backward()
        taken.append(time.monotonic() - start)
    folds = int(plan["folds"])
    share = 1 - 1 / folds if folds > 1 else 1 - float(plan["validation_share"])
    steps = max(1, int(cases * share) // int(plan["batch"]))
    epoch = 1.3 * steps * min(taken)  # validation and the averaging of weights take about a third more
    epochs = float(plan["minutes"]) * 60 / folds / max(epoch, 1e-3)
    model_is = f"each of {folds} models" if folds > 1 else "the model"
    return f"an epoch takes about {epoch:.1f} s here, so {model_is} gets about {min(epochs, plan['max_epochs']):.0f} epochs"


def override(plan: dict[str, Any], setting: str) -> None:
    """`network.name=resnet18`: JSON where it parses, text where it does not."""
    key, sign, text = setting.partition("=")
    *path, last = key.split(".")
    place = plan
    for part in path:
        place = place.get(part, {})
    if not sign or (not path and last not in plan):
        raise SystemExit(f"--set {setting}: not KEY=VALUE with a key of plan.json ({', '.join(plan)})")
    try:
        place[last] = json.loads(text)
    except json.JSONDecodeError:
        place[last] = text


def summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What was found and decided, in a few lines."""
    shapes = facts["shapes"]
    kind = "several labels a case" if plan["multi_label"] else "one label a case"
    lines = [
        f"{facts['cases']} cases of {facts['patients']} patients, {kind}: {facts['counts']}",
        f"{facts['dims']}D, {facts['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {facts['spacing'] or 'unknown'}",
        f"input {plan['size']} (resized: the whole field of view is kept), intensity {plan['intensity']}",
        f"network {plan['network']}, batch {plan['batch']}, lr {plan['lr']}, weight decay {plan['weight_decay']}"
        + (" (few cases: strongly regularised)" if facts["cases"] < 500 else ""),
        f"augmentation {plan['augment']}, class weights {plan['class_weights']}; weights start at random",
        f"{plan['minutes']} minutes, "
        + (
            f"{plan['folds']} models, one a fold of patients" if plan["folds"] > 1 else "one model, validation held out"
        ),
    ]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled images cannot be read: {facts['unreadable'][0]}")
    empty = [name for name, count in facts["counts"].items() if not count]
    if empty:
        lines.append(f"no training case for: {', '.join(empty)}")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


if __name__ == "__main__":
    main()
