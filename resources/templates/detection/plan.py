"""Looks at the training cases and writes plan.json, which every other file here obeys. Edit it as you see fit.

python plan.py --keep --set lr=0.0003      changes the plan.json that is there
python plan.py --time-only      says what the plan.json that is there, edited or not, makes of its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 longest=384 patch=[256,256] ...]
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py does, so that the pace is that of training

import numpy as np
from Datapath.fingerprint import fingerprint
from Datapath.index import read_index
from Fewshot.planning import add_engine, choose_engine, follow, only_few_shot, states_plan
from Fewshot.planning import told as engine_told
from Fewshot.versus import OWN
from Utils.extent import disbelieved
from Utils.grid import grid, refit
from Utils.named import channels_of, intensity_of, told_names
from Utils.pace import Way, choose_precision, fit, quickest, steps_of, told
from Utils.price import costs
from Utils.scales import by_itself, joined, mixed, told_uneven
from Utils.settings import KEEP, TIME_ONLY, given, override, priced, save_plan
from Utils.sides import harmless, turns
from Utils.thrift import RATE, Coarser, fewer, narrower
from Utils.using import shown, start_from, trained_share, without_start

GRID = ("patch", "longest", "spacing")
LEAST = 400
"""Steps below which a coarser grid or a narrower network is worth more than detail."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of training; imports and first reading come on top"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides; a dot enters an object")
    parser.add_argument("--time-only", action="store_true", help=TIME_ONLY)
    parser.add_argument("--keep", action="store_true", help=KEEP)
    options = parser.parse_args(argv)
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = fingerprint(read_index(), label_dict)
    asked, options.set = _backbone(options.set)
    gpu = has_gpu() and "device=cpu" not in options.set
    if options.time_only or options.keep:
        plan = priced(options.set)
        if options.keep:
            change(facts, plan, options.set, gpu, asked)
            save_plan(plan)
        print(pace(facts, plan))
        return
    normal = int(facts["cases"]) - int(facts["abnormal"])
    engine, backbone, why = choose_engine(facts, normal, int(facts["abnormal"]), asked)
    if engine != "patches":
        if facts["target"] == "states":
            plan = states_plan(facts, options.minutes)
        else:
            plan = make_plan(facts, options.minutes / 2, False)
            if facts["abnormal"]:  # the ordinary detector learns nothing from normal cases alone
                fit_minutes(facts, plan, [], False)
                plan["detector"] = {name: plan[name] for name in OWN}
            plan["minutes"] = options.minutes
        add_engine(plan, engine, backbone, _thing(facts))
        change(facts, plan, options.set, False, "")
        save_plan(plan)
        print("\n".join([counted(facts), why, *engine_told(plan), _worth(facts, plan)]))
        print("wrote plan.json (every run of plan.py starts afresh; --set changes single values)")
        print(pace(facts, plan))
        return
    only_few_shot(given(options.set), why)
    plan = make_plan(facts, options.minutes, gpu)
    apply(facts, plan, without_start(options.set), gpu)
    facts["start"] = start_from(plan, options.set, override, width=32 if gpu else 16, cell=_cell(facts, plan))
    said = fit_minutes(facts, plan, options.set, gpu)
    save_plan(plan)
    print(summary(facts, plan))
    print("\n".join([*([why] if why else []), *said, pace(facts, plan)]))


def _backbone(settings: list[str]) -> tuple[str, list[str]]:
    """The folder that `backbone=FOLDER` names, and the other settings."""
    named = [one.partition("=")[2] for one in settings if one.partition("=")[0] == "backbone"]
    return named[-1].strip('"') if named else "", [one for one in settings if one.partition("=")[0] != "backbone"]


def change(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool, asked: str) -> None:
    """What was set goes into the plan of any engine, with what follows from it."""
    if plan.get("engine", "patches") == "patches":
        apply(facts, plan, settings, gpu)
        return
    if asked:
        _, plan["backbone"], _ = choose_engine(
            facts, int(facts["cases"]) - int(facts["abnormal"]), int(facts["abnormal"]), asked
        )
        plan["engine"] = "fewshot"
    for setting in settings:
        override(plan, setting)
    follow(plan)


def _thing(facts: dict[str, Any]) -> str:
    """What prompts are about, as far as the data tells; an agent that knows the organ sets prompts.object."""
    return {"ct": "CT image", "mr": "MR image"}.get(str(facts["modality"] or ""), "medical image")


