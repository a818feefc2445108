"""The probe's training on one batch: it learns in both precisions, stops when it has learnt, and sees a dead gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from m3b.agents.checks.probe import LEARNED_LOSS_RATIO, MAX_STEPS, MIN_STEPS, overfit_batch


class Net(nn.Module):
    """Two convolutions on noise; `dead` cuts the gradient's way to the weights."""

    def __init__(self, dead: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.dead = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 2, 6)), dead
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        logits = self.layers(pixel_values).flatten(1)
        logits = (logits.detach() if self.dead else logits) + self.offset
        return {"logits": logits, "loss": nn.functional.cross_entropy(logits.float(), labels)}


def batch() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {"pixel_values": torch.randn(8, 1, 8, 8), "labels": torch.arange(8) % 2}


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
def test_one_batch_is_learnt_and_no_step_more_is_made(half: bool) -> None:
    report: dict[str, Any] = {}
    overfit_batch(Net(), batch(), report, half)
    assert report["loss_after"] < LEARNED_LOSS_RATIO * report["loss_before"]
    assert MIN_STEPS <= report["steps"] < MAX_STEPS


def test_a_gradient_that_does_not_arrive_is_seen() -> None:
    report: dict[str, Any] = {}
    overfit_batch(Net(dead=True), batch(), report)
    assert report["loss_after"] > 0.95 * report["loss_before"]
    assert report["steps"] == MAX_STEPS
