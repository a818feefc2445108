"""Networks to start from, without their heads: a picture or volume in, maps from fine to coarse out.

Each is a backbone and has `forward(x (B, C, H, W[, D])) -> [maps]`, `widths`, the channels of each map, `steps`, by how
much each is smaller than the input, an int an axis, and `multiple`, what the sides of the input have to be multiples of.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.starts import StartError, weights_in
from m3b.training.pretrained.tensors import Taken, fill


def build_backbone(network: Mapping[str, Any], dims: int, channels: int, load: bool = True) -> nn.Module:
    """The backbone of plan.json's `network`, with its weights if `load` and they lie where `pretrained` says.

    Raises:
        StartError: a package is missing, or the weights do not fit.
    """
    config = network["config"]
    body = _build(str(config["builder"]), config, dims, channels)
    place = network.get("pretrained")
    body.taken = None
    if load and place:
        inside = getattr(body, "inner", body)  # another package's model has that package's names
        if config["builder"] == "transformers" and not config.get("keys"):
            body.taken = body.fetch(Path(str(place)))
        else:
            body.taken = fill(inside, weights_in(Path(str(place))), config, str(place))
    return body


def told(body: nn.Module) -> str:
    """How much of the file was taken, for people."""
    taken = getattr(body, "taken", None)
    return str(taken) if isinstance(taken, Taken) else "nothing was loaded"


def _build(builder: str, config: Mapping[str, Any], dims: int, channels: int) -> nn.Module:
    arch = config.get("arch") or {}
    if builder in ("resnet", "densenet", "vit"):
        from m3b.training.pretrained import backbones_2d as pictures

        kind = {"resnet": pictures.ResNet, "densenet": pictures.DenseNet, "vit": pictures.ViT}[builder]
        return kind(dims, channels, arch)
    if builder in ("stunet", "nnunet", "swinvit"):
        from m3b.training.pretrained import backbones_3d as volumes

        if builder == "swinvit":
            return volumes.SwinBackbone(channels, arch)
        return volumes.Stages(dims, channels, arch, residual=builder == "stunet")
    from m3b.training.pretrained import library_backbones as outside

    if builder == "timm":
        return outside.TimmBackbone(channels, arch)
    if builder == "transformers":
        return outside.HubBackbone(arch)
    raise StartError(f"builder {builder!r} in plan.json is not known")


def padded(x: torch.Tensor, multiple: int) -> torch.Tensor:
    """Zeros at the far sides, so that every side is a multiple."""
    extra = [(-side) % multiple for side in x.shape[2:]]
    if not any(extra):
        return x
    return nn.functional.pad(x, [part for one in reversed(extra) for part in (0, one)])


class Pooled(nn.Module):
    """A backbone with one linear layer on the mean and the maximum of its coarsest map: (B, C, ...) to (B, outputs)."""

    def __init__(self, body: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Sequential(nn.Dropout(dropout), nn.LayerNorm(2 * body.widths[-1]))
        self.head.append(nn.Linear(2 * body.widths[-1], outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.body(padded(x, self.body.multiple))[-1].flatten(2)
        return torch.as_tensor(self.head(torch.cat([maps.mean(2), maps.amax(2)], dim=1)))


class LastMap(nn.Module):
    """A backbone's coarsest map alone: (B, C, ...) to (B, width, ...)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.body(padded(x, self.body.multiple))[-1])
