"""One training step as train.py runs it, for timing: loading, augmentation, both passes, clipping, optimiser, averaging."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from m3b.training.optimizers import optimizer_of
from m3b.training.precision import apply_memory_layout, autocast
from m3b.training.pretrained.frozen_features import has_frozen_backbone
from m3b.training.recipe import Batch, Transform, apply_transforms
from m3b.training.threads import use_threads


def make_trial_step(
    model: torch.nn.Module,
    plan: Mapping[str, Any],
    load: Callable[[], Batch],
    transforms: Sequence[Transform] = (),
) -> Callable[[], None]:
    """Return a function that runs one step of `model`, which is on its device and in training mode.

    Args:
        load: returns a batch on the CPU, as slowly as the data set would.
        transforms: the augmentation.
    """
    use_threads(plan)
    apply_memory_layout(model, plan)
    if has_frozen_backbone(plan) and plan["network"].get(
        "feature_views"
    ):  # their features are in memory after the first step
        batch = apply_transforms(transforms, load())
        load, transforms = lambda: batch, ()
    device, accumulate = next(model.parameters()).device, int(plan.get("accumulate") or 1)
    optimizer = optimizer_of(model, plan, 1e-6, 0.0)
    average = [value.detach().clone() for value in model.state_dict().values() if value.is_floating_point()]

    def step() -> None:
        for _ in range(accumulate):
            batch = {key: to_device(value, device) for key, value in load().items()}
            with torch.no_grad():
                batch = apply_transforms(transforms, batch)
            with autocast(plan, device):
                loss = model(**batch)["loss"]
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            values = [value for value in model.state_dict().values() if value.is_floating_point()]
            torch._foreach_lerp_(average, values, 0.01)
        loss.item()  # synchronises with the GPU

    return step


def to_device(value: Any, device: torch.device) -> Any:
    """Return a tensor, or a list of tensors and Nones, on the device."""
    if isinstance(value, list):
        return [to_device(part, device) for part in value]
    return value if value is None else value.to(device)
