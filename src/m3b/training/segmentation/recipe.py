"""The defaults of a segmentation recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from m3b.training.recipe import Recipe


class SegmentationRecipe(Recipe):
    """Data sets, networks and losses of segmentation; see `Recipe` for the methods."""

    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return training patches and validation cases."""
        from m3b.training.segmentation.dataset import build_datasets

        return build_datasets(plan, fold)

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
        """Return the network that `network` of the plan names."""
        from m3b.training.segmentation.network import build_network

        return build_network(plan, load)

    def build_loss(self, plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
        """Return the loss that the plan describes."""
        from m3b.training.segmentation.loss import build_loss

        return build_loss(plan)

    def build_model(self, plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
        """Return network and loss as one module."""
        from m3b.training.segmentation.network import build_model

        return build_model(plan, with_loss)
