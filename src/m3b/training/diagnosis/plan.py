"""Analyses the training cases and writes plan.json, which all other scripts use. Edit it as you like.

python plan.py --keep --set lr=0.0003      changes the existing plan.json
python plan.py --time-only      prints how the existing plan.json uses its minutes; writes nothing
python plan.py --minutes 10 [--set lr=0.001 network.name=densenet121 size=[128,128] ...]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from m3b.training.diagnosis.encoder_choice import check_encoder, choose_encoder
from m3b.training.diagnosis.fingerprint import fingerprint
from m3b.training.diagnosis.gpu_fit import STEP_COSTS, list_plan_changes
from m3b.training.diagnosis.holdout import held_out_share
from m3b.training.diagnosis.linear_probe_fit import choose_linear_probe
from m3b.training.diagnosis.plan_cost import measure_costs
from m3b.training.diagnosis.plan_summary import format_summary
from m3b.training.diagnosis.pretrained_files import (
    PretrainedError,
    find_pretrained,
    find_weights,
    fit_size,
    read_config,
    read_normalisation,
)
from m3b.training.diagnosis.self_training import count_unlabelled, settle_self_training
from m3b.training.diagnosis.short_training import weaken_augmentation
from m3b.training.diagnosis.tiles import choose_tiles, halve_magnification
from m3b.training.diagnosis.views import view_count
from m3b.training.folds import (
    MAX_SMALL_SET,
    check_fold_count,
    choose_fold_count,
    count_rounds,
    max_folds,
    name_training,
    use_site_folds,
)
from m3b.training.gpu_fitting import apply_machine, choose_precision_and_layout, fit_to_gpu, share_gpus
from m3b.training.intensity_rule import choose_whole_image_augmentation, choose_whole_image_input
from m3b.training.laterality import allowed_flips, can_flip_both_axes
from m3b.training.machine import has_gpu, machine_of
from m3b.training.named_channels import choose_channels
from m3b.training.patients import list_patients, list_sites
from m3b.training.plan_options import parse_plan_options
from m3b.training.plan_settings import apply_override, load_edited_plan, overridden_keys, save_plan
from m3b.training.plan_table import PlanConditions, choose_settings, conditions_of, describe_rows
from m3b.training.pretrained.delivered import read_delivered_plan
from m3b.training.pretrained.frozen_features import (
    FEATURE_SIDES,
    choose_feature_views,
    has_frozen_backbone,
    time_image,
)
from m3b.training.pretrained.plan_start import (
    NO_START,
    freeze_slow_backbone,
    requested_start,
    training_share,
    use_start,
    without_start,
)
from m3b.training.pretrained.starts import START_FILE, suggest_packages
from m3b.training.slice_encoder import SLICES
from m3b.training.step_cost import step_seconds as seconds_of_step
from m3b.training.time_budget import (
    MIN_REDUCTION_GAIN,
    NO_LIMIT,
    describe_epochs,
    describe_reductions,
    estimate_steps,
    record_expected_steps,
    reduce_plan,
)
from m3b.training.voxel_spacing import physical_grid

MAX_CLASS_WEIGHT = 3.0
"""Maximum class weight, and its inverse the minimum; the square root of the share, since full weights cause false alarms."""
COLOUR_CHANNELS = 3
MIN_DENSENET_SIDE = 32
"""Minimum side of a DenseNet's input, which is halved five times."""
MIN_STEPS, MIN_EPOCHS = (choose_settings("diagnosis")[key] for key in ("min_steps", "min_epochs"))


