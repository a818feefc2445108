"""Volumes and clips by a 2D network: each slice or frame with its neighbours as channels (2.5D), pooled by attention.

`network.encoder` of a plan is `volume` (a 3D network, also if it is absent), `slices`, or `both`, whose logits are averaged with
`network.slice_weight`. One 2D network processes every slice, as in MRNet (Bien et al., PLOS Medicine 2018) and in temporal segment
networks (Wang et al., ECCV 2016); attention (Ilse et al., ICML 2018) weighs their features, so that a finding in one slice counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

VOLUME, SLICES, BOTH = "volume", "slices", "both"
ENCODERS = (VOLUME, SLICES, BOTH)
NEIGHBOURS = 3
"""Slices or frames that the 2D network sees as channels: one and its neighbours."""
FEATURES, ATTENTION_WIDTH = 64, 32
EQUAL_WEIGHT = 0.5
"""Weight of the slices until validation has chosen one."""


def encoder_of(plan: Mapping[str, Any]) -> str:
    """Return which networks the plan has, of `ENCODERS`."""
    return str(plan["network"].get("encoder") or VOLUME)


def slice_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of the 2D network that processes the slices."""
    network = {key: value[:2] if key == "stem" and value else value for key, value in plan["network"].items()}
    channels = NEIGHBOURS * int(plan["channels"])
    return {**plan, "dims": 2, "size": list(plan["size"][:2]), "channels": channels, "network": network}


def pretrained_plan(plan: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """Return the plan of the network that pretrained weights are for, and how many images of a case it processes."""
    return (slice_plan(plan), int(plan["size"][2])) if encoder_of(plan) == SLICES else (plan, 1)


def stack_neighbours(volumes: torch.Tensor) -> torch.Tensor:
    """Return (B, D, 3 C, H, W) of (B, C, H, W, D): each slice with the one before and after; the outermost are repeated."""
    slices = volumes.permute(0, 4, 1, 2, 3)
    padded = torch.cat([slices[:, :1], slices, slices[:, -1:]], dim=1)
    return torch.cat([padded[:, :-2], slices, padded[:, 2:]], dim=2)


class SliceNetwork(nn.Module):
    """A 2D network on every slice, and a linear layer on the mean of their features by attention: (B, C, H, W, D) to (B, outputs).

    Args:
        inner: the 2D network, (B, 3 C, H, W) to (B, FEATURES).
    """

    def __init__(self, inner: nn.Module, outputs: int) -> None:
        super().__init__()
        self.inner, self.head = inner, nn.Module()
        self.head.attention = nn.Sequential(
            nn.Linear(FEATURES, ATTENTION_WIDTH), nn.Tanh(), nn.Linear(ATTENTION_WIDTH, 1)
        )
        self.head.output = nn.Linear(FEATURES, outputs)

    def forward(self, volumes: torch.Tensor) -> torch.Tensor:
        features = self.inner(stack_neighbours(volumes).flatten(0, 1))
        features = features.reshape(volumes.shape[0], volumes.shape[-1], FEATURES)
        weights = self.head.attention(features).softmax(dim=1)
        return torch.as_tensor(self.head.output((weights * features).sum(dim=1)))


class VolumeAndSlices(nn.Module):
    """A 3D network and a `SliceNetwork`, each of which learns alone: (B, C, H, W, D) to (2 B, outputs), those of the volumes first."""

    def __init__(self, volume: nn.Module, slices: nn.Module) -> None:
        super().__init__()
        self.volume, self.slices = volume, slices

    def forward(self, volumes: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.volume(volumes), self.slices(volumes)])


def average_encoders(outputs: torch.Tensor, weight: float) -> torch.Tensor:
    """Return (B, K): the mean of the rows of `VolumeAndSlices`, with the weight of the slices."""
    volume, slices = outputs.chunk(2)
    return (1 - weight) * volume + weight * slices
