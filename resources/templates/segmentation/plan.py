"""Looks at the training cases and writes plan.json, which every other file here obeys. Edit it as you see fit.

python plan.py --minutes 10 [--set engine=nnunet lr=0.001 network.name=segresnet patch=[64,64,64] ...]
"""

from __future__ import annotations

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py does, so that the pace is that of training

import numpy as np
from Utils.extent import disbelieved
from Utils.fingerprint import fingerprint
from Utils.pace import choose_precision, fit, quickest, steps_of, told
from Utils.scales import joined, mixed
from Utils.settings import override, save_plan
from Utils.shapes import choose_patch, round_up, topology, working_spacing
from Utils.thrift import NARROW, coarser, epoch_patches, filters, hurry, narrower, one_patch

NNUNET_MINUTES = 60
LEAST = 600
"""Steps below which a coarser grid or a narrower network is worth more than detail."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of training; imports and first reading come on top"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides; a dot enters an object")
    options = parser.parse_args(argv)
    from Datapath.dataloader import read_index

    records = read_index()
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = fingerprint(records, label_dict)
    plan = make_plan(facts, options.minutes, has_gpu(), options.set)
    said = [] if plan["engine"] == "nnunet" else [*fit_minutes(facts, plan, options.set), pace(plan)]
    save_plan(plan)
    print("\n".join([summary(facts, plan), *said]))


def has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool, settings: list[str] | None = None) -> dict[str, Any]:
    """The choices; `summary` tells their reasons. `settings` are applied at the end; patch and spacing are obeyed."""
    given = {key: json.loads(text) for key, _, text in (s.partition("=") for s in settings or []) if key in _EARLY}
    spacing, pixels, side, shape = working_spacing(facts, gpu)
    if "spacing" in given:
        shape = [max(1, round(n * a / b)) for n, a, b in zip(shape, spacing, given["spacing"], strict=True)]
        spacing, side = given["spacing"], None
    patch = given.get("patch") or choose_patch(shape, spacing, facts["dims"], gpu)
    strides, kernels = topology(patch, spacing)
    patch = round_up(patch, strides)
    voxels = int(np.prod(patch))
    batch = int(np.clip((2**22 if gpu else 2**17) * (1 if facts["dims"] == 3 else 0.5) // voxels, 2, 32))
    batch = max(1, min(batch, facts["cases"] - 1))
    engine, why = choose_engine(facts, minutes, gpu)
    width = 32 if gpu else 16
    plan: dict[str, Any] = {
        "task": "segmentation",
        "engine": engine,
        "why_engine": why,
        "classes": facts["classes"],
        "labels": facts["labels"],
        "overlap": facts["overlap"],
        "dims": facts["dims"],
        "channels": min(facts["channels"], 16),
        "spacing": None if side else spacing,
        "extent": facts["extent"],
        "pixels": pixels,
        "side": side,
        "intensity": _intensity(facts),
        "pad_value": 0.0,
        "patch": patch,
        "network": {
            "name": "unet",
            "filters": filters(width, len(strides), facts["dims"]),
            "strides": strides,
            "kernels": kernels,
            "residual": False,
            "deep_supervision": True,
            "dropout": 0.0,
        },
        "loss": {"voxel": "ce", "alpha": 0.5, "beta": 0.5, "weights": None},
        "foreground": 0.5 if any(n > p for n, p in zip(shape, patch, strict=True)) else 0.33,
        "epoch_patches": epoch_patches(facts["cases"], batch),
        "batch": batch,
        "least_batch": 1,
        "lr": 2e-3,
        "weight_decay": 0.01,
        "clip": 5.0,
        "ema": 0.995,
        "max_epochs": 5000,
        "patience": 2000,
        "minutes": minutes,
        "validation_share": 0.15,
        "augment": _augment(facts, spacing),
        "mirror": [],
        "precision": "bf16" if gpu else "fp32",
        "device": "auto",
        "workers": min(8, os.cpu_count() or 1) if gpu else 0,
        "threads": 0,
        "seed": 0,
    }
    plan["pad_value"] = _pad_value(facts, plan["intensity"])
    for setting in settings or []:
        if not setting.startswith("patch="):  # already there, rounded to what the network can divide
            override(plan, setting)
        if setting.startswith("engine="):
            plan["why_engine"] = "asked for with --set"
    _check(plan)
    return plan


_EARLY = ("patch", "spacing")


def choose_engine(facts: dict[str, Any], minutes: float, gpu: bool) -> tuple[str, str]:
    """`nnunet` where it is installed and has the time that it is made for; else `trainer`."""
    if facts["overlap"]:
        return "trainer", "classes may overlap: a channel each, which the trainer engine has"
    if not find_spec("nnunetv2"):
        return "trainer", "nnunetv2 is not installed (pip install nnunetv2 to have the other engine)"
    if not gpu:
        return "trainer", "no GPU: nnU-Net's epochs are long, the trainer engine uses the minutes better"
    if minutes < NNUNET_MINUTES:
        return (
            "trainer",
            f"{minutes:g} minutes: below {NNUNET_MINUTES} the trainer engine uses them better than nnU-Net",
        )
    return "nnunet", f"GPU and {minutes:g} minutes: nnU-Net's own recipe"


def _check(plan: dict[str, Any]) -> None:
    if plan["engine"] not in ("trainer", "nnunet"):
        raise SystemExit(f"engine {plan['engine']!r}: known are trainer and nnunet")
    if plan["engine"] == "nnunet" and not find_spec("nnunetv2"):
        print("nnunetv2 is not installed (pip install nnunetv2): engine trainer is taken instead")
        plan["engine"], plan["why_engine"] = "trainer", "nnunetv2 is not installed"
    if plan["engine"] == "nnunet" and plan["overlap"]:
        raise SystemExit("engine nnunet cannot hold overlapping classes: use engine=trainer")


def _intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: the window of what is marked, in Hounsfield units. 8-bit pictures: 0..1. MR, mixtures: each by itself."""
    if facts["window"]:
        return joined(facts["window"])
    if len(facts["scales"]) > 1:
        return {"mode": "percentile"}
    if facts["modality"] == "ct":
        inside = facts["inside"]
        low, high = (float(v) for v in np.percentile(inside, (0.5, 99.5))) if len(inside) else (-1000.0, 1000.0)
        low, high = (low, high) if high - low > 50 else (low - 150.0, high + 150.0)
        values = (np.clip(inside, low, high) - low) / (high - low) if len(inside) else np.array([0.3, 0.7])
        mean, std = float(values.mean()), max(float(values.std()), 0.05)
        return {"mode": "window", "low": round(low), "high": round(high), "mean": round(mean, 3), "std": round(std, 3)}
    if facts["eight_bit"]:
        return {"mode": "unit", "mean": round(facts["mean"] / 255, 4), "std": max(round(facts["std"] / 255, 4), 0.02)}
    return {"mode": "percentile"}


