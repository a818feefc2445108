"""The optimiser that a plan names: AdamW, or Muon for the kernels of convolutional networks that start at random.

K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), https://kellerjordan.github.io/posts/muon/.
`torch.optim.Muon` takes matrices alone; here a kernel is a matrix with one row an output channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from m3b.training.plan_settings import CHOICES

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration, as published: five rounds bring all singular values to between 0.7 and 1.2."""
ROUNDS = 5
MOMENTUM = 0.95
ADAMW_RMS = 0.2
"""Root mean square of AdamW's changes at a learning rate of 1, as measured by J. Liu et al., "Muon is scalable for LLM training"
(2025), arXiv 2502.16982: Muon's are scaled to it, so that one rate serves both."""
MIN_KERNEL_SIDE = 4
"""Matrices with fewer rows or columns are left to AdamW."""
PRETRAINED = ("pretrained", "image_model", "text_model")
"""Settings of `network` that name weights to start from."""


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """(R, C): the singular vectors of `matrix`, with singular values near 1; by Newton-Schulz iteration in float32.

    The rounds are made on the square of the shorter side alone, and what they come to is applied once: kernels are several
    times as long as wide.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.float().T if tall else matrix.float()
    x = x / (x.norm() + 1e-7)
    gram, one = x @ x.T, torch.eye(len(x), device=x.device)
    whole = one
    for left in reversed(range(ROUNDS)):
        factor = a * one + b * gram + c * gram @ gram
        whole = factor @ whole
        gram = factor @ gram @ factor if left else gram
    x = whole @ x
    return x.T if tall else x


def kernels_of(model: nn.Module, plan: Mapping[str, Any]) -> list[nn.Parameter]:
    """The weights that Muon moves: those of hidden layers, if the plan asks for it (`optimizer`: muon).

    Layers that read the image or write the logits are left to AdamW, as in the publication, and so are depthwise kernels
    and everything that starts from pretrained weights, which small steps are to change little.
    """
    wanted = plan.get("optimizer") or "adamw"
    if wanted not in CHOICES["optimizer"]:
        raise SystemExit(f"optimizer {wanted!r} in plan.json: known are {' and '.join(CHOICES['optimizer'])}")
    if wanted == "adamw" or any(plan["network"].get(key) for key in PRETRAINED):
        return []
    classes, channels = len(plan.get("classes") or ()), int(plan.get("channels") or 0)

    def hidden(value: nn.Parameter) -> bool:
        reads, writes = value.shape[1] == channels, value.shape[0] in (classes, classes + 1)
        pointwise = value[0, 0].numel() == 1
        return min(value.shape[:2]) >= MIN_KERNEL_SIDE and not reads and not (writes and pointwise)

    return [value for value in model.parameters() if value.requires_grad and value.ndim > 1 and hidden(value)]


class Muon(torch.optim.AdamW):
    """Muon for kernels, AdamW for all else. A step uses the kernels' gradients up.

    Args:
        model: all of whose parameters that are trained are moved.
        kernels: of `kernels_of`.
        lr: of both; the changes of kernels have the size that AdamW's would have.
        weight_decay: decoupled; vectors (norms, biases) have none.
    """

    def __init__(self, model: nn.Module, kernels: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        mine = {id(value) for value in kernels}
        rest = [value for value in model.parameters() if value.requires_grad and id(value) not in mine]
        groups = [
            {"params": kernels, "weight_decay": weight_decay, "muon": True},
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": weight_decay, "muon": False},
            {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0, "muon": False},
        ]
        super().__init__([group for group in groups if group["params"]], lr=lr)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move everything that has a gradient."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                for value in group["params"] if group["muon"] else ():
                    if value.grad is not None:
                        self._move_kernel(value, value.grad, group["lr"], group["weight_decay"])
                        value.grad = None
        super().step()
        return loss

    def _move_kernel(self, value: torch.Tensor, gradient: torch.Tensor, lr: float, weight_decay: float) -> None:
        state = self.state[value]
        if not state:
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(value)  # AdamW looks for a step
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        ahead = gradient.lerp(state["momentum"], MOMENTUM).flatten(1)
        size = ADAMW_RMS * max(ahead.shape) ** 0.5
        value.mul_(1 - lr * weight_decay)
        value.add_(orthogonal(ahead).reshape(value.shape).to(value.dtype), alpha=-lr * size)


def optimizer_of(model: nn.Module, plan: Mapping[str, Any], lr: float, weight_decay: float) -> torch.optim.AdamW:
    """Return the optimizer of the plan for a network whose parameters all have the same learning rate."""
    kernels = kernels_of(model, plan)
    if kernels:
        return Muon(model, kernels, lr, weight_decay)
    return _adamw([([value for value in model.parameters() if value.requires_grad], 1.0)], lr, weight_decay)


def build_optimizer(
    model: nn.Module, plan: Mapping[str, Any], groups: list[tuple[list[nn.Parameter], float]] | None
) -> torch.optim.AdamW:
    """Return the optimizer of the plan, with its learning rate and weight decay.

    Args:
        groups: (parameters, factor of the learning rate), moved by AdamW; None for all parameters at the same rate.
    """
    lr, weight_decay = float(plan["lr"]), float(plan["weight_decay"])
    return _adamw(groups, lr, weight_decay) if groups else optimizer_of(model, plan, lr, weight_decay)


def _adamw(groups: list[tuple[list[nn.Parameter], float]], lr: float, weight_decay: float) -> torch.optim.AdamW:
    """Return AdamW, in which vectors (norms, biases) do not decay."""
    parts = [
        {"params": part, "lr": lr * factor, "weight_decay": decay}
        for parameters, factor in groups
        for part, decay in (
            ([value for value in parameters if value.ndim > 1], weight_decay),
            ([value for value in parameters if value.ndim < 2], 0.0),
        )
        if part
    ]
    return torch.optim.AdamW(parts, lr=lr, weight_decay=weight_decay, fused=True)
