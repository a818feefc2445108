"""Networks of several folds as one network that averages their probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

LOGIT_KINDS = ("classes", "chances", "values")
"""Meaning of the first channels of the logits: exclusive classes (softmax), independent probabilities (sigmoid), or plain values."""
MIN_PROBABILITY = 1e-6


class Ensemble(nn.Module):
    """`forward(pixel_values) -> {"logits"}`: the logits of the networks' mean probabilities.

    Args:
        kind: of `LOGIT_KINDS`.
        probability_channels: number of channels of that kind; the others are values and averaged as they are. None: all.
    """

    def __init__(self, networks: Sequence[nn.Module], kind: str, probability_channels: int | None = None) -> None:
        super().__init__()
        if kind not in LOGIT_KINDS:
            raise ValueError(f"kind {kind!r}: known are {', '.join(LOGIT_KINDS)}")
        self.networks, self.kind, self.probability_channels = nn.ModuleList(networks), kind, probability_channels
        self.cell, self.decode = getattr(networks[0], "cell", None), getattr(networks[0], "decode", None)

    @property
    def half(self) -> bool:
        """Return whether the networks compute in bfloat16."""
        return bool(getattr(self.networks[0], "half", False))

    @half.setter
    def half(self, value: bool) -> None:
        for network in self.networks:
            network.half = value

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = [network(pixel_values=pixel_values)["logits"].float() for network in self.networks]
        probability_channels = outputs[0].shape[1] if self.probability_channels is None else self.probability_channels
        values = sum(logit[:, probability_channels:] for logit in outputs) / len(outputs)
        return {
            "logits": torch.cat([self._average([logit[:, :probability_channels] for logit in outputs]), values], dim=1)
        }

    def _average(self, logits: list[torch.Tensor]) -> torch.Tensor:
        if self.kind == "values":
            return torch.stack(logits).mean(0)
        if self.kind == "classes":
            return torch.stack([logit.softmax(1) for logit in logits]).mean(0).clamp_min(MIN_PROBABILITY).log()
        probability = (
            torch.stack([logit.sigmoid() for logit in logits]).mean(0).clamp(MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        )
        return torch.log(probability / (1 - probability))


def build_ensemble(networks: Sequence[nn.Module], kind: str, probability_channels: int | None = None) -> nn.Module:
    """Return a single network as it is, several as an `Ensemble`, in evaluation mode."""
    return (networks[0] if len(networks) == 1 else Ensemble(networks, kind, probability_channels)).eval()
