"""A plan that starts from pretrained weights, and the plan without them to fall back to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from m3b.training.machine import machine_of
from m3b.training.pretrained.backbones import build_backbone, describe_weights
from m3b.training.pretrained.delivered import adopt_network, load_delivered, read_delivered_plan, without_weights
from m3b.training.pretrained.starts import Start, find_start, list_suitable
from m3b.training.pretrained.weight_files import StartError
from m3b.training.recipe import get_recipe, with_derived_channels
from m3b.training.slice_encoder import NEIGHBOURS, SLICES, encoder_of, pretrained_plan
from m3b.training.time_budget import estimate_steps, reduce_plan

Plan = dict[str, Any]
Build = Callable[[Mapping[str, Any], int, int], Any]
MIN_FINE_TUNING_STEPS = 1000
"""Steps below which pretrained weights are frozen."""
MIN_MINUTES_TO_COMPARE = 5.0
"""Minutes of a training from which weights on this machine are compared with scratch without a request."""
STEP_FORWARD_PASSES = 3
"""Time of a step in forward passes: the backward pass takes twice as long."""
NO_START = ("none", "null", "false", "0")
START_KEYS = ("network", "lr", "channels", "size", "patch", "batch", "intensity", "spacing")
"""Keys of a plan that depend on the weights that it starts from."""
FIXED_CHANNEL_BUILDERS = ("transformers",)
"""Builders whose first layer cannot be adapted."""


def requested_start(settings: Sequence[str]) -> str:
    """Return NAME or DIR of `--set network.pretrained=...`; "" if it is not set."""
    values = [text.partition("=")[2].strip("\"'") for text in settings if text.startswith("network.pretrained=")]
    return values[-1] if values else ""


def choose_start(plan: Plan, settings: Sequence[str]) -> str:
    """Return NAME or DIR of the weights to start from: those of `--set`, else the first ones on this machine that suit 2D images of up
    to three channels, if the minutes allow a comparison with scratch; "" for none."""
    requested = requested_start(settings)
    has_own_network = any(
        key.startswith("network") or key == "engine" for key, _, _ in (s.partition("=") for s in settings)
    )
    is_short = bool(plan.get("max_steps")) or float(plan["minutes"]) < MIN_MINUTES_TO_COMPARE
    if requested or has_own_network or is_short or plan["dims"] != 2 or len(plan.get("channel_names") or ()) > 3:
        return requested
    suitable = list_suitable(2, str(plan["task"]), has_ct_window=False)
    return next((name for name, is_fetched in suitable.items() if is_fetched), "")


def without_start(settings: Sequence[str]) -> list[str]:
    """Return the other settings."""
    return [text for text in settings if not text.startswith("network.pretrained=")]


def use_start(plan: Plan, requested: str, build: Build = build_backbone, **network: Any) -> str:
    """Let the plan start from the weights, and keep the previous values in `scratch`; return a line on it.

    Args:
        requested: a name of the registry, or a folder.
        build: (network, dims, channels) to the module that loads the weights; its `taken` says how much was loaded.
        network: further keys of plan.json's `network`.

    Raises:
        SystemExit: the weights cannot be used; says why and what to do.
    """
    original = {key: copy.deepcopy(plan[key]) for key in START_KEYS if key in plan}
    folder = Path(requested).expanduser()
    if delivered := read_delivered_plan(folder):
        return _use_delivered(plan, original, folder, delivered)
    try:
        start = find_start(requested, str(plan["task"]), 2 if network.get("encoder") == SLICES else int(plan["dims"]))
        plan["network"] = {**start.network, **network}
        plan["channels"] = _count_channels(plan, start)
        inner = pretrained_plan(plan)[0]
        loaded = describe_weights(build(inner["network"], int(inner["dims"]), int(inner["channels"])))
    except (StartError, OSError) as error:
        raise SystemExit(f"--set network.pretrained={requested}: {error}") from error
    plan["lr"] = 1e-3
    for key in ("size", "patch"):
        if plan.get(key):
            sides = int(inner["dims"])  # the number of slices stays
            plan[key] = [*_round_sides(plan[key][:sides], start.entry), *plan[key][sides:]]
    if plan["intensity"]["mode"] != "each":
        plan["intensity"] = plan["intensity"] | repeat_channels(
            start.intensity(plan["intensity"]), int(plan["channels"])
        )
    plan["scratch"] = {key: value for key, value in original.items() if plan[key] != value}
    entry = start.entry
    return (
        f"weights start from {entry['name']} (licence: {entry['licence']}), unless validation favours scratch: {loaded}"
    )


def _use_delivered(plan: Plan, original: Mapping[str, Any], folder: Path, delivered: Mapping[str, Any]) -> str:
    """Let the plan start from a model that m3b delivered; see `use_start`."""
    try:
        adopt_network(plan, folder, delivered)
        network = get_recipe().build_network(with_derived_channels(without_weights(plan)), False)
        loaded = load_delivered(network, folder)
    except (StartError, OSError) as error:
        raise SystemExit(f"--set network.pretrained={folder}: {error}") from error
    plan["scratch"] = {key: value for key, value in original.items() if plan[key] != value}
    several = f", the first of its {len(delivered['weights'])} networks" if len(delivered["weights"]) > 1 else ""
    name = plan["network"]["origin"]["name"]
    return (
        f"weights start from {name}{several}, unless validation favours scratch: {loaded}. No case with which it was trained may be "
        "a test case here"
    )


def apply_start(
    plan: Plan,
    settings: Sequence[str],
    apply: Callable[[Plan, str], None],
    build: Build = build_backbone,
    requested: str | None = None,
    **network: Any,
) -> str:
    """Apply `--set network.pretrained=` to the plan, then the other settings again by `apply`; return a line on it.

    Args:
        requested: NAME or DIR instead of that of the settings.
    """
    requested = requested_start(settings) if requested is None else requested
    if requested.lower() in ("", *NO_START):
        return "weights start at random"
    message = use_start(plan, requested, build, **network)
    for setting in without_start(settings):
        # sizes were applied before, and rounded to what the network accepts
        if not setting.startswith(("patch=", "size=", "spacing=")):
            apply(plan, setting)
    return message


def freeze_slow_backbone(
    plan: Plan, steps: Callable[[Plan], float], time_image: Callable[[Plan], float], overrides: Collection[str]
) -> list[str]:
    """Freeze pretrained weights if the minutes hold fewer than `MIN_FINE_TUNING_STEPS` of the whole network, unless set by hand.

    Args:
        steps: (plan) to the steps that the minutes hold.
        time_image: (plan) to the seconds of a forward pass of one image on a processor, where whole steps would take long to measure.
    """
    network = plan["network"]
    has_backbone = bool(network.get("pretrained") and (network.get("config") or {}).get("builder"))
    if "network.backbone_lr" in overrides or not has_backbone or network.get("delivered"):
        return []

    def count_steps(trial: Plan) -> float:
        if machine_of(trial).gpus or machine_of(trial).is_remote:
            return steps(trial)
        return estimate_steps(trial, STEP_FORWARD_PASSES * int(trial["batch"]) * time_image(trial))

    return reduce_plan(plan, [freeze_backbone], count_steps, MIN_FINE_TUNING_STEPS)


def freeze_backbone(plan: Plan) -> str:
    """Let pretrained weights stay as they are, so that a step costs their forward pass alone; return what was done."""
    network = plan["network"]
    if not network.get("pretrained") or network.get("backbone_lr") == 0:
        return ""
    network["backbone_lr"] = 0
    return "pretrained weights stay as they are (network.backbone_lr=0)"


def summarise_network(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's network without details; a list of the same list a level as one text."""
    return {key: _join_equal(value) for key, value in network.items() if key not in ("config", "origin")}


