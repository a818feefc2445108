"""Whether a training has diverged, also where no further step was there to show it in the loss."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from m3b.training.clock import NotFinite

LARGEST = 1e10
"""A weight beyond this gives no finite answer any more: squares and a few layers pass what 32-bit floats hold."""


def check_weights(weights: Mapping[str, torch.Tensor], where: str) -> None:
    """Nothing, where all weights are numbers that a network can work with.

    Raises:
        NotFinite: the training has diverged; the message names a tensor.
    """
    for name, value in weights.items():
        if value.is_floating_point() and value.numel() and not float(value.detach().abs().max()) <= LARGEST:
            raise NotFinite(f"{where}: the loss is no number any more, the weights of {name} have diverged")
