"""Looks at the training cases and writes plan.json, which every other file here obeys. Edit it as you see fit.

python plan.py --keep --set lr=0.0003      changes the plan.json that is there
python plan.py --time-only      says what the plan.json that is there, edited or not, makes of its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 network.name=densenet121 size=[128,128] ...]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.diagnosis.fingerprint import fingerprint
from m3b.training.diagnosis.gpu_fit import STEP_COSTS, ways_of
from m3b.training.diagnosis.holdout import held_share
from m3b.training.diagnosis.plan_cost import costs
from m3b.training.diagnosis.plan_summary import summary
from m3b.training.diagnosis.pretrained_choice import use_folder, use_wanted
from m3b.training.diagnosis.pretrained_files import find_pretrained, fitting_size, weights_of
from m3b.training.diagnosis.short_training import gentler
from m3b.training.folds import SMALL, check_members, choose_members, each, most_folds, rounds
from m3b.training.gpu_fitting import choose_precision_and_layout, fit_gpu, for_machine, share_gpus
from m3b.training.intensity_rule import whole_changes, whole_input
from m3b.training.laterality import harmless, turns
from m3b.training.machine import machine_of
from m3b.training.named_channels import channels_of
from m3b.training.patients import people_of
from m3b.training.plan_options import read_options
from m3b.training.plan_settings import given, override, priced, save_plan
from m3b.training.pretrained.plan_start import NONE, trained_share, wanted_start, without_start
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.time_budget import NO_LIMIT, epochs_told, fit, note_expected, steps_of, told
from m3b.training.voxel_spacing import physical_grid

HEAVIEST = 3.0
"""No class weighs more, or less than a third: by the root of its share, since all of it makes a rare class cry wolf."""
COLOURS = 3
CHANGES = {"rotate": 10, "zoom": 0.1, "shift": 0.05, "erase": 0.25}
DENSENET_SIDE = 32
"""Pixels that an input of a DenseNet, which halves it five times, has at least along each side."""
LEAST = 250
"""Steps that a model needs before another fold, finer input or a wider network pays."""
ENOUGH_EPOCHS = 40
"""The same in epochs, of sets so small that this is fewer: of thirty cases one network holds out five, which tell nothing."""


def main(argv: list[str] | None = None) -> None:
    options = read_options(__doc__, argv)
    records = json.loads(Path("Datapath/train.json").read_text())
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    if options.time_only or options.keep:
        plan = priced(options.set)
        check_members(plan, len(set(people_of(records))))
        print(pace(plan, len(records)))
        if options.keep:
            save_plan(plan)
        return
    facts = fingerprint(records, label_dict)
    machine = options.machine(has_gpu())
    plan = make_plan(facts, options.minutes, machine.gpus > 0)
    plan["device"] = "cpu" if options.device == "cpu" else "auto"
    for_machine(plan, machine)
    facts["pretrained"] = add_pretrained(plan, facts, options.set)
    for setting in without_start(options.set):
        override(plan, setting)
    said = fit_minutes(facts, plan, options.set)
    check_members(plan, facts["patients"])
    said.append(pace(plan, facts["cases"]))
    save_plan(plan)
    print("\n".join([summary(facts, plan), *said]))


def has_gpu() -> bool:
    """Asked of torch, and only here: the rest of this file needs NumPy alone."""
    import torch

    return bool(torch.cuda.is_available())


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool) -> dict[str, Any]:
    """The choices; `summary` tells their reasons."""
    small, dims = facts["cases"] < SMALL, facts["dims"]
    grid = physical_grid(facts, _longest(gpu)) if dims == 3 else {"fit": "stretch", "field": None}
    size = grid.pop("size", None) or _size(facts, gpu)
    voxels = int(np.prod(size)) * facts["views"]
    batch = int(np.clip((2**19 if gpu else 2**18) * (4 if dims == 3 else 2) // voxels, 2, 64))
    batch = max(2, min(batch, 16 if small else 64, facts["cases"] // 4))
    counts = np.array([max(facts["counts"][name], 1) for name in facts["classes"]], float)
    if facts["multi_label"]:
        known = facts["cases"] - np.array([facts["unknown"][name] for name in facts["classes"]], float)
        weights = np.clip((np.maximum(known - counts, 1) / counts) ** 0.5, 1 / HEAVIEST, HEAVIEST)
    else:
        weights = np.clip((counts.sum() / (len(counts) * counts)) ** 0.5, 1 / HEAVIEST, HEAVIEST)
    network: dict[str, Any] = {"name": "small_cnn", "width": 16}
    if gpu:
        network = {"name": "resnet18" if small or min(size) < DENSENET_SIDE else "densenet121"}
    network["dropout"] = 0.4 if small else 0.2
    return {
        "task": facts["task"],
        "classes": facts["classes"],
        "multi_label": facts["multi_label"],
        **({"number": facts["number"]} if facts["number"] else {}),
        **({"edges": facts["survival"]["edges"]} if facts["survival"] else {}),
        **({"covariates": facts["covariates"], "covariate_dropout": 0.1} if facts["covariates"] else {}),
        **({"views": facts["views"]} if facts["views"] > 1 else {}),
        "dims": dims,
        **channels_of(facts, 4),
        **({"frames": facts["frames"]} if facts["frames"] else {}),
        "size": size,
        "spacing": None,
        **grid,
        **whole_input(facts),
        "network": network,
        "batch": batch,
        "lr": 3e-4 if small and gpu else 1e-3,
        "weight_decay": 0.1 if small else 0.02,
        "label_smoothing": 0.05,
        "class_weights": [round(float(v), 4) for v in weights],
        "max_steps": 0,
        "max_epochs": NO_LIMIT,
        "patience": 0,
        "minutes": minutes,
        "folds": 0,
        "refit": False,
        "cross_validation": small,
        "why_folds": "",
        "validation_share": 0.15,
        "ema": 0.99,
        "augment": whole_changes(facts, small, CHANGES, _flips(facts)),
        "tta": {"use": "auto", "views": 4, "zoom": 0.05, "shift": 0.03, "max_seconds": 2.0},
        "precision": "bf16" if gpu else "fp32",
        "device": "auto",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }


def _flips(facts: dict[str, Any]) -> list[str]:
    """None by default: left and right matter in the body. Skin, retina and microscopy get both, but where a class tells a side."""
    return harmless(["h", "w"] if turns(facts["dims"], facts["channels"]) else [], facts["classes"])


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
    size = [int(np.clip(round(float(v) / 8) * 8, 16, _longest(gpu))) for v in median]
    return [*size[:2], min(facts["frames"], _longest(gpu))] if facts["frames"] else size


def _longest(gpu: bool) -> int:
    """Voxels that no side of a volume exceeds at first."""
    return 128 if gpu else 64


def folds_for(facts: dict[str, Any], minutes: float, epochs: float = 0.0) -> tuple[int, str]:
    """Small sets overfit before the time is over, large ones after many `epochs`: the time then goes into an ensemble over
    patient-wise folds."""
    if minutes < 1.5:
        return 1, f"{minutes:g} minutes: one network"
    rarest = min((count for count in facts["counts"].values() if count), default=0)
    most, why = most_folds(facts["cases"], facts["patients"], rarest, epochs)
    return min(most, int(minutes / 0.5)), why


def add_pretrained(plan: dict[str, Any], facts: dict[str, Any], settings: list[str]) -> str:
    """Puts a pretrained network into the plan where one is named, or found and quick enough; says what was done."""
    wanted = wanted_start(settings)
    if wanted.lower() in NONE:
        return "weights start at random, as asked"
    if wanted:
        return use_wanted(plan, wanted)
    if plan["dims"] != 2:
        return "weights start at random (no pretrained network is looked for in 3D)"
    if len(plan["channel_names"] or ()) > COLOURS:
        return "weights start at random (pretrained networks take the three channels of colour)"
    found, looked = find_pretrained()
    gpu = machine_of(plan).gpus > 0
    limit = (600 if gpu else 150) * 1e6
    for place in found[::-1] if gpu else found:
        trial = json.loads(json.dumps(plan))
        use_folder(trial, place)
        if weights_of(place).stat().st_size <= limit and _fit_in_time(trial, facts["cases"]):
            plan.clear()
            plan.update(trial)
            return f"weights start from {place.parent.parent.name} (looked at {looked})"
    slow = "; none is quick enough for these minutes" if found else ""
    return f"weights start at random: no pretrained network used (looked at {looked}{slow})"


def _fit_in_time(plan: dict[str, Any], cases: int, least: float = 3.0) -> bool:
    """Whether one model gets `least` epochs, with a smaller input where the network allows."""
    plan["folds"], plan["why_folds"] = 1, "one network from pretrained weights"
    while True:
        epochs = float(plan["minutes"]) * 60 / epoch_seconds(plan, cases)
        if epochs >= least:
            return True
        smaller = fitting_size(plan["network"]["config"], [side // 2 for side in plan["size"]])
        if min(smaller) < 64 or smaller == plan["size"]:
            return False
        plan["size"] = smaller


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """The quicker precision; how many networks; a plan that its minutes hold, on a GPU one that its memory holds too. What was
    set is kept."""
    kept, small = given(settings), facts["cases"] < SMALL
    plan["cross_validation"] |= "folds" in kept and "cross_validation" not in kept
    gpus, own = machine_of(plan).gpus, plan["network"]["name"] == "small_cnn"
    choose_precision_and_layout(plan, kept, step_seconds)

    def steps(plan: dict[str, Any]) -> int:
        return steps_of(plan, step_seconds(plan))

    said = []
    most = folds_for(facts, float(plan["minutes"]), 0.0 if small else steps(plan) / epoch_steps(plan, facts["cases"]))
    if own and not gpus and "network.stem" not in kept:
        least = most[0] if small and "folds" not in kept else 1
        said += fit(plan, [_coarser_stem], steps, LEAST * max(rounds(plan), least))
    if not plan["folds"] or kept & {"folds", "refit"}:
        enough = min(LEAST, ENOUGH_EPOCHS * epoch_steps(plan, facts["cases"]))
        fewer = choose_members(plan, steps(plan), enough, most, kept, max(1, gpus))
        said += fewer if "folds" not in kept else []
    if gpus:
        share_gpus(plan, max(int(plan["batch"]), facts["cases"] // 8), kept)
        ways = ways_of(plan, facts, kept, _smaller_input)
        return [*told(said), *fit_gpu(plan, STEP_COSTS, ways, lambda p: steps(p) // rounds(p), LEAST, kept)]
    if own and "size" not in kept:
        said += fit(plan, [_smaller_input], steps, LEAST * rounds(plan))
    if said:
        choose_precision_and_layout(plan, kept, step_seconds)
    epochs = steps_of(plan, step_seconds(plan), rounds(plan)) / epoch_steps(plan, facts["cases"])
    return [*told(said), *(gentler(plan, min(epochs, float(plan["max_epochs"])), kept) if own and small else [])]


def _coarser_stem(plan: dict[str, Any]) -> str:
    least = 32 if plan["dims"] == 3 else 96  # a spot of a few pixels in a small picture would be lost
    if plan["network"].get("stem") or max(plan["size"]) < least:
        return ""
    plan["network"]["stem"] = [2 if 2 * side > max(plan["size"]) else 1 for side in plan["size"]]
    return f"first convolution with stride {plan['network']['stem']}"


def _smaller_input(plan: dict[str, Any]) -> str:
    least = 32 if plan["dims"] == 3 else 48
    smaller = [max(min(side, least), round(0.75 * side / 4) * 4) if side > least else side for side in plan["size"]]
    if smaller == plan["size"]:
        return ""
    before, plan["size"] = plan["size"], smaller
    return f"input {smaller} instead of {before}"


def step_seconds(plan: dict[str, Any]) -> float:
    """Seconds of the quickest of a few training steps on noise, estimated for a machine that is not here."""
    return seconds_of_step(plan, STEP_COSTS)


def epoch_steps(plan: dict[str, Any], cases: int) -> int:
    """Steps of an epoch."""
    return max(1, -(-int(cases * (1 - held_share(plan))) // int(plan["batch"])))


def epoch_seconds(plan: dict[str, Any], cases: int) -> float:
    """An epoch's time, roughly: for comparing networks."""
    return max(1.3 * epoch_steps(plan, cases) * step_seconds(plan), 1e-3)  # a third more for scoring and averaging


def pace(plan: dict[str, Any], cases: int) -> str:
    """How far the minutes will go; the plan gets the steps and epochs that are expected."""
    epoch = epoch_steps(plan, cases)
    found, seconds = costs(plan, cases), 60 * float(plan["minutes"]) * trained_share(plan) / rounds(plan)
    counted = int(plan.get("max_steps") or 0)
    steps = counted or found.steps(seconds, epoch)
    note_expected(plan, steps, epoch)
    model_is = each(plan, "the model")
    few = " (few: more minutes, a smaller input or fewer folds would help)" if steps < LEAST / 2 else ""
    return f"{model_is}, {found.told(seconds, epoch, counted)}; {epochs_told(plan, steps, epoch)} in {plan['precision']}{few}"
