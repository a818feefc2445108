"""Last features of a classifier: the input of its last linear layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


def find_last_layer(model: nn.Module, classes: int) -> nn.Linear | None:
    """Return the layer that gives the logits; None if the network has no such layer."""
    features = [
        module for module in model.modules() if isinstance(module, nn.Linear) and module.out_features == classes
    ]
    return features[-1] if features else None


@contextmanager
def record_features(models: Sequence[nn.Module], classes: int) -> Iterator[list[np.ndarray]]:
    """Collect (B, D) features of the first forward pass of each network; [] if a network has no such layer."""
    layers = [find_last_layer(model, classes) for model in models]
    features_by_model: dict[int, np.ndarray] = {}
    features: list[np.ndarray] = []

    def make_hook(index: int) -> object:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            features_by_model.setdefault(index, inputs[0].detach().flatten(1).float().cpu().numpy())

        return hook

    handles = [layer.register_forward_pre_hook(make_hook(k)) for k, layer in enumerate(layers) if layer is not None]
    try:
        yield features
    finally:
        for handle in handles:
            handle.remove()
        if len(features_by_model) == len(models):
            features.extend(features_by_model[k] for k in range(len(models)))
