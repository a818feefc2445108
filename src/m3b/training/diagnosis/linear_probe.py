"""A linear probe beside the networks of a classifier: a linear layer on the features of a frozen pretrained network.

The logits of a model are a weighted mean of those of its networks (over test-time views) and those of the probe (of the image itself).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from m3b.training.diagnosis.network import count_outputs
from m3b.training.stored_networks import PROBE_PREFIX, load_weights

BACKBONE_FILE = "linear_probe.safetensors"
"""File with the frozen weights, in Logout and in a deliverable; those of the linear layer are in the file of each network."""
CHANNELS = 3


def has_linear_probe(plan: Mapping[str, Any]) -> bool:
    """Return whether the plan has the pretrained network of a probe."""
    rule = plan.get("linear_probe") or {}
    return bool(rule.get("config")) and rule.get("weights") != "none"


def describe_mixture(rule: Mapping[str, Any]) -> str:
    """Return the parts of a model in words."""
    weight = float(rule["weight"])
    return f"{1 - weight:.1f} network + {weight:.1f} linear probe of frozen {rule['origin']['name']} features"


class LinearProbe(nn.Module):
    """`forward(logits (B, K), pixel_values, views) -> (B, K)`: the logits of the model from those of its networks.

    Args:
        load: read the pretrained weights; a deliverable has its own.
    """

    def __init__(self, plan: Mapping[str, Any], load: bool = False) -> None:
        from m3b.training.pretrained.backbones import build_backbone

        super().__init__()
        rule, intensity = plan["linear_probe"], plan["intensity"]
        network = {"config": rule["config"], "pretrained": rule.get("pretrained"), "backbone_lr": 0}
        self.backbone = build_backbone(network, int(plan["dims"]), CHANNELS, load)
        self.head = nn.Linear(2 * self.backbone.widths[-1], count_outputs(plan))
        self.size, self.weight = tuple(rule["size"]), float(rule.get("weight") or 0.0)
        scales = [
            (_as_channels(part["mean"]), _as_channels(part["std"])) for part in (intensity, rule) if "mean" in part
        ]
        (mean, std), (probe_mean, probe_std) = scales if len(scales) == 2 else [(torch.zeros(1), torch.ones(1))] * 2
        self.register_buffer("factor", std / probe_std, persistent=False)
        self.register_buffer("offset", (mean - probe_mean) / probe_std, persistent=False)

    def extract_features(self, pixels: torch.Tensor, views: torch.Tensor | None = None) -> torch.Tensor:
        """Return mean and maximum (B, D) of the coarsest map; of a study (B, V, C, H, W) their mean over the existing views (B, V)."""
        from m3b.training.pretrained.backbones import pad_to_multiple

        if views is not None:
            rows = self.extract_features(pixels.flatten(0, 1)).reshape(*pixels.shape[:2], -1)
            return (rows * views.unsqueeze(-1)).sum(1) / views.sum(1, keepdim=True)
        pixels = pixels * self.get_buffer("factor") + self.get_buffer("offset")
        pixels = nn.functional.interpolate(
            pixels.expand(-1, CHANNELS, -1, -1), size=self.size, mode="bilinear", align_corners=False
        )
        maps = self.backbone(pad_to_multiple(pixels, self.backbone.multiple))[-1].flatten(2)
        return torch.cat([maps.mean(2), maps.amax(2)], dim=1)

    def forward(
        self, logits: torch.Tensor, pixel_values: torch.Tensor, views: torch.Tensor | None = None
    ) -> torch.Tensor:
        return (1 - self.weight) * logits + self.weight * self.head(self.extract_features(pixel_values, views))


def _as_channels(value: Any) -> torch.Tensor:
    return torch.tensor(np.atleast_1d(np.asarray(value, np.float32))).reshape(-1, 1, 1)


def load_linear_probe(folder: Path, config: Mapping[str, Any]) -> LinearProbe | None:
    """Return the probe of a deliverable, whose linear layer is the mean of those of its networks; None if it has none."""
    from safetensors.torch import load_file

    if not config.get("linear_probe_weights"):
        return None
    probe = LinearProbe(config["plan"])
    probe.backbone.load_state_dict(load_file(str(folder / config["linear_probe_weights"])))
    states = load_weights(folder, config)
    names = ("weight", "bias")
    probe.head.load_state_dict({name: torch.stack([s[PROBE_PREFIX + name] for s in states]).mean(0) for name in names})
    probe.eval()
    return probe