def _join_equal(value: Any) -> Any:
    levels = value if isinstance(value, list) and value and isinstance(value[0], list) else []
    runs = [(level, len(list(equal))) for level, equal in groupby(levels)]
    return ", ".join(f"{count} x {level}" for level, count in runs) if len(runs) < len(levels) else value


def _count_channels(plan: Mapping[str, Any], start: Start) -> int:
    """Return the channels: grey images are repeated for colour networks; named channels stay if the first layer can be adapted."""
    names, max_channels = plan.get("channel_names") or (), int(start.entry["channels"])
    is_fixed = start.entry["builder"] in FIXED_CHANNEL_BUILDERS
    if encoder_of(plan) == SLICES:
        max_channels = max(1, max_channels // NEIGHBOURS) if is_fixed else int(plan["channels"])
    if is_fixed and len(names) > max_channels:
        raise StartError(f"it takes {max_channels} channels, and a case has {len(names)}: {', '.join(names)}")
    return len(names) if names and not is_fixed else max_channels


def _round_sides(requested: Sequence[int], entry: Mapping[str, Any]) -> list[int]:
    """Round the sides to multiples of the network's stride."""
    arch = entry.get("arch") or {}
    step = int(arch.get("patch_size") or arch.get("patch") or 32)
    return [max(2 * step if step < 32 else step, round(side / step) * step) for side in requested]


def repeat_channels(rule: Mapping[str, Any], channels: int) -> dict[str, Any]:
    """Repeat mean and deviation so that each channel has a value."""
    repeated = dict(rule)
    for key in ("mean", "std"):
        if isinstance(repeated.get(key), list) and len(repeated[key]) != channels:
            repeated[key] = [repeated[key][index % len(repeated[key])] for index in range(channels)]
    return repeated


def training_share(plan: Mapping[str, Any]) -> float:
    """Return the share of the minutes that is left for training after a short one of each start, and after frozen features, also those
    of a linear probe."""
    trials = 2 * float(plan["network"].get("trial") or 0) if plan.get("scratch") else 0.0
    seconds = [plan["network"].get("feature_seconds"), (plan.get("linear_probe") or {}).get("seconds")]
    features = sum(float(value or 0) for value in seconds) / (60 * float(plan["minutes"]))
    return max(0.0, 1 - trials - features)


PACKAGES = {
    "transformers": ("transformers",), "timm": ("timm", "torchvision"), "torchvision": ("torchvision",), "swinvit": ("monai",)
}  # fmt: skip
"""Builder, or library that `network.name` names -> packages."""


def list_packages(network: Mapping[str, Any]) -> list[str]:
    """Return the packages that the network of a plan needs in addition to PyTorch, for requirements.txt."""
    config = network.get("config") or {}
    library, separator, _ = str(network.get("name", "")).partition(":")
    builder = config.get("builder", "transformers") if config else library if separator else ""
    return list(PACKAGES.get(builder, ()))
