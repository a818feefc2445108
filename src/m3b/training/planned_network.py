"""The network of a plan, as its recipe builds it, with the weights of a delivered model if the plan names one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from m3b.training.recipe import get_recipe, with_derived_channels


def build_planned_network(plan: Mapping[str, Any], load: bool) -> nn.Module:
    """Return the network of the recipe with its own channels, with the weights of a delivered model if the plan names one.

    Args:
        load: read pretrained weights; the deliverable has its own.
    """
    if not plan["network"].get("delivered"):
        return get_recipe().build_network(with_derived_channels(plan), load)
    from m3b.training.pretrained.delivered import load_delivered, without_weights

    network = get_recipe().build_network(with_derived_channels(without_weights(plan)), False)
    if load:
        load_delivered(network, Path(str(plan["network"]["pretrained"])))
    return network
