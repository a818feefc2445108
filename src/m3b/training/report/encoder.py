"""Images, volumes and several views of a study as a sequence of image tokens, and the findings predicted from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.backbones import LastMap, build_backbone
from m3b.training.recipe import RecipeInput, get_recipe, with_derived_channels
from m3b.training.residual_block import CONV, NORM, ResidualBlock


def small_cnn(dims: int, channels: int, size: list[int], width: int, grid: int) -> nn.Module:
    """Return residual stages that halve the image until its shortest side has at most `grid` positions."""
    shortest = min(size)
    is_large = shortest > (80 if dims == 2 else 28)
    stride = 2 if is_large else 1
    layers: list[nn.Module] = [
        CONV[dims](channels, width, 5 if is_large else 3, stride, 2 if is_large else 1, bias=False),
        NORM[dims](width),
        nn.ReLU(inplace=True),
    ]
    shortest = -(-shortest // stride)
    if is_large and dims == 2:
        layers.append(nn.MaxPool2d(2))
        shortest //= 2
    in_channels = width
    while shortest > grid:
        out_channels = min(in_channels * 2, 256)
        layers.append(ResidualBlock(dims, in_channels, out_channels, 2))
        in_channels, shortest = out_channels, (shortest + 1) // 2
    layers.append(ResidualBlock(dims, in_channels, in_channels, 1))
    return nn.Sequential(*layers)


def build_network(plan: Mapping[str, Any], load: bool = True) -> nn.Module:
    """Return the network from images (B, C, H, W[, D]) to their last map (B, width, *positions)."""
    network, dims, size = plan["network"], int(plan["dims"]), [int(v) for v in plan["size"]]
    channels = int(plan["channels"])
    if (network.get("config") or {}).get("builder"):
        return LastMap(build_backbone(network, dims, channels, load))
    if network.get("image_model"):
        if dims != 2:
            raise SystemExit("network.image_model in plan.json: pretrained image models are for 2D images")
        from m3b.training.report.model_folders import load_image_model

        return load_image_model(str(network["image_model"]), load)
    return small_cnn(dims, channels, size, int(network["image_width"]), 8 if dims == 2 else 6)


class ImageEncoder(nn.Module):
    """(B, V, C, H, W[, D]) to (B, V x positions, width): one network for all views, with position and view embeddings."""

    def __init__(self, plan: Mapping[str, Any], weights: bool = True) -> None:
        super().__init__()
        self.input, plan = RecipeInput(plan), with_derived_channels(plan)
        channels, size, self.width = (
            int(plan["channels"]),
            [int(v) for v in plan["size"]],
            int(plan["network"]["width"]),
        )
        self.features = get_recipe().build_network(plan, weights)
        self.features.eval()
        with torch.no_grad():
            maps = self.features(torch.zeros(1, channels, *size)).flatten(2)
        self.features.train()
        self.positions = int(maps.shape[2])
        self.project = nn.Linear(int(maps.shape[1]), self.width)
        self.norm = nn.LayerNorm(self.width)
        self.places = nn.Parameter(torch.randn(self.positions, self.width) * 0.5)
        self.views = nn.Parameter(torch.randn(int(plan["views"]), self.width) * 0.2)

    def forward(self, pixels: torch.Tensor, is_present: torch.Tensor) -> torch.Tensor:
        """Encode the views with `is_present` (B, V) bool; the network runs on those only."""
        features = self.features(self.input(pixels.flatten(0, 1)[is_present.flatten()])).flatten(2).transpose(1, 2)
        tokens = self.norm(self.project(features))
        all_tokens = tokens.new_zeros(is_present.numel(), *tokens.shape[1:])
        all_tokens[is_present.flatten()] = tokens
        all_tokens = all_tokens.view(*is_present.shape, *tokens.shape[1:])
        positioned = all_tokens + self.places + self.views[: is_present.shape[1], None]
        return positioned.flatten(1, 2)


class FindingHead(nn.Module):
    """One logit a finding: attention over the image tokens, in addition to their mean and maximum."""

    def __init__(self, width: int, findings: int, dropout: float) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(findings, width) * 0.02)
        self.key = nn.Linear(width, width)
        self.weight = nn.Parameter(torch.randn(findings, width) * width**-0.5)
        self.overall = nn.Linear(2 * width, findings)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: torch.Tensor, is_present: torch.Tensor) -> torch.Tensor:
        """Return (B, findings) logits from (B, N, width) tokens with mask (B, N) bool."""
        scores = self.queries @ self.key(tokens).transpose(1, 2) / tokens.shape[-1] ** 0.5
        attention = scores.masked_fill(~is_present[:, None], float("-inf")).softmax(dim=-1)
        attended = (self.dropout(attention @ tokens) * self.weight).sum(dim=-1)
        count = is_present.sum(dim=1, keepdim=True).clamp_min(1)
        mean = (tokens * is_present[..., None]).sum(dim=1) / count
        maximum = tokens.masked_fill(~is_present[..., None], float("-inf")).amax(dim=1)
        return attended + self.overall(self.dropout(torch.cat([mean, maximum], dim=1)))
