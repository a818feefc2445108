"""Input channels that the network computes from those of the image: an edge map, a smoothed copy, places. Edit this file alone.

`derive` runs in training, validation, predict.py and exported graphs alike, on what the plan's intensity made of an image; nothing
else has to know. nnU-Net's own trainer and detectors from few examples do not ask it.

A channel of edges:

    ADDED = 1

    def derive(pixels):
        steps = [torch.diff(pixels, dim=axis, prepend=pixels.narrow(axis, 0, 1)) for axis in range(2, pixels.ndim)]
        return torch.cat([pixels, sum(step**2 for step in steps).sum(1, keepdim=True).sqrt()], dim=1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

ADDED = 0
"""How many channels `derive` adds."""


def derive(pixels: torch.Tensor) -> torch.Tensor:
    """(B, C, H, W[, D]) of float32 to (B, C + ADDED, H, W[, D]); of each image from itself alone."""
    return pixels


def seen(pixels: torch.Tensor) -> torch.Tensor:
    """What the first layer gets: `derive`, and whether it kept its word."""
    if not ADDED:
        return pixels
    found = derive(pixels)
    want = (pixels.shape[1] + ADDED, *pixels.shape[2:])
    if found.shape[1:] != want:
        raise SystemExit(
            f"Utils/derived.py: derive made {tuple(found.shape[1:])} of {tuple(pixels.shape[1:])}, and ADDED = {ADDED} asks for {want}"
        )
    return found


def wide(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan with the number of channels that the first layer gets.

    Raises:
        SystemExit: channels are added, and the pretrained network takes those of its own configuration alone.
    """
    network = plan["network"]
    config = network.get("config") or {}
    if ADDED and (network.get("image_model") or (config and config.get("builder", "transformers") == "transformers")):
        raise SystemExit(
            "Utils/derived.py adds input channels, and this pretrained network takes its own number alone: set ADDED = 0, or "
            "start from another (--set network.pretrained=none)"
        )
    return {**plan, "channels": int(plan["channels"]) + ADDED}