def _pad_value(facts: dict[str, Any], rule: dict[str, Any]) -> float:
    """What surrounds an image in the network's eyes: its darkest value."""
    if rule["mode"] == "percentile":
        return round(max(-5.0, (facts["low"] - facts["mean"]) / max(facts["std"], 1e-6)), 3)
    return round(-rule["mean"] / rule["std"], 3)


def _augment(facts: dict[str, Any], spacing: list[float]) -> dict[str, Any]:
    """No flips by default: left and right matter in the body. Skin, retina and microscopy (colour) get both."""
    flat = facts["dims"] == 3 and max(spacing) / min(spacing) > 3
    return {
        "often": 0.6,
        "flip": ["h", "w"] if facts["dims"] == 2 and facts["channels"] == 3 else [],
        "rotate": 15,
        "tilt": 0 if flat or facts["dims"] == 2 else 10,
        "zoom": 0.15,
        "shift": 0.05,
        "contrast": 0.2,
        "brightness": 0.15,
        "gamma": 0.25,
        "noise": 0.1,
        "blur": 0.7,
    }


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """On a processor: the quicker precision, and a plan that is cheap enough for its minutes. What was set is kept."""
    if plan["device"] != "cpu" and has_gpu():
        return []
    given = {setting.partition("=")[0] for setting in settings}
    if "precision" not in given:
        choose_precision(plan, step_seconds, cases=1)
    cases, network = int(facts["cases"]), plan["network"]["name"]
    ways = {"batch": one_patch(cases), "network.filters": narrower, "spacing": coarser(facts)}
    kept = given | ({"spacing"} if plan["side"] or "patch" in given or "network.strides" in given else set())
    chosen = [way for key, way in ways.items() if key not in kept] if network == "unet" else []
    said = fit(plan, chosen, lambda p: steps_of(p, step_seconds(p)), LEAST)
    if said and plan["network"]["filters"][0] <= NARROW:
        said += hurry(facts, plan, given)
    return told(said)