def main(argv: list[str] | None = None) -> None:
    options = parse_plan_options(__doc__, argv)
    records = json.loads(Path("Datapath/train.json").read_text())
    label_dict = json.loads(Path("Datapath/label_dict.json").read_text())
    if options.time_only or options.keep:
        plan = load_edited_plan(options.set)
        check_encoder(plan)
        if "linear_probe.weights" in overridden_keys(options.set):
            print("\n".join(choose_linear_probe(plan, len(records))))
        if "self_training" in overridden_keys(options.set):
            print("\n".join(settle_self_training(plan, count_unlabelled(), is_requested=True)))
        check_fold_count(plan, len(set(list_patients(records))))
        print(describe_time(plan, len(records)))
        if options.keep:
            save_plan(plan)
        return
    facts = {**fingerprint(records, label_dict), "unlabelled": count_unlabelled()}
    machine = options.machine(has_gpu())
    plan = make_plan(facts, options.minutes, machine.gpus > 0)
    plan["device"] = "cpu" if options.device == "cpu" else "auto"
    apply_machine(plan, machine)
    for setting in (text for text in options.set if text.startswith("network.encoder=")):
        apply_override(plan, setting)  # first, since pretrained weights depend on it
    facts["pretrained"] = add_pretrained(plan, facts, options.set)
    for setting in without_start(options.set):
        apply_override(plan, setting)
    check_encoder(plan)
    changes = choose_linear_probe(plan, facts["cases"])
    is_requested = "self_training" in overridden_keys(options.set)
    site_settings = use_site_folds(plan, list_sites(records))
    settle_self_training(plan, facts["unlabelled"], is_requested)  # first, since it halves the minutes of each network
    changes += fit_minutes(facts, plan, [*options.set, *site_settings])
    changes += settle_self_training(plan, facts["unlabelled"], is_requested)
    check_fold_count(plan, facts["patients"])
    time_line = describe_time(plan, facts["cases"])
    changes += [*adapt_augmentation(facts, plan, options.set), time_line]
    save_plan(plan)
    conditions = conditions_of(facts, machine.gpus > 0, options.minutes)
    print("\n".join([format_summary(facts, plan), describe_rows("diagnosis", conditions), *changes]))


