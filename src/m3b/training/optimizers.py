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

    The iteration runs on the Gram matrix of the shorter side, and its product is applied once: kernels are several times as long as
    wide.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.float().T if is_tall else matrix.float()
    x = x / (x.norm() + 1e-7)
    gram, identity = x @ x.T, torch.eye(len(x), device=x.device)
    product = identity
    for rounds_left in reversed(range(ROUNDS)):
        factor = a * identity + b * gram + c * gram @ gram
        product = factor @ product
        gram = factor @ gram @ factor if rounds_left else gram
    x = product @ x
    return x.T if is_tall else x


def hidden_kernels(model: nn.Module, plan: Mapping[str, Any]) -> list[nn.Parameter]:
    """Return the weights that Muon updates: those of hidden layers, if the plan has `optimizer`: muon.

    AdamW updates the layers that read the image or write the logits, as in the publication, depthwise kernels, and everything that
    starts from pretrained weights.
    """
    name = plan.get("optimizer") or "adamw"
    if name not in CHOICES["optimizer"]:
        raise SystemExit(f"optimizer {name!r} in plan.json: known are {' and '.join(CHOICES['optimizer'])}")
    if name == "adamw" or any(plan["network"].get(key) for key in PRETRAINED):
        return []
    classes, channels = len(plan.get("classes") or ()), int(plan.get("channels") or 0)

    def is_hidden(value: nn.Parameter) -> bool:
        reads_image, may_write_logits = value.shape[1] == channels, value.shape[0] in (classes, classes + 1)
        is_pointwise = value[0, 0].numel() == 1
        return min(value.shape[:2]) >= MIN_KERNEL_SIDE and not reads_image and not (may_write_logits and is_pointwise)

    return [value for value in model.parameters() if value.requires_grad and value.ndim > 1 and is_hidden(value)]


class Muon(torch.optim.AdamW):
    """Muon for kernels, AdamW for all else. A step deletes the gradients of the kernels.

    Args:
        model: all its trainable parameters are updated.
        kernels: of `hidden_kernels`.
        lr: of both; the changes of kernels have the size that AdamW's would have.
        weight_decay: decoupled; vectors (norms, biases) have none.
    """

    def __init__(self, model: nn.Module, kernels: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        kernel_ids = {id(value) for value in kernels}
        others = [value for value in model.parameters() if value.requires_grad and id(value) not in kernel_ids]
        groups = [
            {"params": kernels, "weight_decay": weight_decay, "muon": True},
            {"params": [value for value in others if value.ndim > 1], "weight_decay": weight_decay, "muon": False},
            {"params": [value for value in others if value.ndim < 2], "weight_decay": 0.0, "muon": False},
        ]
        super().__init__([group for group in groups if group["params"]], lr=lr)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update everything that has a gradient."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                for value in group["params"] if group["muon"] else ():
                    if value.grad is not None:
                        self._update_kernel(value, value.grad, group["lr"], group["weight_decay"])
                        value.grad = None
        super().step()
        return loss

    def _update_kernel(self, value: torch.Tensor, gradient: torch.Tensor, lr: float, weight_decay: float) -> None:
        state = self.state[value]
        if not state:
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(value)  # AdamW reads `step`
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        ahead = gradient.lerp(state["momentum"], MOMENTUM).flatten(1)
        size = ADAMW_RMS * max(ahead.shape) ** 0.5
        value.mul_(1 - lr * weight_decay)
        value.add_(orthogonal(ahead).reshape(value.shape).to(value.dtype), alpha=-lr * size)


def optimizer_of(model: nn.Module, plan: Mapping[str, Any], lr: float, weight_decay: float) -> torch.optim.AdamW:
    """Return the optimizer of the plan for a network whose parameters all have the same learning rate."""
    kernels = hidden_kernels(model, plan)
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