def counted(facts: dict[str, Any]) -> str:
    """The cases in a line."""
    return (
        f"{facts['cases']} cases of {facts['people']}, {facts['ill_share']:.0%} with a finding; {facts['dims']}D, "
        f"{facts['channels']} channel(s), sizes {facts['shapes'].min(0).tolist()} to {facts['shapes'].max(0).tolist()}"
    )


def apply(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> None:
    """What was set goes into the plan; what follows from another grid or patch is fitted to it, but for what was set."""
    for setting in settings:
        override(plan, setting)
    if given(settings) & set(GRID):
        refit(facts, plan, gpu, patch=plan["patch"] if "patch" in given(settings) else None)
        for setting in settings:
            if setting.partition("=")[0] not in GRID:
                override(plan, setting)


def _cell(facts: dict[str, Any], plan: dict[str, Any]) -> list[int]:
    """Pixels a side of a position of a box detector that starts from pretrained weights: small boxes are two of them wide at least."""
    smallest = float(np.percentile(facts["sides"], 10)) if len(facts["sides"]) else 16.0
    return [4 if smallest >= 8 else 2] * int(plan["dims"])


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
        **channels_of(facts, 4),
        "intensity": intensity_of(facts, _intensity),
        **grid(facts, gpu),
        "extent": facts["extent"],
    }
    refit(facts, plan, gpu)
    plan |= {
        "foreground": 0.33 if boxes and dims == 2 else 0.5,
        "loss": {"boxes": 1.0, "class_weights": [1.0] * len(facts["classes"])}
        if boxes
        else {"voxel": "focal", "alpha": 0.4, "beta": 0.6},
        "lr": 1e-3 if boxes else 2e-3,
        "weight_decay": 0.02,
        "max_epochs": 2000,
        "patience": 400,
        "minutes": minutes,
        "validation_share": 0.2 if small else 0.15,
        "ema": 0.99,
        "augment": _augment(facts),
        "precision": "bf16" if gpu else "fp32",
        "device": "auto",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }
    return plan


def _intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """CT: a window in Hounsfield units around the lesions. 8-bit pictures: 0..1. MR, mixtures, dark and bright: each by itself."""
    if facts["window"]:
        return joined(facts["window"])
    if len(facts["scales"]) > 1:
        return by_itself(facts)
    if facts["modality"] == "ct":
        low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
        if facts["target"] == "masks":  # soft tissue around the lesions, not the whole range from air to bone
            low = max(low, facts["inside_low"] - 120.0)
            high = min(max(high, facts["inside_high"]), facts["inside_high"] + 120.0)
        low, high = (low, high) if high - low > 50 else (-1000.0, 1000.0)
        return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}
    if facts["eight_bit"] and not facts["uneven"]:
        return {"mode": "unit", "mean": round(facts["mean"] / 255, 4), "std": max(round(facts["std"] / 255, 4), 0.02)}
    return by_itself(facts)


def _augment(facts: dict[str, Any]) -> dict[str, Any]:
    """No flips by default: left and right matter in the body. Skin, retina and microscopy get both, but where a class tells
    a side."""
    flat = facts["dims"] == 2
    return {
        "flip": harmless(["h", "w"] if turns(facts["dims"], facts["channels"]) else [], facts["classes"]),
        "rotate": 10 if flat else 8,
        "zoom": 0.15,
        "shift": 0.05 if facts["target"] == "boxes" else 0.0,
        "contrast": 0.2,
        "brightness": 0.15,
        "gamma": 0.2,
        "noise": 0.05,
        "often": 0.5,
    }


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> list[str]:
    """The quicker precision; on a processor a plan that is cheap enough for its minutes. What was set is kept."""
    kept = given(settings)
    if "precision" not in kept:
        choose_precision(plan, step_seconds)
    if gpu:
        return []
    if plan["network"].get("pretrained"):  # its form is that of its weights
        return told(fit(plan, [] if "batch" in kept else [fewer], lambda p: steps_of(p, step_seconds(p)), LEAST))
    grid_way = Coarser(facts)
    ways: list[Way] = [] if "batch" in kept else [fewer]
    ways += [] if any(key.startswith("network.") for key in kept) else [narrower]
    ways += [] if kept & set(GRID) else [grid_way]
    said = fit(plan, ways, lambda p: steps_of(p, step_seconds(p)), LEAST)
    if said and grid_way in ways and (wider := grid_way.widen(plan)):
        said.append(wider)
    if said and plan["target"] == "masks" and "lr" not in kept:
        plan["lr"] = RATE
        said.append(f"lr {RATE}")
    if said and "precision" not in kept:
        choose_precision(plan, step_seconds)
    return told(said)


