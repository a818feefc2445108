"""Looks at the training cases and writes plan.json, which every other file here obeys. Edit it as you see fit.

python plan.py --minutes 10 [--set lr=0.001 longest=384 patch=[256,256] ...]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py does, so that the pace is that of training

import numpy as np
from Datapath.fingerprint import fingerprint
from Datapath.index import read_index
from Utils.settings import override


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="wall time that train.py may take")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides; a dot enters an object")
    options = parser.parse_args(argv)
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = fingerprint(read_index(), label_dict)
    gpu = has_gpu() and "device=cpu" not in options.set
    plan = make_plan(facts, options.minutes, gpu)
    before = dict(plan)
    for setting in options.set:
        override(plan, setting)
    if plan["patch"] == before["patch"] and any(plan[key] != before[key] for key in ("longest", "spacing")):
        refit(facts, plan, gpu)
    Path("plan.json").write_text(json.dumps(plan, indent=2) + "\n")
    print(summary(facts, plan))
    print(pace(plan))


def has_gpu() -> bool:
    """Asked of torch, and only here."""
    import torch

    return bool(torch.cuda.is_available())


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool) -> dict[str, Any]:
    """The choices; `summary` tells their reasons."""
    boxes, dims, small = facts["target"] == "boxes", facts["dims"], facts["cases"] < 500
    plan: dict[str, Any] = {
        "task": "detection",
        "target": facts["target"],
        "classes": facts["classes"],
        "labels": None if boxes else facts["labels"],
        "overlap": True,
        "points": "lesions",
        "dims": dims,
        "channels": 1 if facts["channels"] in (2, 4) and facts["eight_bit"] else min(facts["channels"], 4),
        "intensity": _intensity(facts),
        **_grid(facts, gpu),
    }
    refit(facts, plan, gpu)
    plan |= {
        "foreground": 0.33 if boxes and dims == 2 else 0.5,
        "loss": {"boxes": 1.0} if boxes else {"voxel": "focal", "alpha": 0.4, "beta": 0.6},
        "lr": 1e-3 if boxes else 2e-3,
        "weight_decay": 0.02,
        "max_epochs": 2000,
        "patience": 400,
        "minutes": minutes,
        "validation_share": 0.2 if small else 0.15,
        "ema": 0.99,
        "augment": _augment(facts),
        "device": "auto",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }
    return plan


def _grid(facts: dict[str, Any], gpu: bool) -> dict[str, Any]:
    """How far images are shrunk: to what the device can look at, but so that small lesions keep a few pixels."""
    median = np.median(facts["shapes"], axis=0)
    sides = facts["sides"]
    small = float(np.percentile(sides[:, :2].min(axis=1), 20)) if len(sides) else 8.0
    keep = max(1.0, small / (6.0 if facts["target"] == "boxes" else 4.0))  # shrinking further loses small lesions
    if facts["dims"] == 2:
        wanted = (1024 if gpu else 256) / float(median.max())
        top = (1536 if gpu else 512) / float(median.max())
        share = min(1.0, max(wanted, min(1.0 / keep, top)))
        return {"spacing": None, "longest": round(float(median.max()) * share)}
    limit = 2.0**25 if gpu else 2.0**22
    shrink = min(max(1.0, float(np.prod(median)) / limit), keep**3) ** (1 / 3)
    if not facts["spacing"]:
        return {"spacing": None, "longest": round(float(median.max()) / shrink)}
    spacing = np.array(facts["spacing"])
    volume = float(np.prod(spacing)) * shrink**3
    while np.prod(spacing) < volume * 0.97:  # the finest axis gives way: thick slices are not made thicker
        spacing[int(np.argmin(spacing))] *= 1.03
    return {"spacing": [round(float(v), 4) for v in spacing], "longest": None}


def refit(facts: dict[str, Any], plan: dict[str, Any], gpu: bool) -> None:
    """Patch, network and batch for the plan's spacing or longest side."""
    shapes = facts["shapes"].astype(float)
    if plan["spacing"] and facts["spacing"]:
        shapes = shapes * np.array(facts["spacing"]) / np.array(plan["spacing"])
    elif plan["longest"]:
        shapes = shapes * np.minimum(1.0, plan["longest"] / shapes.max(axis=1, keepdims=True))
    spacing = np.array(plan["spacing"] or [1.0] * plan["dims"])
    boxes, dims = plan["target"] == "boxes", plan["dims"]
    if dims == 2:
        largest, limit = np.percentile(shapes, 95, axis=0), 2**20 if gpu else (2**18 if boxes else 2**16)
    else:
        largest, limit = np.median(shapes, axis=0), 2**21 if gpu else 3 * 2**15
    patch = largest.copy()
    while np.prod(patch) > limit * 1.1:  # the physically longest side gives way
        patch[int(np.argmax(patch * spacing))] *= 0.94
    strides = _strides(patch, spacing, 5 if dims == 2 and boxes else 4)
    reduction = np.prod(np.array(strides), axis=0)
    plan["patch"] = [int(max(step, np.ceil(n / step - 0.3) * step)) for n, step in zip(patch, reduction, strict=True)]
    if boxes:
        plan["network"] = {"name": "centers", "width": 32 if gpu else 16, "strides": strides, "out_stage": 2}
        if dims == 3:
            plan["network"]["out_stage"] = 1 if _small_cells(facts, plan, strides) else 2
    else:
        filters = [min((32 if gpu else 16) * 2**k, 320 if gpu else 128) for k in range(len(strides) + 1)]
        plan["network"] = {
            "name": "dynunet",
            "filters": filters,
            "strides": [[1] * dims, *strides],
            "kernels": _kernels(spacing, strides),
            "dropout": 0.0,
        }
    voxels = float(np.prod(plan["patch"]))
    most = (2**23 if gpu else 2**18) if dims == 3 else (2**22 if gpu else 2**19 if boxes else 2**18)
    plan["batch"] = int(np.clip(most // voxels, 2, 16))
    plan["least_batch"] = 1
    plan["patches"] = max(8 * plan["batch"], min(facts["cases"], 512))


def _small_cells(facts: dict[str, Any], plan: dict[str, Any], strides: list[list[int]]) -> bool:
    """Whether the small boxes would be less than two cells wide at a quarter of the resolution."""
    if not len(facts["sides"]):
        return False
    scale = np.array(facts["spacing"] or [1.0] * 3) / np.array(plan["spacing"] or [1.0] * 3)
    if plan["longest"]:
        scale = scale * min(1.0, plan["longest"] / float(np.median(facts["shapes"].max(axis=1))))
    cell = np.prod(np.array(strides[:2]), axis=0)
    return bool((np.percentile(facts["sides"] * scale, 20, axis=0) < 2 * cell).any())


def _strides(patch: np.ndarray, spacing: np.ndarray, most: int) -> list[list[int]]:
    """Halvings: an axis is halved while it is long enough and not much coarser than the finest (as nnU-Net does)."""
    size, grain, strides = patch.copy(), spacing.astype(float).copy(), []
    for _ in range(most):
        able = (size >= 8) & (grain <= 2 * grain.min())
        if not able.any():
            break
        strides.append([2 if one else 1 for one in able])
        size, grain = np.where(able, size / 2, size), np.where(able, grain * 2, grain)
    while len(strides) < 2:
        strides.append([1] * len(patch))
    return strides


def _kernels(spacing: np.ndarray, strides: list[list[int]]) -> list[list[int]]:
    """3 wide, 1 across slices that are still much thicker than the pixels."""
    grain, kernels = spacing.astype(float).copy(), []
    for stride in [[1] * len(spacing), *strides]:
        grain = grain * np.array(stride)
        kernels.append([3 if one <= 2 * grain.min() else 1 for one in grain])
    return kernels


def _intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: a window in Hounsfield units around the lesions. 8-bit pictures: 0..1. MR and the rest: each by itself."""
    if facts["modality"] == "ct":
        low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
        if facts["target"] == "masks":  # soft tissue around the lesions, not the whole range from air to bone
            low = max(low, facts["inside_low"] - 120.0)
            high = min(max(high, facts["inside_high"]), facts["inside_high"] + 120.0)
        low, high = (low, high) if high - low > 50 else (-1000.0, 1000.0)
        return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}
    if facts["eight_bit"]:
        return {"mode": "unit", "mean": round(facts["mean"] / 255, 4), "std": max(round(facts["std"] / 255, 4), 0.02)}
    return {"mode": "percentile"}


def _augment(facts: dict[str, Any]) -> dict[str, Any]:
    """No flips by default: left and right matter in the body. Skin, retina and microscopy (colour) get both."""
    flat = facts["dims"] == 2
    return {
        "flip": ["h", "w"] if flat and facts["channels"] >= 3 else [],
        "rotate": 10 if flat else 8,
        "zoom": 0.15,
        "shift": 0.05 if facts["target"] == "boxes" else 0.0,
        "contrast": 0.2,
        "brightness": 0.15,
        "gamma": 0.2,
        "noise": 0.05,
        "often": 0.5,
    }


def pace(plan: dict[str, Any]) -> str:
    """How far the minutes will go, from the quickest of up to four training steps on noise."""
    import torch
    from Model.network import build_model

    device = "cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu"
    model = build_model(plan).to(device).train()
    dims, batch = int(plan["dims"]), int(plan["batch"])
    images = torch.randn(batch, int(plan["channels"]), *plan["patch"], device=device)
    truth: dict[str, Any] = {"labels": torch.zeros(batch, len(plan["classes"]), *plan["patch"], device=device)}
    if plan["target"] == "boxes":
        truth = {"boxes": torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * batch, device=device)}
    taken: list[float] = []
    while len(taken) < 4 and sum(taken) < 5:
        start = time.monotonic()
        model(images, **truth)["loss"].backward()
        taken.append(time.monotonic() - start)
    steps = float(plan["minutes"]) * 60 * 0.75 / max(min(taken), 1e-4)
    epoch = max(1, int(plan["patches"]) // batch)
    return (
        f"a step of {batch} patches takes about {min(taken):.2f} s here, so {plan['minutes']:g} minutes make about "
        f"{steps:.0f} steps, {steps / epoch:.0f} epochs of {epoch} steps"
    )


def summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What was found and decided, in a few lines."""
    shapes, sides = facts["shapes"], facts["sides"]
    what = "boxes" if plan["target"] == "boxes" else "lesions in the masks looked at"
    lines = [
        f"{facts['cases']} cases of {facts['patients']} patients, {facts['ill_share']:.0%} with a finding; {what}: "
        f"{facts['counts']}",
        f"{facts['dims']}D, {facts['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {facts['spacing'] or 'unknown'}",
        (f"sides of {what}: median {_sides(sides, 50)} pixels, the smallest tenth {_sides(sides, 10)} or less")
        if len(sides)
        else "no lesion in the sample",
        f"working grid: spacing {plan['spacing']}, longest side {plan['longest']}; patches {plan['patch']}, batch "
        f"{plan['batch']}, {plan['foreground']:.0%} of them on a lesion; intensity {plan['intensity']}",
        f"network {plan['network']}",
        f"lr {plan['lr']}, augmentation {plan['augment']}; weights start at random",
        worth(facts["patients"], float(plan["validation_share"])),
    ]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled cases cannot be used: {facts['unreadable'][0]}")
    if facts["odd"]:
        lines.append(f"{len(facts['odd'])} boxes in the sample reach over the border: {facts['odd'][0]}")
    empty = [name for name, count in facts["counts"].items() if not count]
    if empty:
        lines.append(f"no lesion in the sample for: {', '.join(empty)}")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


def _sides(sides: np.ndarray, share: float) -> str:
    return " x ".join(f"{v:.0f}" for v in np.percentile(sides, share, axis=0))


def worth(patients: int, share: float) -> str:
    """How far figures of so few patients can be trusted, plainly."""
    if patients == 1:
        return "one patient: nothing can be said about any other; the figures only show that the training works"
    if patients < 4:
        return (
            f"{patients} patients: one is held out for validation, the others are trained on. A figure of one patient "
            "has no interval; thresholds chosen on it will flatter it. Take the model as a first try, not as evidence"
        )
    held = max(1, round(patients * share))
    few = ": a rough figure, thresholds chosen on it flatter it" if held < 10 else ""
    return f"validation on about {held} of {patients} patients{few}"


if __name__ == "__main__":
    main()
