"""A plan that starts from pretrained weights, and the way back to one that does not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from m3b.training.pretrained.backbones import build_backbone, told
from m3b.training.pretrained.starts import Start, StartError, find_start

Plan = dict[str, Any]
Build = Callable[[Mapping[str, Any], int, int], Any]
NONE = ("none", "null", "false", "0")
KEYS = ("network", "lr", "channels", "size", "patch", "batch", "intensity", "spacing")
"""What of a plan follows from the weights that it starts from."""
OWN_CHANNELS = ("transformers",)
"""Builders whose first layer is as it is."""


def wanted_start(settings: Sequence[str]) -> str:
    """NAME or DIR of `--set network.pretrained=...`; empty where it is not set."""
    named = [text.partition("=")[2].strip("\"'") for text in settings if text.startswith("network.pretrained=")]
    return named[-1] if named else ""


def without_start(settings: Sequence[str]) -> list[str]:
    """The other settings."""
    return [text for text in settings if not text.startswith("network.pretrained=")]


def use_start(plan: Plan, wanted: str, build: Build = build_backbone, **network: Any) -> str:
    """Changes the plan so that it starts from the weights, and keeps what was there in `scratch`; says what was done.

    Args:
        wanted: a name of the registry, or a folder.
        build: (network, dims, channels) to what takes the weights; what was taken of them stands in its `taken`.
        network: goes into plan.json's `network` besides.

    Raises:
        SystemExit: the weights cannot be used; says why and what to do.
    """
    before = {key: copy.deepcopy(plan[key]) for key in KEYS if key in plan}
    try:
        start = find_start(wanted, str(plan["task"]), int(plan["dims"]))
        plan["channels"] = _channels(plan, start)
        plan["network"] = {**start.network, **network}
        taken = told(build(plan["network"], int(plan["dims"]), int(plan["channels"])))
    except (StartError, OSError) as error:
        raise SystemExit(f"--set network.pretrained={wanted}: {error}") from error
    plan["lr"] = 1e-3
    for key in ("size", "patch"):
        if plan.get(key):
            plan[key] = _sides(plan[key], start.entry)
    if plan["intensity"]["mode"] != "each":
        plan["intensity"] = plan["intensity"] | spread(start.intensity(plan["intensity"]), int(plan["channels"]))
    plan["scratch"] = {key: value for key, value in before.items() if plan[key] != value}
    entry = start.entry
    return f"weights start from {entry['name']} (licence: {entry['licence']}), if validation does not speak for scratch: {taken}"


def start_from(
    plan: Plan,
    settings: Sequence[str],
    again: Callable[[Plan, str], None],
    build: Build = build_backbone,
    **network: Any,
) -> str:
    """The plan as `--set network.pretrained=` wants it; what else was set is set again by `again`. Says what was done."""
    wanted = wanted_start(settings)
    if wanted.lower() in ("", *NONE):
        return "weights start at random"
    said = use_start(plan, wanted, build, **network)
    for setting in without_start(settings):
        if not setting.startswith(
            ("patch=", "size=", "spacing=")
        ):  # obeyed before, and rounded to what the network takes
            again(plan, setting)
    return said


def shown(network: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's network for people."""
    return {key: value for key, value in network.items() if key not in ("config", "origin")}


def _channels(plan: Mapping[str, Any], start: Start) -> int:
    """Grey pictures are repeated for networks of colour; named channels stay, where the first layer can be adapted."""
    names, room = plan.get("channel_names") or (), int(start.entry["channels"])
    if start.entry["builder"] in OWN_CHANNELS and len(names) > room:
        raise StartError(f"it takes {room} channels, and a case has {len(names)}: {', '.join(names)}")
    return len(names) if names and start.entry["builder"] not in OWN_CHANNELS else room


def _sides(wanted: Sequence[int], entry: Mapping[str, Any]) -> list[int]:
    """Multiples of what the network divides its input by, near what was wanted."""
    arch = entry.get("arch") or {}
    step = int(arch.get("patch_size") or arch.get("patch") or 32)
    return [max(2 * step if step < 32 else step, round(side / step) * step) for side in wanted]


def spread(rule: Mapping[str, Any], channels: int) -> dict[str, Any]:
    """Mean and deviation a channel, as many as there are."""
    found = dict(rule)
    for key in ("mean", "std"):
        if isinstance(found.get(key), list) and len(found[key]) != channels:
            found[key] = [found[key][place % len(found[key])] for place in range(channels)]
    return found


def trained_share(plan: Mapping[str, Any]) -> float:
    """Share of the minutes that is left for the training itself, after a short one of each side."""
    return 1 - 2 * float(plan["network"].get("trial") or 0) if plan.get("scratch") else 1.0


PACKAGES = {"transformers": "transformers", "timm": "timm", "swinvit": "monai"}


def packages(network: Mapping[str, Any]) -> list[str]:
    """What the network of a plan needs besides PyTorch, for requirements.txt."""
    config = network.get("config") or {}
    builder = config.get("builder", "transformers") if config else ""
    return [PACKAGES[builder]] if builder in PACKAGES else []