def step_seconds(plan: dict[str, Any]) -> float:
    """Seconds of the quickest of a few training steps on noise."""
    import torch
    from Model.network import build_model

    device = "cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu"
    model = build_model(plan).to(device).train()
    dims, batch = int(plan["dims"]), int(plan["batch"])
    images = torch.randn(batch, int(plan["channels"]), *plan["patch"], device=device)
    truth: dict[str, Any] = {"labels": torch.zeros(batch, len(plan["classes"]), *plan["patch"], device=device)}
    if plan["target"] == "boxes":
        truth = {"boxes": torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * batch, device=device)}

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=plan["precision"] == "bf16"):
            loss = model(images, **truth)["loss"]
        loss.backward()
        loss.item()

    return quickest(step)


def pace(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """How far the minutes will go."""
    if plan.get("engine", "patches") != "patches":
        return f"training ends after {plan['minutes']} minutes or its epochs, whatever comes first"
    try:
        found = costs(facts, plan)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise SystemExit(f"patch {plan['patch']} does not go through the network: {error}") from error
        return "a step does not fit into memory: train.py will go on with a smaller batch or patch"
    length = max(int(plan["patches"]), round(int(facts["cases"]) * (1 - float(plan["validation_share"]))))
    seconds, epoch = 60 * float(plan["minutes"]) * trained_share(plan), max(1, -(-length // int(plan["batch"])))
    steps = found.steps(seconds, epoch)
    few = " (few: more minutes, a smaller patch or a coarser grid would help)" if steps < LEAST / 2 else ""
    return (
        f"{found.told(seconds, epoch)}; {steps / epoch:.1f} epochs of {epoch} steps, {plan['batch']} patches each, in "
        f"{plan['precision']}{few}"
    )


def summary(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """What was found and decided, in a few lines."""
    shapes, sides = facts["shapes"], facts["sides"]
    what = "boxes" if plan["target"] == "boxes" else "regions in the masks looked at"
    lines = [
        f"{facts['cases']} cases of {facts['people']}, {facts['ill_share']:.0%} with a finding; {what}: "
        f"{facts['counts']}",
        f"{facts['dims']}D, {facts['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {[round(step, 3) for step in facts['spacing']] if facts['spacing'] else 'unknown'}",
        (f"sides of {what}: median {_sides(sides, 50)} pixels, the smallest tenth {_sides(sides, 10)} or less")
        if len(sides)
        else "nothing marked in the sample",
        f"working grid: spacing {plan['spacing']}, longest side {plan['longest']}; patches {plan['patch']}, batch "
        f"{plan['batch']}, {plan['foreground']:.0%} of them on what is marked; intensity {plan['intensity']}",
        f"network {shown(plan['network'])}",
        f"lr {plan['lr']}, augmentation {plan['augment']}; {facts.get('start', 'weights start at random')}",
        _worth(facts, plan),
    ]
    lines += [*told_names(plan), *mixed(facts), *told_uneven(facts), *facts["averaged"], *disbelieved(facts)]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled cases cannot be used: {facts['unreadable'][0]}")
    if facts["odd"]:
        lines.append(f"{len(facts['odd'])} boxes in the sample reach over the border: {facts['odd'][0]}")
    empty = [name for name, count in facts["counts"].items() if not count]
    if empty:
        lines.append(f"nothing marked in the sample for: {', '.join(empty)}")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


def _sides(sides: np.ndarray, share: float) -> str:
    return " x ".join(f"{v:.0f}" for v in np.percentile(sides, share, axis=0))


def _worth(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    known = not str(facts["people"]).startswith("unknown")
    return worth(facts["patients"], float(plan["validation_share"]), known)


def worth(patients: int, share: float, known: bool = True) -> str:
    """How far figures of so few patients, or cases where nobody knows them, can be trusted, plainly."""
    if patients == 1:
        return "one patient: nothing can be said about any other; the figures only show that the training works"
    if patients < 4:
        return (
            f"{patients} patients: one is held out for validation, the others are trained on. A figure of one patient "
            "has no interval; thresholds chosen on it will flatter it. Take the model as a first try, not as evidence"
        )
    held = max(1, round(patients * share))
    few = ": a rough figure, thresholds chosen on it flatter it" if held < 10 else ""
    return f"validation on about {held} of {patients} {'patients' if known else 'cases'}{few}"


if __name__ == "__main__":
    main()