def pace(plan: dict[str, Any]) -> str:
    """How far the minutes will go, from a few training steps on noise."""
    step = step_seconds(plan)
    if step == float("inf"):
        return "a step does not fit into memory: train.py will go on with a smaller batch or patch"
    per_epoch, steps = -(-int(plan["epoch_patches"]) // int(plan["batch"])), steps_of(plan, step)
    few = " (few: more minutes would help)" if steps < LEAST / 2 else ""
    return (
        f"a step of {plan['batch']} patches takes {step:.2f} s in {plan['precision']}: about {steps} steps, "
        f"{steps / per_epoch:.0f} epochs{few}"
    )


def step_seconds(plan: dict[str, Any]) -> float:
    """Seconds of the quickest of a few training steps on noise; infinite where memory or the processor does not do."""
    import torch
    from Model.network import build_model

    device = "cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu"
    shape = (int(plan["batch"]), *plan["patch"])
    try:
        model = build_model(plan).to(device).train()
        images = torch.randn(shape[0], int(plan["channels"]), *plan["patch"], device=device)
        layers = (shape[0], len(plan["classes"]), *plan["patch"]) if plan["overlap"] else shape
        labels = torch.randint(0, 2, layers, device=device)

        def step() -> None:
            model(images, labels)["loss"].backward()
            if device == "cuda":
                torch.cuda.synchronize()

        return quickest(step)
    except RuntimeError as error:
        if plan["precision"] == "bf16" or "memory" in str(error):
            return float("inf")  # not every processor can, and train.py makes smaller what does not fit
        raise SystemExit(f"patch {plan['patch']} does not go through {plan['network']['name']}: {error}") from error


def summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What was found and decided, in a few lines."""
    shapes, spacings = facts["shapes"], facts["spacings"]
    sizes = {name: int(np.median([n for n in found if n] or [0])) for name, found in facts["sizes"].items()}
    known = np.round(np.median(spacings, axis=0), 3).tolist() if spacings is not None else "unknown"
    lines = [
        f"{facts['cases']} cases of {facts['patients']} patients; voxels marked in a case (median): {sizes}"
        + (f"; {facts['empty']} of {facts['sampled']} looked at have an empty mask" if facts["empty"] else ""),
        f"{facts['dims']}D, {facts['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {known}",
        f"engine {plan['engine']}: {plan['why_engine']}",
        f"works at spacing {plan['spacing']}{' (in pixels)' if plan['pixels'] else ''}, patches {plan['patch']} "
        f"(median image there: {_median_there(facts, plan)}), intensity {plan['intensity']}",
        f"network {plan['network']}, batch {plan['batch']}, lr {plan['lr']}, {plan['foreground']:.0%} of patches on "
        "marked voxels",
        f"augmentation {plan['augment']}",
        f"{plan['minutes']} minutes, one model, {plan['validation_share']:.0%} of the cases held out by patient",
    ]
    if facts["patients"] < 4:
        lines.append(f"only {facts['patients']} patients: validation rests on one of them, and its figure says little")
    lines += [*mixed(facts), *disbelieved(facts)]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled cases cannot be used: {facts['unreadable'][0]}")
    rare = [name for name, found in facts["sizes"].items() if not any(found)]
    if rare:
        lines.append(f"in no sampled mask: {', '.join(rare)} (does label_dict.json fit the masks?)")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


def _median_there(facts: dict[str, Any], plan: dict[str, Any]) -> list[int]:
    median = np.median(facts["shapes"], axis=0)
    if plan["side"]:
        return [round(float(n) * plan["side"] / float(max(median))) for n in median]
    own = [1.0] * len(median) if plan["pixels"] else np.median(facts["spacings"], axis=0)
    return [round(float(n * s / w)) for n, s, w in zip(median, own, plan["spacing"], strict=True)]


if __name__ == "__main__":
    main()
