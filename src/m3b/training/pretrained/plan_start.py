"""A plan that starts from pretrained weights, and the plan without them to fall back to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from m3b.training.pretrained.backbones import build_backbone, describe_weights
from m3b.training.pretrained.starts import Start, find_start
from m3b.training.pretrained.weight_files import StartError

Plan = dict[str, Any]
Build = Callable[[Mapping[str, Any], int, int], Any]
NO_START = ("none", "null", "false", "0")
START_KEYS = ("network", "lr", "channels", "size", "patch", "batch", "intensity", "spacing")
"""Keys of a plan that depend on the weights that it starts from."""
FIXED_CHANNEL_BUILDERS = ("transformers",)
"""Builders whose first layer cannot be adapted."""


def requested_start(settings: Sequence[str]) -> str:
    """Return NAME or DIR of `--set network.pretrained=...`; "" if it is not set."""
    values = [text.partition("=")[2].strip("\"'") for text in settings if text.startswith("network.pretrained=")]
    return values[-1] if values else ""


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
    try:
        start = find_start(requested, str(plan["task"]), int(plan["dims"]))
        plan["channels"] = _count_channels(plan, start)
        plan["network"] = {**start.network, **network}
        loaded = describe_weights(build(plan["network"], int(plan["dims"]), int(plan["channels"])))
    except (StartError, OSError) as error:
        raise SystemExit(f"--set network.pretrained={requested}: {error}") from error
    plan["lr"] = 1e-3
    for key in ("size", "patch"):
        if plan.get(key):
            plan[key] = _round_sides(plan[key], start.entry)
    if plan["intensity"]["mode"] != "each":
        plan["intensity"] = plan["intensity"] | repeat_channels(
            start.intensity(plan["intensity"]), int(plan["channels"])
        )
    plan["scratch"] = {key: value for key, value in original.items() if plan[key] != value}
    entry = start.entry
    return (
        f"weights start from {entry['name']} (licence: {entry['licence']}), unless validation favours scratch: {loaded}"
    )


def apply_start(
    plan: Plan,
    settings: Sequence[str],
    apply: Callable[[Plan, str], None],
    build: Build = build_backbone,
    **network: Any,
) -> str:
    """Apply `--set network.pretrained=` to the plan, then the other settings again by `apply`; return a line on it."""
    requested = requested_start(settings)
    if requested.lower() in ("", *NO_START):
        return "weights start at random"
    message = use_start(plan, requested, build, **network)
    for setting in without_start(settings):
        # sizes were applied before, and rounded to what the network accepts
        if not setting.startswith(("patch=", "size=", "spacing=")):
            apply(plan, setting)
    return message


def summarise_network(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's network without details."""
    return {key: value for key, value in network.items() if key not in ("config", "origin")}


def _count_channels(plan: Mapping[str, Any], start: Start) -> int:
    """Return the channels: grey images are repeated for colour networks; named channels stay if the first layer can be adapted."""
    names, max_channels = plan.get("channel_names") or (), int(start.entry["channels"])
    if start.entry["builder"] in FIXED_CHANNEL_BUILDERS and len(names) > max_channels:
        raise StartError(f"it takes {max_channels} channels, and a case has {len(names)}: {', '.join(names)}")
    return len(names) if names and start.entry["builder"] not in FIXED_CHANNEL_BUILDERS else max_channels


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
    """Return the share of the minutes that is left for training after a short one of each start."""
    return 1 - 2 * float(plan["network"].get("trial") or 0) if plan.get("scratch") else 1.0


PACKAGES = {"transformers": "transformers", "timm": "timm", "swinvit": "monai"}


def list_packages(network: Mapping[str, Any]) -> list[str]:
    """Return the packages that the network of a plan needs in addition to PyTorch, for requirements.txt."""
    config = network.get("config") or {}
    builder = config.get("builder", "transformers") if config else ""
    return [PACKAGES[builder]] if builder in PACKAGES else []
