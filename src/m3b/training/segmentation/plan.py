"""Analyses the training cases and writes plan.json, which all other scripts use. Edit it as needed.

python plan.py --keep --set lr=0.0003      changes the existing plan.json
python plan.py --time-only      prints how far the existing plan.json gets in its minutes; writes nothing
python plan.py --minutes 10 [--set engine=nnunet lr=0.001 network.name=segresnet patch=[64,64,64] ...]
"""

from __future__ import annotations

import json
import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.case_storage import describe_planned_storage
from m3b.training.folds import (
    check_fold_count,
    choose_fold_count,
    choose_folds_from_cases,
    choose_parts,
    count_rounds,
    describe_folds,
)
from m3b.training.gpu_fitting import apply_machine, choose_precision_and_layout, fit_to_gpu
from m3b.training.intensity_rule import choose_rule
from m3b.training.intensity_scales import (
    describe_applied_conversion,
    describe_mixed_scales,
    describe_notes,
    describe_uneven_brightness,
)
from m3b.training.laterality import allowed_flips, can_flip_both_axes
from m3b.training.machine import GB, Machine, has_gpu, machine_of
from m3b.training.named_channels import (
    choose_channel_dropout,
    choose_channel_intensities,
    choose_channels,
    choose_padding,
    describe_channel_names,
)
from m3b.training.parallel_folds import choose_parallel_folds
from m3b.training.patch_time_budget import describe_pace
from m3b.training.plan_options import parse_plan_options
from m3b.training.plan_settings import apply_override, load_edited_plan, overridden_keys, save_plan
from m3b.training.plan_table import (
    MIN_NNUNET_MINUTES,
    PlanConditions,
    choose_settings,
    conditions_of,
    describe_rows,
)
from m3b.training.pretrained.frozen_features import (
    FEATURE_SIDES,
    choose_feature_views,
    has_frozen_backbone,
    time_image,
)
from m3b.training.pretrained.plan_start import (
    apply_start,
    choose_start,
    freeze_slow_backbone,
    requested_start,
    summarise_network,
    without_start,
)
from m3b.training.segmentation import structure_rows
from m3b.training.segmentation.fingerprint import measure_cases
from m3b.training.segmentation.gpu_fit import list_changes, share_batch
from m3b.training.segmentation.nnunet_presets import PLANNERS, gpu_gib
from m3b.training.segmentation.patch_shapes import choose_patch, plan_strides, round_up, working_spacing
from m3b.training.segmentation.plan_cost import STEP_COSTS, measure_costs, median_grid_shape, rarest_share
from m3b.training.segmentation.short_training import (
    NARROW_FILTERS,
    augment_whole_images,
    filter_counts,
    make_coarser_grid,
    make_halved_patch,
    make_single_patch,
    make_trim,
    narrow_for_folds,
    narrow_network,
    patches_per_epoch,
    raise_rate_and_weights,
)
from m3b.training.segmentation.thin_structures import describe_thin_classes
from m3b.training.step_cost import parallel_step_seconds
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.time_budget import describe_reductions, estimate_steps, reduce_plan
from m3b.training.voxel_spacing import describe_placeholders

MIN_STEPS, MIN_STEPS_PER_FOLD = (choose_settings("segmentation")[key] for key in ("min_steps", "min_steps_per_fold"))
TRAINING_SETTINGS = (
    "optimizer",
    "lr",
    "weight_decay",
    "clip",
    "ema",
    "max_epochs",
    "patience",
    "keep",
    "mirror",
    "shifted",
)
"""Settings of plan.json that are taken from the table as they are."""


