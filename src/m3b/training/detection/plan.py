"""Analyses the training cases and writes plan.json, which all other scripts use. Edit it as needed.

python plan.py --keep --set lr=0.0003      changes the existing plan.json
python plan.py --time-only      prints how far the existing plan.json gets in its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 longest=384 patch=[256,256] ...]
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.case_storage import describe_planned_storage
from m3b.training.detection.detector_plan import detector_settings, resolve_detector, use_detector
from m3b.training.detection.detectors import is_library
from m3b.training.detection.fewshot.comparison import ORDINARY_SETTINGS
from m3b.training.detection.fewshot.input_size import fit_input_size
from m3b.training.detection.fewshot.planning import (
    add_engine,
    choose_engine,
    describe_engine,
    make_states_plan,
    refuse_fewshot_settings,
    update_dependent_settings,
)
from m3b.training.detection.fingerprint import measure_cases
from m3b.training.detection.gpu_fit import list_changes
from m3b.training.detection.grid import choose_grid, fit_to_grid
from m3b.training.detection.index import read_index
from m3b.training.detection.plan_cost import STEP_COSTS, measure_costs
from m3b.training.folds import check_fold_count, choose_folds_from_cases, count_folds, count_rounds, describe_folds
from m3b.training.gpu_fitting import apply_machine, choose_precision_and_layout, fit_to_gpu, share_gpus
from m3b.training.intensity_rule import choose_rule
from m3b.training.intensity_scales import (
    describe_applied_conversion,
    describe_mixed_scales,
    describe_notes,
    describe_uneven_brightness,
)
from m3b.training.laterality import allowed_flips, can_flip_both_axes
from m3b.training.machine import has_gpu, machine_of
from m3b.training.named_channels import (
    choose_channel_dropout,
    choose_channel_intensities,
    choose_channels,
    describe_channel_names,
)
from m3b.training.patch_time_budget import describe_pace
from m3b.training.patients import describe_reliability
from m3b.training.plan_options import parse_plan_options
from m3b.training.plan_settings import apply_override, load_edited_plan, overridden_keys, save_plan
from m3b.training.plan_table import choose_settings, conditions_of, describe_rows
from m3b.training.pretrained.plan_start import apply_start, summarise_network, training_share, without_start
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.time_budget import NO_LIMIT, PlanChange, describe_reductions, estimate_steps, reduce_plan
from m3b.training.volume_cache import target_shape
from m3b.training.voxel_spacing import describe_placeholders

MIN_STEPS, MIN_STEPS_PER_FOLD = (choose_settings("detection")[key] for key in ("min_steps", "min_steps_per_fold"))
GRID_SETTINGS = ("patch", "longest", "spacing")


def main(argv: list[str] | None = None) -> None:
    options = parse_plan_options(__doc__, argv)
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = measure_cases(read_index(), label_dict)
    backbone_folder, options.set = _take_backbone(options.set)
    options.set = resolve_detector(options.set, facts)
    machine = options.machine(has_gpu())
    options.set += ["device=cpu"] if options.device == "cpu" else []
    gpu = machine.gpus > 0
    if options.time_only or options.keep:
        plan = load_edited_plan(options.set)
        check_fold_count(plan, facts["patients"])
        if options.keep:
            apply_settings_to_engine(facts, plan, options.set, gpu, backbone_folder)
        print(describe_expected_training(facts, plan))
        if options.keep:
            save_plan(plan)
        return
    normal_cases = int(facts["cases"]) - int(facts["abnormal"])
    engine, backbone, engine_reason = choose_engine(facts, normal_cases, int(facts["abnormal"]), backbone_folder)
    if "engine=patches" in options.set and facts["target"] == "masks" and facts["abnormal"]:
        engine, engine_reason = "patches", "engine patches: set with --set"
        options.set.remove("engine=patches")
    if engine != "patches":
        if facts["target"] == "states":
            plan = make_states_plan(facts, options.minutes)
        else:
            plan = make_plan(facts, options.minutes / 2, False)
            if facts["abnormal"]:  # the ordinary detector cannot be trained with normal cases alone
                fit_minutes(facts, plan, [], False)
                plan["detector"] = {name: plan[name] for name in ORDINARY_SETTINGS}
            plan["minutes"] = options.minutes
        add_engine(plan, engine, backbone, _prompt_object(facts))
        plan = {key: value for key, value in plan.items() if key not in ("folds", "refit", "why_folds", "mirror")}
        apply_settings_to_engine(facts, plan, options.set, False, "", fits_input=True)
        save_plan(plan)
        print(
            "\n".join([describe_cases(facts), engine_reason, *describe_engine(plan), describe_validation(facts, plan)])
        )
        print("wrote plan.json (every run of plan.py starts afresh; --set changes single values)")
        print(describe_expected_training(facts, plan))
        return
    refuse_fewshot_settings(overridden_keys(options.set), engine_reason)
    plan = make_plan(facts, options.minutes, gpu)
    apply_machine(plan, machine)
    apply_settings(facts, plan, without_start(options.set), gpu)
    facts["start"] = _apply_start(facts, plan, options.set, gpu)
    messages = fit_minutes(facts, plan, options.set, gpu)
    if not plan["why_folds"]:
        choose_folds(facts, plan, options.set)
    check_fold_count(plan, facts["patients"])
    messages.append(describe_expected_training(facts, plan))
    save_plan(plan)
    reasons = [describe_rows("detection", conditions_of(facts, gpu, options.minutes)), *filter(None, [engine_reason])]
    print("\n".join([describe_plan(facts, plan), *reasons, *messages]))


def _take_backbone(settings: list[str]) -> tuple[str, list[str]]:
    """Return the folder of `backbone=FOLDER`, and the other settings."""
    folders = [setting.partition("=")[2] for setting in settings if setting.partition("=")[0] == "backbone"]
    remaining = [setting for setting in settings if setting.partition("=")[0] != "backbone"]
    return folders[-1].strip('"') if folders else "", remaining


def apply_settings_to_engine(
    facts: dict[str, Any],
    plan: dict[str, Any],
    settings: list[str],
    gpu: bool,
    backbone_folder: str,
    fits_input: bool = False,
) -> None:
    """Apply settings to a plan of any engine, and update what depends on them; of a new backbone also the input size."""
    if plan.get("engine", "patches") == "patches":
        apply_settings(facts, plan, settings, gpu)
        return
    if backbone_folder:
        abnormal = int(facts["abnormal"])
        _, plan["backbone"], _ = choose_engine(facts, int(facts["cases"]) - abnormal, abnormal, backbone_folder)
        plan["engine"] = "fewshot"
    for setting in settings:
        apply_override(plan, setting)
    update_dependent_settings(plan)
    if fits_input or backbone_folder:
        has_fixed_size = "backbone.size" in overridden_keys(settings) or bool(plan["fewshot"]["adapters"])
        fit_input_size(plan, int(facts["cases"]), has_fixed_size)


def _prompt_object(facts: dict[str, Any]) -> str:
    """Return the object of the prompts by modality; the user may set prompts.object to the organ."""
    return {"ct": "CT image", "mr": "MR image"}.get(str(facts["modality"] or ""), "medical image")


def apply_settings(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> None:
    """Apply settings to the plan, and fit what depends on another grid or patch; settings stay."""
    for setting in settings:
        apply_override(plan, setting)
    if overridden_keys(settings) & set(GRID_SETTINGS):
        fit_to_grid(facts, plan, gpu, patch=plan["patch"] if "patch" in overridden_keys(settings) else None)
        for setting in settings:
            if setting.partition("=")[0] not in GRID_SETTINGS:
                apply_override(plan, setting)
    if "network.detector" in overridden_keys(settings) and is_library(plan):
        use_detector(facts, plan, gpu)
        for setting in settings:
            if setting.startswith(("network.", "compile=")):
                apply_override(plan, setting)


def _apply_start(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> str:
    """Apply network.pretrained to the plan; return a description."""
    if not is_library(plan):
        return apply_start(plan, settings, apply_override, width=32 if gpu else 16, cell=_cell(facts, plan))

    def build(network: Mapping[str, Any], dims: int, channels: int) -> Any:
        from m3b.training.detection.external_detectors import LibraryBoxModel

        return LibraryBoxModel({**plan, "network": network})

    return apply_start(plan, settings, apply_override, build, **detector_settings(plan))


def _cell(facts: dict[str, Any], plan: dict[str, Any]) -> list[int]:
    """Return pixels per side of an output position of a pretrained box detector: small boxes are at least two positions wide."""
    small_side = float(np.percentile(facts["sides"], 10)) if len(facts["sides"]) else 16.0
    return [4 if small_side >= 8 else 2] * int(plan["dims"])


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool) -> dict[str, Any]:
    """Return the plan; `describe_plan` gives the reasons."""
    has_boxes, table = facts["target"] == "boxes", choose_settings("detection", conditions_of(facts, gpu, minutes))
    plan: dict[str, Any] = {
        "task": "detection",
        "target": facts["target"],
        "classes": facts["classes"],
        "labels": None if has_boxes else facts["labels"],
        "overlap": True,
        "points": "lesions",
        "dims": facts["dims"],
        **choose_channels(facts, 4),
        "intensity": choose_channel_intensities(facts, choose_intensity),
        **choose_grid(facts, gpu),
        "extent": facts["extent"],
    }
    fit_to_grid(facts, plan, gpu)
    plan |= {
        **{key: table[key] for key in ("foreground", "lr", "weight_decay", "patience", "validation_share", "ema")},
        "loss": {"boxes": 1.0, "class_weights": [1.0] * len(facts["classes"])}
        if has_boxes
        else {"voxel": "focal", "alpha": 0.4, "beta": 0.6},
        "max_epochs": NO_LIMIT,
        "minutes": minutes,
        "folds": 1,
        "refit": False,
        "why_folds": "",
        "augment": choose_augmentation(facts, table),
        "mirror": "auto",
        "precision": table["precision"],
        "device": "auto",
        "workers": 0,
        "cache": "auto",
        "threads": 0,
        "seed": 0,
    }
    return plan


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str], gpu: bool) -> list[str]:
    """Choose precision, and reduce the plan to its minutes, on a GPU also to its memory. Overrides stay."""
    overrides = overridden_keys(settings)
    choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    has_own_network = not plan["network"].get("pretrained")  # else the weights determine it
    coarser_grid = CoarserGrid(facts, gpu)
    changes: list[PlanChange] = [] if "batch" in overrides else [halve_batch]
    changes += [narrow_network] if has_own_network and not any(key.startswith("network.") for key in overrides) else []
    changes += [coarser_grid] if has_own_network and not overrides & {*GRID_SETTINGS, "network.anchors"} else []
    if gpu:  # sharing folds or a batch between GPUs precedes fitting their memory
        choose_folds(facts, plan, settings)
        share_gpus(plan, 16 * machine_of(plan).gpus, overrides)
        return fit_to_gpu(
            plan, STEP_COSTS, list_changes(facts, overrides, changes), _steps_per_network, MIN_STEPS, overrides
        )
    messages = reduce_plan(plan, changes, _steps_per_network, MIN_STEPS)
    if not has_own_network:
        return describe_reductions(messages)
    if messages and coarser_grid in changes and (message := coarser_grid.widen(plan)):
        messages.append(message)
    lines = describe_reductions(messages)
    if messages and plan["target"] == "masks" and "lr" not in overrides:
        plan["lr"] = SHORT_TRAINING_LR
        lines.append(f"lr {SHORT_TRAINING_LR}, since the steps are few")
    if messages:
        choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    return lines


def choose_folds(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> None:
    """Write `folds`, `refit` and the reason into the plan."""
    choose_folds_from_cases(
        plan,
        facts,
        lambda: _total_steps(plan),
        MIN_STEPS_PER_FOLD,
        overridden_keys(settings),
        max(1, machine_of(plan).gpus),
    )


def _total_steps(plan: dict[str, Any]) -> float:
    return estimate_steps(plan, STEP_COSTS.known_seconds(plan, step_seconds)) * training_share(plan)


def _steps_per_network(plan: dict[str, Any]) -> int:
    return estimate_steps(plan, STEP_COSTS.known_seconds(plan, step_seconds), count_rounds(plan))


def step_seconds(plan: dict[str, Any]) -> float:
    """Return seconds of a training step on noise, or an estimate for another machine."""
    return seconds_of_step(plan, STEP_COSTS)


def describe_expected_training(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return a sentence about the expected training."""
    if plan.get("engine", "patches") != "patches":
        return f"training ends after {plan['minutes']} min or its epochs, whichever comes first"
    share = 1 / count_folds(plan) if count_folds(plan) > 1 else float(plan["validation_share"])
    length = max(int(plan["patches"]), round(int(facts["cases"]) * (1 - share)))
    epoch_steps = max(1, -(-length // int(plan["batch"])))
    return describe_pace(plan, lambda: measure_costs(facts, plan), epoch_steps, MIN_STEPS // 2)


def describe_cases(facts: dict[str, Any]) -> str:
    """Return a line about the cases."""
    return (
        f"{facts['cases']} cases of {facts['people']}, {facts['ill_share']:.0%} with a finding; {facts['dims']}D, "
        f"{facts['channels']} channel(s), sizes {facts['shapes'].min(0).tolist()} to {facts['shapes'].max(0).tolist()}"
    )


def describe_plan(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return properties of the cases, and the choices, in a few lines."""
    shapes, sides = facts["shapes"], facts["sides"]
    target_text = "boxes" if plan["target"] == "boxes" else "regions in the sampled masks"
    lines = [
        f"{facts['cases']} cases of {facts['people']}, {facts['ill_share']:.0%} with a finding; {target_text}: "
        f"{facts['counts']}",
        f"{facts['dims']}D, {plan['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {[round(step, 3) for step in facts['spacing']] if facts['spacing'] else 'unknown'}",
        (f"sides of {target_text}: median {_sides(sides, 50)} pixels, the smallest tenth {_sides(sides, 10)} or less")
        if len(sides)
        else "no lesion in the sample",
        f"working grid: spacing {plan['spacing']}, longest side {plan['longest']}; patches {plan['patch']}, batch "
        f"{plan['batch']}, {plan['foreground']:.0%} of them on lesions; intensity {plan['intensity']}",
        f"network {summarise_network(plan['network'])}",
        f"lr {plan['lr']}, augmentation {plan['augment']}; {facts.get('start', 'weights start at random')}",
        describe_folds(plan),
        describe_validation(facts, plan),
        _describe_cache(facts, plan),
    ]
    lines += [
        *describe_channel_names(plan),
        *describe_mixed_scales(facts),
        *describe_uneven_brightness(facts),
        *describe_applied_conversion(plan, facts),
        *describe_notes(facts),
        *describe_placeholders(facts),
    ]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled cases cannot be used: {facts['unreadable'][0]}")
    if facts["odd"]:
        lines.append(f"{len(facts['odd'])} boxes in the sample extend beyond their image: {facts['odd'][0]}")
    empty = [name for name, lesions in facts["counts"].items() if not lesions]
    if empty:
        lines.append(f"no lesion in the sample for: {', '.join(empty)}")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


def _describe_cache(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    shape = target_shape(np.median(facts["shapes"], axis=0).astype(int).tolist(), facts["spacing"], plan)
    return describe_planned_storage(plan, int(facts["cases"]), math.prod(shape) * (4 * int(plan["channels"]) + 1))


def describe_validation(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return how far validation metrics can be trusted; with folds every case is held out once."""
    has_patients = not str(facts["people"]).startswith("unknown")
    return describe_reliability(
        facts["patients"], 1.0 if count_folds(plan) > 1 else float(plan["validation_share"]), has_patients
    )


def _sides(sides: np.ndarray, share: float) -> str:
    return " x ".join(f"{v:.0f}" for v in np.percentile(sides, share, axis=0))


def choose_intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the intensity rule. CT: a window in HU around the lesions. 8-bit pictures: 0..1. MR, mixed or varying images: each
    by itself.
    """
    return choose_rule(facts, facts["modality"] == "ct", _window)


def _window(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the HU window."""
    low, high = max(facts["low"], -1024.0), min(facts["high"], 1500.0)
    if facts["target"] == "masks":  # soft tissue around the lesions instead of the range from air to bone
        low = max(low, facts["inside_low"] - 120.0)
        high = min(max(high, facts["inside_high"]), facts["inside_high"] + 120.0)
    low, high = (low, high) if high - low > 50 else (-1000.0, 1000.0)
    return {"mode": "window", "low": round(low), "high": round(high), "mean": 0.4, "std": 0.3}


def choose_augmentation(facts: dict[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the augmentation rule. No flips by default; skin, retina and microscopy get both unless a class tells the side."""
    return {
        "flip": allowed_flips(
            ["h", "w"] if can_flip_both_axes(facts["dims"], facts["channels"]) else [], facts["classes"]
        ),
        "rotate": table["rotate"],
        "zoom": 0.15,
        "shift": table["shift"],
        "contrast": 0.2,
        "brightness": 0.15,
        "gamma": 0.2,
        "noise": 0.05,
        "often": 0.5,
        **choose_channel_dropout(facts),
    }


MIN_WIDTH = 8
"""First filters of the narrowest network."""
MIN_LESION_VOXELS, MIN_VISIBLE_SHARE = 4.0, 0.5
"""Voxels per side of small lesions, and visible share of the image in a patch, of a coarser grid."""
SHORT_TRAINING_LR = 0.01
"""Learning rate of masks with few steps: 400 steps on synthetic lung infections gave a Dice of 0.34 at 0.002 and 0.57 at 0.01."""


def halve_batch(plan: dict[str, Any]) -> str:
    """Halve the patches per step."""
    min_batch = 4 if plan["dims"] == 2 or plan["target"] == "boxes" else 1
    if plan["batch"] <= min_batch:
        return ""
    previous, plan["batch"] = plan["batch"], max(min_batch, plan["batch"] // 2)
    return f"batch {plan['batch']} instead of {previous}"


def narrow_network(plan: dict[str, Any]) -> str:
    """Halve the width of the network."""
    network = plan["network"]
    if plan["target"] == "boxes":
        if network["width"] // 2 < MIN_WIDTH:
            return ""
        network["width"] //= 2
        return f"width {network['width']} instead of {network['width'] * 2}"
    if network["filters"][0] // 2 < MIN_WIDTH:
        return ""
    filters_before = network["filters"]
    network["filters"] = [number // 2 for number in filters_before]
    return f"first filters {network['filters'][0]} instead of {filters_before[0]}"


class CoarserGrid:
    """A grid of half the voxels, at most twice: small lesions have to stay."""

    def __init__(self, facts: dict[str, Any], gpu: bool = False) -> None:
        self.facts, self.gpu, self.patch_reduction = facts, gpu, 1

    def __call__(self, plan: dict[str, Any]) -> str:
        if self.patch_reduction >= 4:
            return ""
        self.patch_reduction *= 2
        if plan["longest"]:
            plan["longest"] = round(plan["longest"] * 0.5 ** (1 / plan["dims"]))
        else:
            plan["spacing"] = _enlarge_voxels(plan["spacing"], 2.0)
        return self._fit(plan)

    def widen(self, plan: dict[str, Any]) -> str:
        """Make the grid coarser at the same cost, until a patch covers half of the image: position distinguishes lungs and organs.

        Small lesions keep `MIN_LESION_VOXELS` voxels per side.
        """
        spacing, sides = self.facts["spacing"], self.facts["sides"]
        if plan["target"] != "masks" or plan["dims"] != 3 or not spacing or not plan["spacing"] or not len(sides):
            return ""
        extent = np.median(self.facts["shapes"], axis=0) * np.array(spacing)
        small_sides = np.percentile(sides, 20, axis=0) * np.array(spacing)
        grain = list(plan["spacing"])
        while np.prod(np.minimum(np.array(plan["patch"]) * grain / extent, 1.0)) < MIN_VISIBLE_SHARE:
            enlarged = _enlarge_voxels(grain, 1.1)
            if (np.array(enlarged) * MIN_LESION_VOXELS > small_sides).any() and np.prod(enlarged) > np.prod(
                plan["spacing"]
            ):
                break
            grain = enlarged
        if np.prod(grain) <= np.prod(plan["spacing"]):
            return ""
        plan["spacing"] = grain
        return self._fit(plan)

    def _fit(self, plan: dict[str, Any]) -> str:
        """Set patch and network for the new grid, as narrow as before."""
        batch, network, previous = plan["batch"], plan["network"], plan["patch"]
        fit_to_grid(self.facts, plan, gpu=self.gpu, patch_reduction=self.patch_reduction)
        plan["batch"] = min(plan["batch"], batch)
        if plan["target"] == "boxes":
            plan["network"]["width"] = network["width"]
        else:
            factor = network["filters"][0] / plan["network"]["filters"][0]
            plan["network"]["filters"] = [round(number * factor) for number in plan["network"]["filters"]]
        grid_text = f"longest side {plan['longest']}" if plan["longest"] else f"spacing {plan['spacing']}"
        return f"{grid_text} with patches {plan['patch']} instead of {previous}"


def _enlarge_voxels(spacing: list[float], volume: float) -> list[float]:
    """Return a spacing with `volume` times larger voxels; the finest axis is coarsened."""
    enlarged = np.array(spacing, float)
    goal = np.prod(enlarged) * volume
    while np.prod(enlarged) < goal * 0.97:
        enlarged[int(np.argmin(enlarged))] *= 1.03
    return [round(float(v), 4) for v in enlarged]
