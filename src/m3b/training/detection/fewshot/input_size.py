"""Input size of a frozen backbone: that of its weights, or a smaller one if the minutes do not hold it; and size of its features."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from m3b.training.detection.fewshot.backbone import load_backbone
from m3b.training.detection.fewshot.data import count_used_cases
from m3b.training.detection.fewshot.model import MAX_PATCHES_PER_SIDE, adapter_blocks, frozen_features
from m3b.training.precision import device_of
from m3b.training.threads import use_threads

MAX_FEATURE_SHARE = 0.5
"""Share of the minutes that the backbone may take for the features of all pictures."""
MIN_PATCHES_PER_SIDE = 8
"""Patches per side of the input that a reduction keeps."""
MIN_CACHED_PATCHES_PER_SIDE = 4
MAX_CACHE_BYTES = 8 * 1024**3
"""Maximum size of the cached features; at most half of the free disk, too."""


def fit_input_size(plan: dict[str, Any], case_count: int, keep_size: bool = False) -> None:
    """Reduce `backbone.size` until the features fit into the minutes, and `backbone.patches` until they fit on the disk.

    The reason is written to `backbone.why_size`.

    Args:
        keep_size: whether the size is set by the user or by adapters of other sets.

    Raises:
        SystemExit: the disk is too small.
    """
    backbone, used = plan["backbone"], count_used_cases(plan["fewshot"], case_count)
    if plan["engine"] != "fewshot" or plan["fewshot"]["protocol"] == "paper":
        return
    minutes = float(plan["minutes"]) * (0.5 if plan.get("detector") and plan["fewshot"]["compare"] else 1.0)
    full, step = int(backbone["size"]), int(backbone["step"])
    image_seconds, sides, widths = measure_backbone(plan)
    size = full if keep_size else choose_size(full, step, used * image_seconds, 60 * minutes * MAX_FEATURE_SHARE)
    expected_minutes = used * image_seconds * (size / full) ** 2 / 60
    backbone["size"] = size
    backbone["why_size"] = (
        f"features of {used} pictures take about {expected_minutes:.1f} of {minutes:g} min"
        + (f"; at the size of the weights, {full} x {full}, {used * image_seconds / 60:.1f}" if size < full else "")
        + (
            "; more minutes or fewer cases would leave time to train"
            if expected_minutes > minutes * MAX_FEATURE_SHARE
            else ""
        )
    )
    free_bytes = shutil.disk_usage(Path.cwd()).free // 2
    sides = [max(1, side * size // full) for side in sides]
    plan["patch"] = [size, size]
    backbone["patches"] = choose_patches(sides, widths, used, min(MAX_CACHE_BYTES, free_bytes))


def choose_size(full: int, step: int, seconds: float, max_seconds: float) -> int:
    """Return the largest multiple of `step` up to `full` whose pictures take at most `max_seconds`; at least eight patches a side.

    Args:
        seconds: for all pictures at the full size; the time is proportional to the pixels.
    """
    largest = int(full * min(1.0, (max_seconds / max(seconds, 1e-9)) ** 0.5)) // step * step
    return min(full, max(largest, MIN_PATCHES_PER_SIDE * step))


def choose_patches(sides: list[int], widths: list[int], pictures: int, max_bytes: int) -> int:
    """Return the patches per side that are cached at each depth, at most.

    Raises:
        SystemExit: even the fewest do not fit.
    """
    for side in range(MAX_PATCHES_PER_SIDE, MIN_CACHED_PATCHES_PER_SIDE - 1, -1):
        values = sum(min(side, own_side) ** 2 * width for own_side, width in zip(sides, widths, strict=True))
        if 2 * values * pictures <= max_bytes:
            return side
    raise SystemExit(
        f"features of {pictures} pictures need {2 * values * pictures / 1024**3:.1f} GB on the disk of this project, of which "
        f"{max_bytes / 1024**3:.1f} GB may be used: free some, or set fewshot.shots"
    )


@torch.no_grad()
def measure_backbone(plan: Mapping[str, Any]) -> tuple[float, list[int], list[int]]:
    """Return seconds per picture at the plan's size on its device, and patches per side and width of each depth."""
    use_threads(plan)
    device, size = device_of(plan), int(plan["backbone"]["size"])
    backbone = load_backbone(plan["backbone"])
    backbone.vision.to(device)
    blocks, picture, seconds = adapter_blocks(backbone), torch.zeros(1, 3, size, size, device=device), []
    for _ in range(2):  # the first one includes preparations
        started = time.monotonic()
        depths = frozen_features(backbone.vision, blocks, picture, size)
        shapes = [tuple(depth.cpu().shape[1:]) for depth in depths]
        seconds.append(time.monotonic() - started)
    return min(seconds), [int(patches**0.5) for patches, _ in shapes], [width for _, width in shapes]
