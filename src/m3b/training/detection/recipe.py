"""The defaults of a detection recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from m3b.training.recipe import Recipe


class DetectionRecipe(Recipe):
    """Data sets, networks and losses of detection; see `Recipe` for the methods."""

    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return the training part and the validation part."""
        from m3b.training.detection.dataset import build_datasets

        return build_datasets(plan, fold)

    def collate(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch, boxes padded to the same number."""
        from m3b.training.detection.dataset import collate

        return collate(items)

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
        """Return the network that `network` of the plan names."""
        from m3b.training.detection.network import build_network

        return build_network(plan, load)

    def build_loss(self, plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
        """Return the loss that the plan describes."""
        from m3b.training.detection.loss import build_loss

        return build_loss(plan, cell)

    def build_model(self, plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
        """Return network and loss as one module."""
        from m3b.training.detection.network import build_model

        return build_model(plan, with_loss)
