"""The defaults of a report recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from m3b.training.recipe import Batch, Recipe, Transform


class ReportRecipe(Recipe):
    """Data sets, networks and losses of report; see `Recipe` for the methods."""

    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return the parts of `report.dataset`."""
        from m3b.training.report.dataset import build_datasets

        return build_datasets(plan)

    def _build_augmentation(self, plan: Mapping[str, Any]) -> list[Transform]:
        from m3b.training.augment import Augment

        augment = Augment(plan["augment"])

        def augment_views(batch: Batch) -> Batch:
            """Augment each view by itself; missing views stay empty."""
            pixels, views = batch["pixel_values"], batch["views"]
            augmented = augment(pixels.flatten(0, 1)).view(pixels.shape)
            return {**batch, "pixel_values": augmented * views.view(*views.shape, *(1,) * (pixels.ndim - 2))}

        return [augment_views]

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
        """Return the network that `network` of the plan names."""
        from m3b.training.report.encoder import build_network

        return build_network(plan, load)

    def build_loss(self, plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
        """Return the loss that the plan describes."""
        from m3b.training.report.loss import ReportLoss

        return ReportLoss(plan)

    def build_model(self, plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
        """Return network and loss as one module."""
        from m3b.training.report.network import build_model

        return build_model(plan, with_loss)
