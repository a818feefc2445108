"""Pretrained networks without their heads: an image in, feature maps from fine to coarse out.

Each backbone has `forward(x (B, C, H, W[, D])) -> [maps]`, `widths`, the channels of each map, `steps`, its stride along each axis,
and `multiple`, which divides the sides of the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from m3b.training.pretrained.tensors import LoadedTensors, load_tensors
from m3b.training.pretrained.weight_files import StartError, find_weight_files

if TYPE_CHECKING:
    from m3b.training.pretrained.feature_memo import FeatureMemo, LastInputMemo


def build_backbone(network: Mapping[str, Any], dims: int, channels: int, load: bool = True) -> nn.Module:
    """Build the backbone of plan.json's `network`; load its weights from `pretrained` if `load`. A `backbone_lr` of 0 freezes them.

    Raises:
        StartError: a package is missing, or the weights do not fit.
    """
    config = network["config"]
    body = _build(str(config["builder"]), config, dims, channels)
    source = network.get("pretrained")
    body.taken = None
    if load and source:
        module = getattr(body, "inner", body)  # a model of another package has that package's names
        if config["builder"] == "transformers" and not config.get("keys"):
            body.taken = body.fetch(Path(str(source)))
        else:
            body.taken = load_tensors(module, find_weight_files(Path(str(source))), config, str(source))
    if network.get("backbone_lr") != 0:
        return body
    frozen = FrozenBackbone(body)
    if load and source and network.get("feature_views"):
        from m3b.training.pretrained.feature_memo import get_memo

        frozen.memo = get_memo(str(source))
    return frozen


class FrozenBackbone(nn.Module):
    """A backbone whose weights and running statistics stay as they are: a step costs its forward pass alone."""

    is_frozen_backbone = True

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.widths, self.steps, self.multiple, self.taken = inner.widths, inner.steps, inner.multiple, inner.taken
        self.memo: FeatureMemo | LastInputMemo | None = None

    def remember_last_input(self) -> None:
        """Compute the maps of an input once if the networks of an ensemble ask for them one after another."""
        from m3b.training.pretrained.feature_memo import LastInputMemo

        self.memo = LastInputMemo()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.inner.eval()
        return self

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            return self.memo.compute(self.inner, x) if self.memo else list(self.inner(x))


def describe_weights(body: nn.Module) -> str:
    """Return how much of the file was loaded."""
    taken = getattr(body, "taken", None)
    return str(taken) if isinstance(taken, LoadedTensors) else "nothing was loaded"


def _build(builder: str, config: Mapping[str, Any], dims: int, channels: int) -> nn.Module:
    arch = config.get("arch") or {}
    if builder in ("resnet", "densenet", "vit"):
        from m3b.training.pretrained import backbones_2d

        backbone = {"resnet": backbones_2d.ResNet, "densenet": backbones_2d.DenseNet, "vit": backbones_2d.ViT}[builder]
        return backbone(dims, channels, arch)
    if builder in ("stunet", "nnunet", "swinvit"):
        from m3b.training.pretrained import backbones_3d

        if builder == "swinvit":
            return backbones_3d.SwinBackbone(channels, arch)
        return backbones_3d.Stages(dims, channels, arch, residual=builder == "stunet")
    from m3b.training.pretrained import external_backbones

    if builder == "timm":
        return external_backbones.TimmBackbone(channels, arch)
    if builder == "transformers":
        return external_backbones.HubBackbone(arch)
    raise StartError(f"builder {builder!r} in plan.json is unknown")


def pad_to_multiple(x: torch.Tensor, multiple: int) -> torch.Tensor:
    """Pad with zeros at the end of each axis, so that every side is a multiple."""
    padding = [(-side) % multiple for side in x.shape[2:]]
    if not any(padding):
        return x
    return nn.functional.pad(x, [part for length in reversed(padding) for part in (0, length)])


class Pooled(nn.Module):
    """A backbone with a linear layer on the mean and maximum of its coarsest map: (B, C, ...) to (B, outputs)."""

    def __init__(self, body: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Sequential(nn.Dropout(dropout), nn.LayerNorm(2 * body.widths[-1]))
        self.head.append(nn.Linear(2 * body.widths[-1], outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.body(pad_to_multiple(x, self.body.multiple))[-1].flatten(2)
        return torch.as_tensor(self.head(torch.cat([maps.mean(2), maps.amax(2)], dim=1)))


class LastMap(nn.Module):
    """The coarsest map of a backbone: (B, C, ...) to (B, width, ...)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.body(pad_to_multiple(x, self.body.multiple))[-1])