def main(argv: list[str] | None = None) -> None:
    options = parse_plan_options(__doc__, argv)
    from m3b.training.segmentation.dataset import read_index

    records = read_index()
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    facts = measure_cases(records, label_dict)
    if options.time_only or options.keep:
        plan = load_edited_plan(options.set)
        if "intensity" in overridden_keys(options.set) and "pad_value" not in overridden_keys(options.set):
            plan["pad_value"] = choose_padding(facts, plan["intensity"])
        if overridden_keys(options.set) & {"folds", "refit"}:
            choose_parts(plan, int(facts["patients"]), overridden_keys(options.set), rarest_share(facts))
        check_plan(plan)
        check_fold_count(plan, facts["patients"])
        print(describe_expected_training(facts, plan))
        if options.keep:
            save_plan(plan)
        return
    machine = options.machine(has_gpu())
    settings = [*without_start(options.set), *(["device=cpu"] if options.device == "cpu" else [])]
    plan = make_plan(facts, options.minutes, machine.gpus > 0, settings)
    if machine.is_remote and "engine" not in overridden_keys(options.set):
        plan["engine"], plan["why_engine"] = (
            "trainer",
            "the GPU is not here (nnU-Net plans when it runs there: engine=nnunet)",
        )
    apply_machine_and_overrides(plan, machine, settings)
    messages = [] if plan["engine"] == "nnunet" else fit_minutes(facts, plan, options.set)
    if not plan["why_folds"]:
        choose_folds(facts, plan, options.set)
    messages += choose_parallel_training(facts, plan, options.set)
    choose_parts(plan, int(facts["patients"]), overridden_keys(options.set), rarest_share(facts))
    messages += augment_whole_images(
        median_grid_shape(facts, plan), int(facts["cases"]), plan, _steps_or_limit, overridden_keys(options.set)
    )
    start = choose_start(plan, options.set) if plan["engine"] == "trainer" else requested_start(options.set)
    facts["start"] = apply_start(plan, options.set, apply_override, requested=start, width=32 if machine.gpus else 16)
    messages += describe_reductions(
        freeze_slow_backbone(plan, _steps_or_limit, time_image, overridden_keys(options.set))
    )
    if has_frozen_backbone(plan) and plan["dims"] == 2:
        inputs = [{}] if overridden_keys(options.set) & {"patch", "side"} else list_whole_inputs(facts, plan)
        messages += choose_feature_views(plan, int(facts["cases"]), inputs, time_image, overridden_keys(options.set))
    check_plan(plan)
    check_fold_count(plan, facts["patients"])
    messages.append(describe_expected_training(facts, plan))
    save_plan(plan)
    conditions = conditions_of(facts, machine.gpus > 0, options.minutes)
    print("\n".join([describe_plan(facts, plan), describe_rows("segmentation", conditions), *messages]))


