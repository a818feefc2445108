"""Looks at the training cases and writes plan.json, which every other file here obeys. Edit it as you see fit.

python plan.py --keep --set lr=0.0003      changes the plan.json that is there
python plan.py --time-only      says what the plan.json that is there, edited or not, makes of its minutes; writes nothing
python plan.py --minutes 10 [--set engine=nnunet lr=0.001 network.name=segresnet patch=[64,64,64] ...]
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.folds import check_members, choose_members, choose_of_cases, choose_parts, rounds
from m3b.training.gpu_fitting import choose_precision_and_layout, fit_gpu, for_machine
from m3b.training.machine import GB, Machine, machine_of
from m3b.training.named_channels import channels_of, intensity_of, padding_of
from m3b.training.parallel_folds import choose_beside
from m3b.training.patch_time_budget import told_pace
from m3b.training.plan_options import read_options
from m3b.training.plan_settings import given, override, priced, save_plan
from m3b.training.pretrained.plan_start import start_from, without_start
from m3b.training.segmentation import structure_rows as chain
from m3b.training.segmentation.fingerprint import fingerprint
from m3b.training.segmentation.gpu_fit import STEP_COSTS, share_batch, ways_of
from m3b.training.segmentation.intensity import choose_changes, choose_intensity
from m3b.training.segmentation.nnunet_presets import gpu_gib, planner_for
from m3b.training.segmentation.patch_shapes import choose_patch, round_up, topology, working_spacing
from m3b.training.segmentation.plan_check import check
from m3b.training.segmentation.plan_cost import costs, median_there, rarest_share
from m3b.training.segmentation.plan_summary import summary
from m3b.training.segmentation.short_training import (
    NARROW,
    augment_whole_images,
    coarser,
    epoch_patches,
    filters,
    hurry,
    narrow_for_folds,
    narrower,
    one_patch,
    smaller_patch,
    trimmed,
)
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.step_cost import step_seconds_beside
from m3b.training.time_budget import NO_LIMIT, fit, steps_of, told

NNUNET_MINUTES = 60
LEAST = 600
"""Steps below which a coarser grid or a narrower network is worth more than detail."""
ENOUGH = 1500
"""Steps that each network of a fold needs before several are worth more than one that is trained for longer, counted in seven tenths
of the minutes (a third more are made). By AdamW, on 40 cases of the hippocampus, one network had a Dice of 0.898 after 2,469 steps, as
after 2,941; three of 912 steps had 0.890 together."""

RECIPE = {
    "optimizer": "muon",
    "lr": 2e-3,
    "weight_decay": 0.01,
    "clip": 5.0,
    "ema": 0.995,
    "max_epochs": NO_LIMIT,
    "patience": 2000,
    "keep": "last",
    "mirror": "auto",
    "shifted": "auto",
}


def main(argv: list[str] | None = None) -> None:
    options = read_options(__doc__, argv)
    from m3b.training.segmentation.dataset import read_index

    records = read_index()
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = fingerprint(records, label_dict)
    if options.time_only or options.keep:
        plan = priced(options.set)
        if "intensity" in given(options.set) and "pad_value" not in given(options.set):
            plan["pad_value"] = padding_of(facts, plan["intensity"])
        if given(options.set) & {"folds", "refit"}:
            choose_parts(plan, int(facts["patients"]), given(options.set), rarest_share(facts))
        check(plan)
        check_members(plan, facts["patients"])
        print(pace(facts, plan))
        if options.keep:
            save_plan(plan)
        return
    machine = options.machine(has_gpu())
    settings = [*without_start(options.set), *(["device=cpu"] if options.device == "cpu" else [])]
    plan = make_plan(facts, options.minutes, machine.gpus > 0, settings)
    if machine.dry and "engine" not in given(options.set):
        plan["engine"], plan["why_engine"] = (
            "trainer",
            "the GPU is not here (nnU-Net plans when it runs there: engine=nnunet)",
        )
    prepare(plan, machine, settings)
    said = [] if plan["engine"] == "nnunet" else fit_minutes(facts, plan, options.set)
    if not plan["why_folds"]:
        choose_folds(facts, plan, options.set)
    said += side_by_side(facts, plan, options.set)
    choose_parts(plan, int(facts["patients"]), given(options.set), rarest_share(facts))
    said += augment_whole_images(median_there(facts, plan), int(facts["cases"]), plan, _each_steps, given(options.set))
    facts["start"] = start_from(plan, options.set, override, width=32 if machine.gpus else 16)
    check(plan)
    check_members(plan, facts["patients"])
    said.append(pace(facts, plan))
    save_plan(plan)
    print("\n".join([summary(facts, plan), *said]))


def has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool, settings: list[str] | None = None) -> dict[str, Any]:
    """The choices; `summary` tells their reasons. `settings` are applied at the end; patch and spacing are obeyed."""
    early = {key: json.loads(text) for key, _, text in (s.partition("=") for s in settings or []) if key in _EARLY}
    spacing, pixels, side, shape = working_spacing(facts, gpu)
    if early.get("spacing"):
        shape = [max(1, round(n * a / b)) for n, a, b in zip(shape, spacing, early["spacing"], strict=True)]
        spacing, side = early["spacing"], None
    patch = early.get("patch") or choose_patch(shape, spacing, facts["dims"], gpu)
    strides, kernels = topology(patch, spacing)
    patch = round_up(patch, strides)
    batch = int(np.clip((2**22 if gpu else 2**17) * (1 if facts["dims"] == 3 else 0.5) // int(np.prod(patch)), 2, 32))
    batch = max(1, min(batch, facts["cases"] - 1))
    engine, why = choose_engine(facts, minutes, gpu)
    chains = [] if side or engine == "nnunet" else chain.find_chains(facts)
    plan: dict[str, Any] = {
        "task": "segmentation",
        "engine": engine,
        "why_engine": why,
        "planner": planner_for(gpu_gib() if gpu else 0.0, minutes),
        "classes": facts["classes"],
        "labels": facts["labels"],
        "overlap": facts["overlap"],
        "chains": chains,
        "dims": facts["dims"],
        **channels_of(facts, 16),
        "spacing": None if side else spacing,
        "extent": facts["extent"],
        "pixels": pixels,
        "side": side,
        "intensity": intensity_of(facts, choose_intensity),
        "pad_value": 0.0,
        "patch": patch,
        "network": {
            "name": "unet",
            "filters": filters(32 if gpu else 16, len(strides), facts["dims"]),
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
        **RECIPE,
        "minutes": minutes,
        "folds": 1,
        "parts": 1,
        "refit": False,
        "why_folds": "",
        "validation_share": 0.15,
        "augment": chain.gentler(choose_changes(facts, spacing), chains),
        "refine": {},
        "precision": "bf16" if gpu else "fp32",
        "device": "auto",
        "workers": min(8, os.cpu_count() or 1) if gpu else 0,
        "threads": 0,
        "seed": 0,
    }
    for setting in settings or []:
        if not setting.startswith("patch="):  # already there, rounded to what the network can divide
            override(plan, setting)
        if setting.startswith("engine="):
            plan["why_engine"] = "asked for with --set"
    if "pad_value" not in given(settings or []):
        plan["pad_value"] = padding_of(facts, plan["intensity"])
    check(plan)
    return plan


_EARLY = ("patch", "spacing")


def choose_engine(facts: dict[str, Any], minutes: float, gpu: bool) -> tuple[str, str]:
    """`nnunet` where it is installed and has the time that it is made for; else `trainer`."""
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


def prepare(plan: dict[str, Any], machine: Machine, settings: list[str]) -> None:
    """What follows from the machine goes into the plan; what was set stays."""
    for_machine(plan, machine)
    plan["planner"] = planner_for(machine.memory * GB / 2**30, plan["minutes"]) if machine.dry else plan["planner"]
    for setting in settings if machine.gpus else []:
        if not setting.startswith("patch="):
            override(plan, setting)


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """The quicker precision and layout, and a plan that its minutes, on a GPU also its memory, hold. What was set stays."""
    kept = given(settings)
    choose_precision_and_layout(plan, kept, step_seconds)
    cases, network = int(facts["cases"]), plan["network"]["name"]
    ways = [
        ("batch", one_patch(cases)),
        ("network.filters", narrower),
        ("patch", trimmed(facts)),
        ("spacing", coarser(facts)),
        ("patch", smaller_patch(facts)),
    ]
    shape = {"network", "network.strides", "network.kernels", "patch"}
    kept |= {"spacing"} if kept & {*shape, "side"} else set()
    kept |= {"patch"} if kept & {*shape, "network.filters"} else set()
    chosen = [way for key, way in ways if key not in kept] if network == "unet" else []
    if machine_of(plan).gpus:  # whether its GPUs share folds or a batch comes before what their memory holds
        choose_folds(facts, plan, settings)
        share_batch(facts, plan, kept)
        return fit_gpu(plan, STEP_COSTS, ways_of(facts, kept, chosen), _steps, LEAST, kept)
    said = fit(plan, chosen, _steps, LEAST)
    if said and plan["network"]["filters"][0] <= NARROW:
        said += hurry(facts, plan, kept)
    said = said or narrow_for_folds(facts, plan, kept, _all_steps, ENOUGH)
    if said:
        choose_precision_and_layout(plan, kept, step_seconds)
    return told(said)


def choose_folds(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> None:
    """Puts `folds`, `refit` and why into the plan."""
    if plan["engine"] == "nnunet":
        choose_members(plan, 0, ENOUGH, (1, "nnU-Net trains one network here"), given(settings))
        return
    choose_of_cases(plan, facts, lambda: _all_steps(plan), ENOUGH, given(settings), max(1, machine_of(plan).gpus))


def side_by_side(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """Folds at the same time where that makes more steps on a processor; what was changed."""
    if plan["engine"] == "nnunet":
        return []
    return choose_beside(
        facts, plan, given(settings), ENOUGH, step_seconds,
        lambda trial, several: step_seconds_beside(trial, STEP_COSTS, several), STEP_COSTS.peak,
    )  # fmt: skip


def _all_steps(plan: dict[str, Any]) -> int:
    return steps_of(plan, step_seconds(plan))


def _steps(plan: dict[str, Any]) -> int:
    return steps_of(plan, step_seconds(plan), rounds(plan))


def _each_steps(plan: dict[str, Any]) -> int:
    """Of each network; what `max_steps` says depends on no timing."""
    return int(plan.get("max_steps") or _steps(plan))


def pace(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """How far the minutes will go, from a few training steps on noise."""
    if plan["engine"] == "nnunet":
        return "nnU-Net plans its own steps: their price is known when it has started"
    epoch = -(-int(plan["epoch_patches"]) // int(plan["batch"]))
    return told_pace(plan, lambda: costs(facts, plan), epoch, LEAST // 2)


def step_seconds(plan: dict[str, Any]) -> float:
    """Seconds of the quickest of a few training steps on noise, estimated for a machine that is not here; infinite where memory
    or the processor does not do."""
    try:
        return seconds_of_step(plan, STEP_COSTS)
    except RuntimeError as error:
        if plan["precision"] == "bf16" or "memory" in str(error):
            return float("inf")  # not every processor can, and train.py makes smaller what does not fit
        raise SystemExit(f"patch {plan['patch']} does not go through {plan['network']['name']}: {error}") from error
