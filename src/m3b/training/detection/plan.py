"""Looks at the training cases and writes plan.json, which every other file here obeys. Edit it as you see fit.

python plan.py --keep --set lr=0.0003      changes the plan.json that is there
python plan.py --time-only      says what the plan.json that is there, edited or not, makes of its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 longest=384 patch=[256,256] ...]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.detection.detector_plan import asked_detector, kept_network, use_detector
from m3b.training.detection.detectors import is_library
from m3b.training.detection.fewshot.comparison import OWN
from m3b.training.detection.fewshot.planning import add_engine, choose_engine, follow, only_few_shot, states_plan
from m3b.training.detection.fewshot.planning import told as engine_told
from m3b.training.detection.fingerprint import fingerprint
from m3b.training.detection.gpu_fit import STEP_COSTS, ways_of
from m3b.training.detection.grid import grid, refit
from m3b.training.detection.index import read_index
from m3b.training.detection.intensity import choose_changes, choose_intensity
from m3b.training.detection.plan_cost import costs
from m3b.training.detection.plan_summary import counted, summary, told_worth
from m3b.training.detection.short_training import RATE, Coarser, fewer, narrower
from m3b.training.folds import check_members, choose_of_cases, count, rounds
from m3b.training.gpu_fitting import choose_precision_and_layout, fit_gpu, for_machine, share_gpus
from m3b.training.machine import machine_of
from m3b.training.named_channels import channels_of, intensity_of
from m3b.training.patch_time_budget import told_pace
from m3b.training.plan_options import read_options
from m3b.training.plan_settings import given, override, priced, save_plan
from m3b.training.pretrained.plan_start import start_from, trained_share, without_start
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.time_budget import NO_LIMIT, Way, fit, steps_of, told

ENOUGH = 3000
"""Steps that each network of a fold needs before several are worth more than one that is trained for longer."""
GRID = ("patch", "longest", "spacing")
LEAST = 400
"""Steps below which a coarser grid or a narrower network is worth more than detail."""


def main(argv: list[str] | None = None) -> None:
    options = read_options(__doc__, argv)
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = fingerprint(read_index(), label_dict)
    asked, options.set = _backbone(options.set)
    options.set = asked_detector(options.set, facts)
    machine = options.machine(has_gpu())
    options.set += ["device=cpu"] if options.device == "cpu" else []
    gpu = machine.gpus > 0
    if options.time_only or options.keep:
        plan = priced(options.set)
        check_members(plan, facts["patients"])
        if options.keep:
            change(facts, plan, options.set, gpu, asked)
        print(pace(facts, plan))
        if options.keep:
            save_plan(plan)
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
        plan = {key: value for key, value in plan.items() if key not in ("folds", "refit", "why_folds", "mirror")}
        change(facts, plan, options.set, False, "")
        save_plan(plan)
        print("\n".join([counted(facts), why, *engine_told(plan), told_worth(facts, plan)]))
        print("wrote plan.json (every run of plan.py starts afresh; --set changes single values)")
        print(pace(facts, plan))
        return
    only_few_shot(given(options.set), why)
    plan = make_plan(facts, options.minutes, gpu)
    for_machine(plan, machine)
    apply(facts, plan, without_start(options.set), gpu)
    facts["start"] = _start(facts, plan, options.set, gpu)
    said = fit_minutes(facts, plan, options.set, gpu)
    if not plan["why_folds"]:
        choose_folds(facts, plan, options.set)
    check_members(plan, facts["patients"])
    said.append(pace(facts, plan))
    save_plan(plan)
    print("\n".join([summary(facts, plan), *([why] if why else []), *said]))


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


def apply(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> None:
    """What was set goes into the plan; what follows from another grid or patch is fitted to it, but for what was set."""
    for setting in settings:
        override(plan, setting)
    if given(settings) & set(GRID):
        refit(facts, plan, gpu, patch=plan["patch"] if "patch" in given(settings) else None)
        for setting in settings:
            if setting.partition("=")[0] not in GRID:
                override(plan, setting)
    if "network.detector" in given(settings) and is_library(plan):
        use_detector(facts, plan, gpu)
        for setting in settings:
            if setting.startswith(("network.", "compile=")):
                override(plan, setting)


def _start(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> str:
    """What network.pretrained makes of the plan, in words."""
    if not is_library(plan):
        return start_from(plan, settings, override, width=32 if gpu else 16, cell=_cell(facts, plan))

    def build(network: Mapping[str, Any], dims: int, channels: int) -> Any:
        from m3b.training.detection.library_detectors import LibraryBoxes

        return LibraryBoxes({**plan, "network": network})

    return start_from(plan, settings, override, build, **kept_network(plan))


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
        "intensity": intensity_of(facts, choose_intensity),
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
        "max_epochs": NO_LIMIT,
        "patience": 400,
        "minutes": minutes,
        "folds": 1,
        "refit": False,
        "why_folds": "",
        "validation_share": 0.2 if small else 0.15,
        "ema": 0.99,
        "augment": choose_changes(facts),
        "mirror": "auto",
        "precision": "bf16" if gpu else "fp32",
        "device": "auto",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }
    return plan


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> list[str]:
    """The quicker precision, and a plan that its minutes hold; on a GPU one that its memory holds too. What was set is kept."""
    kept = given(settings)
    choose_precision_and_layout(plan, kept, step_seconds)
    own = not plan["network"].get("pretrained")  # else its form is that of its weights
    grid_way = Coarser(facts, gpu)
    ways: list[Way] = [] if "batch" in kept else [fewer]
    ways += [narrower] if own and not any(key.startswith("network.") for key in kept) else []
    ways += [grid_way] if own and not kept & {*GRID, "network.anchors"} else []
    if gpu:  # whether its GPUs share folds or a batch comes before what their memory holds
        choose_folds(facts, plan, settings)
        share_gpus(plan, 16 * machine_of(plan).gpus, kept)
        return fit_gpu(plan, STEP_COSTS, ways_of(facts, kept, ways), _steps, LEAST, kept)
    said = fit(plan, ways, _steps, LEAST)
    if not own:
        return told(said)
    if said and grid_way in ways and (wider := grid_way.widen(plan)):
        said.append(wider)
    if said and plan["target"] == "masks" and "lr" not in kept:
        plan["lr"] = RATE
        said.append(f"lr {RATE}")
    if said:
        choose_precision_and_layout(plan, kept, step_seconds)
    return told(said)


def choose_folds(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> None:
    """Puts `folds`, `refit` and why into the plan."""
    choose_of_cases(plan, facts, lambda: _all_steps(plan), ENOUGH, given(settings), max(1, machine_of(plan).gpus))


def _all_steps(plan: dict[str, Any]) -> float:
    return steps_of(plan, step_seconds(plan)) * trained_share(plan)


def _steps(plan: dict[str, Any]) -> int:
    return steps_of(plan, step_seconds(plan), rounds(plan))


def step_seconds(plan: dict[str, Any]) -> float:
    """Seconds of the quickest of a few training steps on noise, estimated for a machine that is not here."""
    return seconds_of_step(plan, STEP_COSTS)


def pace(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """How far the minutes will go."""
    if plan.get("engine", "patches") != "patches":
        return f"training ends after {plan['minutes']} minutes or its epochs, whatever comes first"
    share = 1 / count(plan) if count(plan) > 1 else float(plan["validation_share"])
    length = max(int(plan["patches"]), round(int(facts["cases"]) * (1 - share)))
    return told_pace(plan, lambda: costs(facts, plan), max(1, -(-length // int(plan["batch"]))), LEAST // 2)