def make_plan(facts: dict[str, Any], minutes: float, has_gpu: bool) -> dict[str, Any]:
    """Make the plan; `format_summary` gives the reasons."""
    dims, settings = facts["dims"], choose_settings("diagnosis", conditions_of(facts, has_gpu, minutes))
    grid: dict[str, Any] = physical_grid(facts, settings["max_side"]) if dims == 3 else dict(fit="stretch", field=None)
    tiles = choose_tiles(facts["slides"], has_gpu, minutes)
    size = grid.pop("size", None) or tiles.pop("size", None) or _choose_size(facts, settings["max_side"])
    voxels = int(np.prod(size)) * view_count({"views": facts["views"], **tiles})
    batch = max(2, min(int(settings["step_pixels"] // voxels), settings["max_batch"], facts["cases"] // 4))
    counts = np.array([max(facts["counts"][name], 1) for name in facts["classes"]], float)
    if facts["multi_label"]:
        known_cases = facts["cases"] - np.array([facts["unknown"][name] for name in facts["classes"]], float)
        weights = np.clip((np.maximum(known_cases - counts, 1) / counts) ** 0.5, 1 / MAX_CLASS_WEIGHT, MAX_CLASS_WEIGHT)
    else:
        weights = np.clip((counts.sum() / (len(counts) * counts)) ** 0.5, 1 / MAX_CLASS_WEIGHT, MAX_CLASS_WEIGHT)
    network = {**settings["network"], "dropout": settings["dropout"]}
    if network["name"] == "densenet121" and min(size) < MIN_DENSENET_SIDE:
        network["name"] = "resnet18"
    if dims == 3:
        network["encoder"] = choose_encoder(facts, minutes)
    return {
        "task": facts["task"],
        "classes": facts["classes"],
        "multi_label": facts["multi_label"],
        **({"number": facts["number"]} if facts["number"] else {}),
        **({"edges": facts["survival"]["edges"]} if facts["survival"] else {}),
        **({"covariates": facts["covariates"], "covariate_dropout": 0.1} if facts["covariates"] else {}),
        **({"views": facts["views"]} if facts["views"] > 1 else tiles),
        "dims": dims,
        **choose_channels(facts, 4),
        **({"frames": facts["frames"]} if facts["frames"] else {}),
        "size": size,
        "spacing": None,
        **grid,
        **choose_whole_image_input(facts),
        "network": network,
        "batch": batch,
        **{key: settings[key] for key in ("lr", "weight_decay", "label_smoothing")},
        "class_weights": [round(float(v), 4) for v in weights],
        "max_steps": 0,
        "max_epochs": NO_LIMIT,
        "patience": 0,
        "minutes": minutes,
        "folds": 0,
        "refit": False,
        "cross_validation": settings["cross_validation"],
        "fold_groups": "patients",
        "why_folds": "",
        "validation_share": settings["validation_share"],
        "linear_probe": {"weights": "auto"},
        "self_training": settings["self_training"],
        "ema": settings["ema"],
        "augment": choose_whole_image_augmentation(
            facts, facts["cases"] < MAX_SMALL_SET, settings["augment"], _choose_flips(facts)
        ),
        "tta": {"use": "auto", "views": 4, "zoom": 0.05, "shift": 0.03, "max_seconds": 2.0},
        "precision": settings["precision"],
        "device": "auto",
        "workers": 0,
        "cache": "auto",
        "threads": 0,
        "seed": 0,
    }


def _choose_flips(facts: dict[str, Any]) -> list[str]:
    """Return the axes to flip: none by default, since left and right differ in the body; both for skin, retina and microscopy, unless
    a class names a side."""
    return allowed_flips(["h", "w"] if can_flip_both_axes(facts["dims"], facts["channels"]) else [], facts["classes"])


def _choose_size(facts: dict[str, Any], max_side: int) -> list[int]:
    median = np.median(facts["shapes"], axis=0)
    if facts["dims"] == 2:
        longest = float(median.max())
        if longest <= 64:
            return [max(16, round(float(v) / 4) * 4) for v in median]
        return [max(32, round(min(max_side, longest) / 16) * 16)] * 2
    size = [int(np.clip(round(float(v) / 8) * 8, 16, max_side)) for v in median]
    return [*size[:2], min(facts["frames"], max_side)] if facts["frames"] else size


def choose_max_folds(facts: dict[str, Any], minutes: float, epochs: float = 0.0) -> tuple[int, str]:
    """Return the maximum folds and the reason: small sets overfit before the time is over, large ones after many `epochs`; an ensemble
    of patient-wise folds then uses the time."""
    if choose_settings("diagnosis", PlanConditions(minutes=minutes))["max_networks"] == 1:
        return 1, f"{minutes:g} min: one network"
    rarest = min((count for count in facts["counts"].values() if count), default=0)
    max_networks, why = max_folds(facts["cases"], facts["patients"], rarest, epochs)
    return min(max_networks, int(minutes / 0.5)), why


def add_pretrained(plan: dict[str, Any], facts: dict[str, Any], settings: list[str]) -> str:
    """Use a pretrained network that is requested, or that is on this machine and fast enough; return a line on it."""
    requested = requested_start(settings)
    if requested.lower() in NO_START:
        return "weights start at random, as requested"
    if requested:
        return use_requested(plan, requested)
    has_ct_window = plan["intensity"]["mode"] in ("window", "windows")
    suggestion = suggest_packages(int(plan["dims"]), str(plan["task"]), has_ct_window)
    if plan["dims"] != 2:
        return f"weights start at random (3D: pretrained networks are not searched{suggestion})"
    if len(plan["channel_names"] or ()) > COLOUR_CHANNELS:
        return "weights start at random (pretrained networks have three colour channels)"
    candidates, searched_text = find_pretrained()
    has_gpu = machine_of(plan).gpus > 0
    limit = (
        choose_settings("diagnosis", PlanConditions(device="GPU" if has_gpu else "processor"))["max_pretrained_mb"]
        * 1e6
    )
    for folder in candidates[::-1] if has_gpu else candidates:
        trial = json.loads(json.dumps(plan))
        use_folder(trial, folder)
        if find_weights(folder).stat().st_size <= limit and _fit_in_time(trial, facts["cases"]):
            plan.clear()
            plan.update(trial)
            return f"weights start from {folder.parent.parent.name} ({searched_text})"
    too_slow = "; none is fast enough for these minutes" if candidates else ""
    return f"weights start at random: no pretrained network is used ({searched_text}{too_slow}{suggestion})"


def use_requested(plan: dict[str, Any], requested: str) -> str:
    """Let the plan start from the weights and return a line on it. Raises SystemExit if they cannot be used."""
    folder = Path(requested)
    if folder.exists() and not (folder / START_FILE).exists() and not read_delivered_plan(folder):
        try:
            use_folder(plan, folder)
            return f"weights start from {requested}, as requested"
        except (PretrainedError, OSError, ValueError) as error:
            if "channels" in str(error):
                raise SystemExit(f"--set network.pretrained={requested}: {error}") from error
    plan["batch"] = max(2, min(int(plan["batch"]), 32))
    kept = {key: value for key, value in plan["network"].items() if key == "dropout" or value == SLICES}
    return use_start(plan, requested, **kept)


def use_folder(plan: dict[str, Any], folder: Path) -> None:
    """Use a folder written by transformers or MONAI, which was trained on other classes."""
    config = read_config(folder)
    names, max_channels = plan["channel_names"] or (), int(config.get("num_channels", 3))
    if len(names) > max_channels:
        raise PretrainedError(f"it has {max_channels} channels, a case has {len(names)}: {', '.join(names)}")
    dropout = plan["network"]["dropout"]
    plan["network"] = {"name": "pretrained", "pretrained": str(folder), "backbone_lr": 0.1, "dropout": dropout}
    plan["network"]["config"] = config
    plan["channels"] = max_channels
    plan["lr"] = 1e-3
    if plan["dims"] == 2:
        plan["size"] = fit_size(config, plan["size"])
    plan["batch"] = max(2, min(plan["batch"], 32))
    if plan["channels"] == 3 and not names and plan["intensity"]["mode"] != "percentile":
        plan["intensity"] |= read_normalisation(folder)


def _fit_in_time(plan: dict[str, Any], cases: int, minimum: float = 3.0) -> bool:
    """Return whether one model gets `minimum` epochs, with a smaller input if the network allows it."""
    plan["folds"], plan["why_folds"] = 1, "one network from pretrained weights"
    while True:
        epochs = float(plan["minutes"]) * 60 / epoch_seconds(plan, cases)
        if epochs >= minimum:
            return True
        smaller = fit_size(plan["network"]["config"], [side // 2 for side in plan["size"]])
        if min(smaller) < 64 or smaller == plan["size"]:
            return False
        plan["size"] = smaller


def fit_minutes(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """Choose precision and number of networks, and reduce the plan to its minutes, on a GPU also to its memory; overrides stay."""
    overrides, is_small = overridden_keys(settings), facts["cases"] < MAX_SMALL_SET
    plan["cross_validation"] |= "folds" in overrides and "cross_validation" not in overrides
    gpus, is_small_cnn = machine_of(plan).gpus, plan["network"]["name"] == "small_cnn"
    is_small_cnn &= not plan["network"].get("pretrained")  # else the weights determine input and stem

    def steps(plan: dict[str, Any]) -> int:
        return estimate_steps(plan, STEP_COSTS.known_seconds(plan, step_seconds))

    changes, notes = freeze_slow_backbone(plan, steps, time_image, overrides), []
    if has_frozen_backbone(plan):
        inputs = [{}] if "size" in overrides or plan.get("tiles") else list_square_inputs(facts)
        notes = choose_feature_views(plan, int(facts["cases"]) * view_count(plan), inputs, time_image, overrides)
    else:
        choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    max_networks = choose_max_folds(
        facts, float(plan["minutes"]), 0.0 if is_small else steps(plan) / epoch_steps(plan, facts["cases"])
    )
    if is_small_cnn and not gpus and "network.stem" not in overrides:
        minimum = max_networks[0] if is_small and "folds" not in overrides else 1
        min_steps = MIN_STEPS * max(count_rounds(plan), minimum)
        changes += reduce_plan(plan, [_coarser_stem], steps, min_steps, MIN_REDUCTION_GAIN)
    if not plan["folds"] or overrides & {"folds", "refit"}:
        enough = min(MIN_STEPS, MIN_EPOCHS * epoch_steps(plan, facts["cases"]))
        fold_changes = choose_fold_count(plan, steps(plan), enough, max_networks, overrides, max(1, gpus))
        changes += fold_changes if "folds" not in overrides else []
    if gpus:
        share_gpus(plan, max(int(plan["batch"]), facts["cases"] // 8), overrides)
        reductions = list_plan_changes(plan, facts, overrides, _smaller_input)
        return [
            *describe_reductions(changes),
            *fit_to_gpu(plan, STEP_COSTS, reductions, lambda p: steps(p) // count_rounds(p), MIN_STEPS, overrides),
        ]
    if is_small_cnn and "size" not in overrides:
        changes += reduce_plan(plan, [_smaller_input], steps, MIN_STEPS * count_rounds(plan), MIN_REDUCTION_GAIN)
    if changes and not notes:
        choose_precision_and_layout(plan, overrides, STEP_COSTS.compare_seconds)
    return [*describe_reductions(changes), *notes]


def adapt_augmentation(facts: dict[str, Any], plan: dict[str, Any], settings: list[str]) -> list[str]:
    """Weaken the augmentation of few epochs of a small set, without a GPU and for networks from scratch; return a line on it."""
    network = plan["network"]
    if (
        facts["cases"] >= MAX_SMALL_SET
        or machine_of(plan).gpus
        or network["name"] != "small_cnn"
        or network.get("pretrained")
    ):
        return []
    return weaken_augmentation(plan, float(plan["expected"]["epochs"]), overridden_keys(settings))


def list_square_inputs(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the inputs of a frozen network, from the largest to the smallest: volumes as planned, small images at 224."""
    if int(facts["dims"]) == 3:
        return [{}]
    longest = max(FEATURE_SIDES[-2], float(np.median(facts["shapes"], axis=0).max()))
    return [{"size": [side, side]} for side in FEATURE_SIDES if side <= longest]


def _coarser_stem(plan: dict[str, Any]) -> str:
    minimum = 32 if plan["dims"] == 3 else 96  # a coarser stem would lose spots of a few pixels in a small image
    if plan["network"].get("stem") or max(plan["size"]) < minimum:
        return ""
    plan["network"]["stem"] = [2 if 2 * side > max(plan["size"]) else 1 for side in plan["size"]]
    return f"first convolution with stride {plan['network']['stem']}"


def _smaller_input(plan: dict[str, Any]) -> str:
    if plan.get("tiles"):
        return halve_magnification(plan)
    minimum = 32 if plan["dims"] == 3 else 48
    smaller = [max(min(side, minimum), round(0.75 * side / 4) * 4) if side > minimum else side for side in plan["size"]]
    if smaller == plan["size"]:
        return ""
    before, plan["size"] = plan["size"], smaller
    return f"input {smaller} instead of {before}"


def step_seconds(plan: dict[str, Any]) -> float:
    """Return the seconds of the fastest of a few training steps on noise, estimated for a remote machine."""
    return seconds_of_step(plan, STEP_COSTS)


def epoch_steps(plan: dict[str, Any], cases: int) -> int:
    """Return the steps of an epoch."""
    return max(1, -(-int(cases * (1 - held_out_share(plan))) // int(plan["batch"])))


def epoch_seconds(plan: dict[str, Any], cases: int) -> float:
    """Estimate the seconds of an epoch, for comparing networks."""
    return max(
        1.3 * epoch_steps(plan, cases) * STEP_COSTS.known_seconds(plan, step_seconds), 1e-3
    )  # a third more for scoring and averaging


def describe_time(plan: dict[str, Any], cases: int) -> str:
    """Return a line on the use of the minutes; the plan gets the expected steps and epochs."""
    epoch = epoch_steps(plan, cases)
    costs, seconds = (
        measure_costs(plan, cases),
        60 * float(plan["minutes"]) * training_share(plan) / count_rounds(plan),
    )
    max_steps = int(plan.get("max_steps") or 0)
    steps = max_steps or costs.count_steps(seconds, epoch)
    record_expected_steps(plan, steps, epoch)
    unit = name_training(plan, "the model")
    few_note = " (few: more minutes, a smaller input or fewer folds would help)" if steps < MIN_STEPS / 2 else ""
    epochs = describe_epochs(plan, steps, epoch)
    return f"{unit}, {costs.describe(seconds, epoch, max_steps)}; {epochs} in {plan['precision']}{few_note}"