def list_whole_inputs(facts: dict[str, Any], plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the inputs of a frozen 2D network that show whole images, from the largest to the smallest."""
    arch = plan["network"]["config"].get("arch") or {}
    multiple = int(arch.get("patch_size") or arch.get("patch") or 32)
    shapes = np.asarray(facts["shapes"], float)
    inputs: list[dict[str, Any]] = []
    for side in FEATURE_SIDES[:-1]:
        grid = (shapes * side / shapes.max(axis=1, keepdims=True)).max(axis=0) if plan["side"] else np.full(2, side)
        if not plan["side"]:
            grid = np.minimum(grid, median_grid_shape(facts, plan))
        patch = [math.ceil(round(float(length)) / multiple) * multiple for length in grid]
        inputs.append({"patch": patch, **({"side": side} if plan["side"] else {})})
    return [change for change in inputs if not plan["side"] or change["side"] <= plan["side"]] or inputs[-1:]


def make_plan(facts: dict[str, Any], minutes: float, gpu: bool, settings: list[str] | None = None) -> dict[str, Any]:
    """Return the plan; `describe_plan` gives the reasons. `settings` are applied at the end; patch, spacing and side determine
    other values.
    """
    pairs = (setting.partition("=") for setting in settings or [])
    geometry = {key: json.loads(value) for key, _, value in pairs if key in _GEOMETRY_SETTINGS}
    table = choose_settings("segmentation", conditions_of(facts, gpu, minutes, gpu_gib() if gpu else 0.0))
    spacing, pixels, side, shape = working_spacing(facts, table["image_voxels"])
    if geometry.get("spacing"):
        steps = zip(shape, spacing, geometry["spacing"], strict=True)
        shape = [max(1, round(length * step / new_step)) for length, step, new_step in steps]
        spacing, side = geometry["spacing"], None
    elif geometry.get("side"):
        spacing, pixels, side = [1.0] * len(shape), True, int(geometry["side"])
        median = np.median(facts["shapes"], axis=0)
        shape = [max(1, round(float(length) * side / float(max(median)))) for length in median]
    patch = geometry.get("patch") or choose_patch(shape, spacing, table["patch_voxels"])
    strides, kernels = plan_strides(patch, spacing)
    patch = round_up(patch, strides)
    batch = int(np.clip(table["step_voxels"] // int(np.prod(patch)), 2, 32))
    batch = max(1, min(batch, facts["cases"] - 1))
    engine, engine_reason = choose_engine(facts, minutes, gpu)
    chains = [] if side or facts["boxes"] or engine == "nnunet" else structure_rows.find_chains(facts)
    plan: dict[str, Any] = {
        "task": "segmentation",
        "engine": engine,
        "why_engine": engine_reason,
        "planner": table["planner"],
        "classes": facts["classes"],
        "labels": facts["labels"],
        "overlap": facts["overlap"],
        "chains": chains,
        "boxes": facts["boxes"],
        "dims": facts["dims"],
        **choose_channels(facts, 16),
        "spacing": None if side else spacing,
        "extent": facts["extent"],
        "pixels": pixels,
        "side": side,
        "intensity": choose_channel_intensities(facts, choose_intensity),
        "pad_value": 0.0,
        "patch": patch,
        "network": {
            "name": "unet",
            "filters": filter_counts(table["first_filters"], len(strides), facts["dims"]),
            "strides": strides,
            "kernels": kernels,
            "residual": False,
            "deep_supervision": True,
            "dropout": 0.0,
        },
        "loss": {"voxel": "ce", "alpha": 0.5, "beta": 0.5, "weights": None},
        "foreground": 0.5
        if any(length > patch_side for length, patch_side in zip(shape, patch, strict=True))
        else 0.33,
        "epoch_patches": patches_per_epoch(facts["cases"], batch),
        "batch": batch,
        "least_batch": 1,
        **{key: table[key] for key in TRAINING_SETTINGS},
        "minutes": minutes,
        "folds": 1,
        "parts": 1,
        "refit": False,
        "why_folds": "",
        "validation_share": table["validation_share"],
        "augment": structure_rows.reduce_augmentation(choose_augmentation(facts, spacing), chains),
        "refine": {},
        "precision": table["precision"],
        "device": "auto",
        "workers": min(8, os.cpu_count() or 1) if gpu else 0,
        "cache": "auto",
        "threads": 0,
        "seed": 0,
    }
    for setting in settings or []:
        if not setting.startswith("patch="):  # already applied, rounded to multiples of the strides
            apply_override(plan, setting)
        if setting.startswith("engine="):
            plan["why_engine"] = "set with --set"
    if "pad_value" not in overridden_keys(settings or []):
        plan["pad_value"] = choose_padding(facts, plan["intensity"])
    check_plan(plan)
    return plan


_GEOMETRY_SETTINGS = ("patch", "spacing", "side")


def choose_engine(facts: dict[str, Any], minutes: float, gpu: bool) -> tuple[str, str]:
    """Return `nnunet` if it is installed and has a GPU and enough time, else `trainer`; with the reason."""
    if facts.get("boxes"):
        return "trainer", "masks are boxes, which nnU-Net would take for outlines"
    if not find_spec("nnunetv2"):
        return "trainer", "nnunetv2 is not installed (pip install nnunetv2 to have the other engine)"
    engine = choose_settings("segmentation", conditions_of(facts, gpu, minutes))["engine"]
    if engine == "nnunet":
        return engine, f"GPU and {minutes:g} min: nnU-Net's own recipe"
    if not gpu:
        return engine, "no GPU: nnU-Net's epochs are long, the trainer engine uses the minutes better"
    return engine, f"{minutes:g} min: below {MIN_NNUNET_MINUTES} the trainer engine uses them better than nnU-Net"


def apply_machine_and_overrides(plan: dict[str, Any], machine: Machine, settings: list[str]) -> None:
    """Apply the machine to the plan; overrides stay."""
    apply_machine(plan, machine)
    if machine.is_remote:
        gib = machine.memory * GB / 2**30
        conditions = PlanConditions(device="GPU", minutes=plan["minutes"], gib=gib)
        plan["planner"] = choose_settings("segmentation", conditions)["planner"]
    for setting in settings if machine.gpus else []:
        if not setting.startswith("patch="):
            apply_override(plan, setting)


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """Choose precision and layout, and reduce the plan to its minutes, on a GPU also to its memory. Overrides stay."""
    overrides = overridden_keys(settings)
    choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    cases, network = int(facts["cases"]), plan["network"]["name"]
    changes = [
        ("batch", make_single_patch(cases)),
        ("network.filters", narrow_network),
        ("patch", make_trim(facts)),
        ("spacing", make_coarser_grid(facts)),
        ("patch", make_halved_patch(facts)),
    ]
    shape_settings = {"network", "network.strides", "network.kernels", "patch"}
    overrides |= {"spacing"} if overrides & {*shape_settings, "side"} else set()
    overrides |= {"patch"} if overrides & {*shape_settings, "network.filters"} else set()
    allowed_changes = [change for key, change in changes if key not in overrides] if network == "unet" else []
    if machine_of(plan).gpus:  # sharing folds or a batch between GPUs precedes fitting their memory
        choose_folds(facts, plan, settings)
        share_batch(facts, plan, overrides)
        return fit_to_gpu(
            plan, STEP_COSTS, list_changes(facts, overrides, allowed_changes), _steps_per_network, MIN_STEPS, overrides
        )
    messages = reduce_plan(plan, allowed_changes, _steps_per_network, MIN_STEPS)
    adaptations = (
        raise_rate_and_weights(facts, plan, overrides)
        if messages and plan["network"]["filters"][0] <= NARROW_FILTERS
        else []
    )
    messages = messages or narrow_for_folds(facts, plan, overrides, _total_steps, MIN_STEPS_PER_FOLD)
    if messages:
        choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    return describe_reductions(messages) + adaptations


def choose_folds(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> None:
    """Write `folds`, `refit` and the reason into the plan."""
    if plan["engine"] == "nnunet":
        choose_fold_count(
            plan, 0, MIN_STEPS_PER_FOLD, (1, "nnU-Net trains one network here"), overridden_keys(settings)
        )
        return
    choose_folds_from_cases(
        plan,
        facts,
        lambda: _total_steps(plan),
        MIN_STEPS_PER_FOLD,
        overridden_keys(settings),
        max(1, machine_of(plan).gpus),
    )


def choose_parallel_training(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """Train folds in parallel if this gives more steps on a CPU; return the changes."""
    if plan["engine"] == "nnunet":
        return []
    return choose_parallel_folds(
        facts, plan, overridden_keys(settings), MIN_STEPS_PER_FOLD, step_seconds,
        lambda trial, processes: parallel_step_seconds(trial, STEP_COSTS, processes), STEP_COSTS.peak
    )  # fmt: skip


def _total_steps(plan: dict[str, Any]) -> int:
    return estimate_steps(plan, STEP_COSTS.known_seconds(plan, step_seconds))


def _steps_per_network(plan: dict[str, Any]) -> int:
    return estimate_steps(plan, STEP_COSTS.known_seconds(plan, step_seconds), count_rounds(plan))


def _steps_or_limit(plan: dict[str, Any]) -> int:
    """Return the steps of each network; `max_steps` needs no measurement."""
    return int(plan.get("max_steps") or _steps_per_network(plan))


def describe_expected_training(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return a sentence about the expected training, from a few steps on noise."""
    if plan["engine"] == "nnunet":
        return "nnU-Net plans its steps itself: their time is known after its start"
    epoch = -(-int(plan["epoch_patches"]) // int(plan["batch"]))
    return describe_pace(plan, lambda: measure_costs(facts, plan), epoch, MIN_STEPS // 2)


def step_seconds(plan: dict[str, Any]) -> float:
    """Return seconds of a training step on noise, or an estimate for another machine; infinite if memory or the CPU does not
    suffice.
    """
    try:
        return seconds_of_step(plan, STEP_COSTS)
    except RuntimeError as error:
        if plan["precision"] == "bf16" or "memory" in str(error):
            return float("inf")  # not every CPU supports bf16, and train.py reduces what does not fit
        raise SystemExit(f"patch {plan['patch']} does not go through {plan['network']['name']}: {error}") from error


def check_plan(plan: dict[str, Any]) -> None:
    """End the program if settings contradict each other."""
    network = plan["network"]
    if network["name"] == "unet":
        sizes = {key: len(network[key]) for key in ("filters", "strides", "kernels")}
        if len(set(sizes.values())) > 1:
            raise SystemExit(
                f"network in plan.json: {', '.join(f'{length} {key}' for key, length in sizes.items())}; a U-Net needs "
                "equally many of each, one per level"
            )
    structure_rows.check_rows(plan)
    pad_values = plan.get("pad_value")
    if isinstance(pad_values, list) and len(pad_values) != int(plan["channels"]):
        raise SystemExit(
            f"pad_value {pad_values} in plan.json: must be one number, or one for each of the {plan['channels']} channels"
        )
    if plan.get("keep") not in (None, "last", "best"):
        raise SystemExit(f"keep {plan['keep']!r} in plan.json is unknown; known are last and best")
    if plan["engine"] == "nnunet" and plan.get("boxes"):
        raise SystemExit("masks are boxes, which nnU-Net would take for outlines: set engine=trainer")
    if plan["engine"] == "nnunet" and (plan.get("refit") or plan.get("folds", 1) not in (0, 1)):
        raise SystemExit("engine nnunet trains one network: remove folds and refit, or set engine=trainer")
    if plan.get("shifted") not in (None, "auto", True, False):
        raise SystemExit(f"shifted {plan['shifted']!r} in plan.json is unknown; known are auto, true and false")
    unknown = [name for name in plan.get("refine") or {} if name not in plan["classes"]]
    if unknown:
        raise SystemExit(f"refine in plan.json: {unknown[0]!r} is not a class ({', '.join(plan['classes'])})")
    if plan["engine"] not in ("trainer", "nnunet"):
        raise SystemExit(f"engine {plan['engine']!r} is unknown; known are trainer and nnunet")
    if plan["engine"] == "nnunet" and plan["network"].get("pretrained"):
        raise SystemExit("engine nnunet builds its own network: remove engine or network.pretrained")
    if plan["engine"] == "nnunet" and not find_spec("nnunetv2"):
        print("nnunetv2 is not installed (pip install nnunetv2): engine trainer is used instead")
        plan["engine"], plan["why_engine"] = "trainer", "nnunetv2 is not installed"
    if plan.get("planner", "plain") not in PLANNERS:
        raise SystemExit(f"planner {plan['planner']!r} in plan.json is unknown; known are {', '.join(PLANNERS)}")


def describe_plan(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return properties of the cases, and the choices, in a few lines."""
    shapes, spacings = facts["shapes"], facts["spacings"]
    median_sizes = {
        name: int(np.median([size for size in case_sizes if size] or [0]))
        for name, case_sizes in facts["sizes"].items()
    }
    spacing = np.round(np.median(spacings, axis=0), 3).tolist() if spacings is not None else "unknown"
    pixels = " (in pixels)" if plan["pixels"] else ""
    grid = f"a longest side of {plan['side']}" if plan["side"] else f"spacing {plan['spacing']}{pixels}"
    lines = [
        f"{facts['cases']} cases of {facts['people']}; median foreground voxels per case: {median_sizes}"
        + (f"; {facts['empty']} of {facts['sampled']} sampled masks are empty" if facts["empty"] else ""),
        f"{facts['dims']}D, {plan['channels']} channel(s), modality {facts['modality'] or 'not stated'}, sizes "
        f"{shapes.min(0).tolist()} to {shapes.max(0).tolist()}, values {facts['low']:.0f} to {facts['high']:.0f}, "
        f"spacing {spacing}",
        f"engine {plan['engine']}: {plan['why_engine']}"
        + (f", planner {plan['planner']}" if plan["engine"] == "nnunet" else ""),
        f"working grid: {grid}, patches {plan['patch']} "
        f"(median image on it: {median_grid_shape(facts, plan)}), intensity {plan['intensity']}",
        f"network {summarise_network(plan['network'])}, batch {plan['batch']}, lr {plan['lr']}, "
        f"{plan['foreground']:.0%} of patches on foreground voxels",
        f"augmentation {plan['augment']}; {facts['start']}",
        f"{plan['minutes']} min, {describe_folds(plan)}",
        _describe_cache(facts, plan),
    ]
    if facts["patients"] < 4:
        lines.append(f"only {facts['patients']} patients: validation uses one of them, and its metrics say little")
    if plan["labels"] is None and not plan["overlap"]:
        lines.append(
            f"the mask files of the classes share no voxel in {facts['sampled']} cases: one class per voxel (softmax); "
            "overlap=true keeps one channel per class"
        )
    lines += [
        *describe_channel_names(plan),
        *describe_mixed_scales(facts),
        *describe_uneven_brightness(facts),
        *describe_applied_conversion(plan, facts),
        *describe_notes(facts),
        *describe_placeholders(facts),
    ]
    lines += [*describe_thin_classes(facts, plan), *structure_rows.describe_rows(plan["chains"])]
    if facts["unreadable"]:
        lines.append(f"{len(facts['unreadable'])} sampled cases cannot be used: {facts['unreadable'][0]}")
    if facts["boxes"]:
        lines.append(
            "masks are boxes: outside is background, inside the core of each box and its tightness are learnt from (loss of "
            "`boxes`), no turns; validation Dice is that of boxes"
        )
    if facts["ignored"]:
        lines.append(
            f"{facts['ignored']:.1%} of the mask voxels are ignored (`ignore_path`): no loss and no metric counts them"
        )
    absent = [name for name, case_sizes in facts["sizes"].items() if not any(case_sizes)]
    if absent:
        lines.append(f"in no sampled mask: {', '.join(absent)} (does label_dict.json match the masks?)")
    return "\n".join([*lines, "wrote plan.json (every run of plan.py starts afresh; --set changes single values)"])


def _describe_cache(facts: dict[str, Any], plan: dict[str, Any]) -> str:
    masks = len(plan["classes"]) if plan["overlap"] else 1
    case_bytes = math.prod(median_grid_shape(facts, plan)) * (4 * int(plan["channels"]) + masks)
    return describe_planned_storage(plan, int(facts["cases"]), case_bytes)


def choose_intensity(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the intensity rule. CT: the window of the foreground, in HU. 8-bit pictures: 0..1. MR, mixed or varying images: each
    by itself.
    """
    return choose_rule(facts, facts["modality"] == "ct", _window)


def _window(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the HU window of the foreground values."""
    foreground = facts["inside"] if len(facts["inside"]) else None
    low, high = (-1000.0, 1000.0) if foreground is None else map(float, np.percentile(foreground, (0.5, 99.5)))
    low, high = (low, high) if high - low > 50 else (low - 150.0, high + 150.0)
    values = np.array([0.3, 0.7]) if foreground is None else (np.clip(foreground, low, high) - low) / (high - low)
    mean, std = float(values.mean()), max(float(values.std()), 0.05)
    return {"mode": "window", "low": round(low), "high": round(high), "mean": round(mean, 3), "std": round(std, 3)}


def choose_augmentation(facts: dict[str, Any], spacing: list[float]) -> dict[str, Any]:
    """Return the augmentation rule.

    A flip is wrong if a class tells the side, and among several organs it gives impossible anatomy. A single class without a side
    may be mirrored; skin, retina and microscopy along both axes.
    """
    flips = (
        ["h", "w"]
        if can_flip_both_axes(facts["dims"], facts["channels"])
        else ["w"]
        if len(facts["classes"]) == 1
        else []
    )
    is_anisotropic = facts["dims"] == 3 and max(spacing) / min(spacing) > 3
    turns = (
        {"rotate": 0, "tilt": 0} if facts.get("boxes") else {"rotate": 15}
    )  # lines along the axes of turned boxes mean nothing
    return {
        "often": 0.6,
        "flip": allowed_flips(flips, facts["classes"]),
        "tilt": 0 if is_anisotropic or facts["dims"] == 2 else 10,
        **turns,
        "zoom": 0.15,
        "shift": 0.05,
        "contrast": 0.2,
        "brightness": 0.15,
        "gamma": 0.25,
        "noise": 0.1,
        "blur": 0.7,
        **choose_channel_dropout(facts),
    }
