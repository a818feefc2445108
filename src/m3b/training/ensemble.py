"""Networks of several folds as one: their chances are averaged, so that all that takes one network takes them together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

KINDS = ("classes", "chances", "values")
"""What the first channels of the logits are: exclusive classes (softmax), chances by themselves (sigmoid), or plain values."""
LEAST = 1e-6


class Together(nn.Module):
    """`forward(pixel_values) -> {"logits"}`: the logits of the mean of the networks' chances.

    Args:
        kind: of `KINDS`.
        first: so many channels are of that kind, the others are values and averaged as they are; None: all.
    """

    def __init__(self, networks: Sequence[nn.Module], kind: str, first: int | None = None) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r}: known are {', '.join(KINDS)}")
        self.networks, self.kind, self.first = nn.ModuleList(networks), kind, first
        self.cell, self.decode = getattr(networks[0], "cell", None), getattr(networks[0], "decode", None)

    @property
    def half(self) -> bool:
        """Whether the networks compute in bfloat16."""
        return bool(getattr(self.networks[0], "half", False))

    @half.setter
    def half(self, value: bool) -> None:
        for network in self.networks:
            network.half = value  # type: ignore[assignment]

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        found = [network(pixel_values=pixel_values)["logits"].float() for network in self.networks]
        first = found[0].shape[1] if self.first is None else self.first
        values = sum(one[:, first:] for one in found) / len(found)
        return {"logits": torch.cat([self._joined([one[:, :first] for one in found]), values], dim=1)}

    def _joined(self, logits: list[torch.Tensor]) -> torch.Tensor:
        if self.kind == "values":
            return torch.stack(logits).mean(0)
        if self.kind == "classes":
            return torch.stack([one.softmax(1) for one in logits]).mean(0).clamp_min(LEAST).log()
        chance = torch.stack([one.sigmoid() for one in logits]).mean(0).clamp(LEAST, 1 - LEAST)
        return torch.log(chance / (1 - chance))


def joined(networks: Sequence[nn.Module], kind: str, first: int | None = None) -> nn.Module:
    """A single network as it is, several as `Together`; in evaluation mode."""
    return (networks[0] if len(networks) == 1 else Together(networks, kind, first)).eval()
