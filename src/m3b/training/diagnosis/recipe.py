"""The defaults of a diagnosis recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from m3b.training.recipe import Batch, Recipe, Transform


class DiagnosisRecipe(Recipe):
    """Data sets, networks and losses of diagnosis; see `Recipe` for the methods."""

    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return the parts of `diagnosis.dataset`."""
        from m3b.training.diagnosis.dataset import build_datasets

        return build_datasets(plan, fold)

    def _build_augmentation(self, plan: Mapping[str, Any]) -> list[Transform]:
        from m3b.training.augment import Augment
        from m3b.training.diagnosis.covariates import drop_covariates
        from m3b.training.diagnosis.views import apply_to_views

        augment, rules = Augment(plan["augment"]), plan.get("covariates") or []
        share = float(plan.get("covariate_dropout") or 0.0)

        def augment_images(batch: Batch) -> Batch:
            return {**batch, "pixel_values": apply_to_views(plan, augment, batch["pixel_values"])}

        def drop(batch: Batch) -> Batch:
            return {**batch, "covariates": drop_covariates(batch["covariates"], rules, share)}

        return [augment_images, *([drop] if rules else [])]

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
        """Return the network that `network` of the plan names."""
        from m3b.training.diagnosis.network import build_network

        return build_network(plan, load)

    def build_loss(self, plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
        """Return the loss that the plan describes."""
        from m3b.training.diagnosis.loss import build_loss

        return build_loss(plan)

    def build_model(self, plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
        """Return network and loss as one module."""
        from m3b.training.diagnosis.network import build_delivered_model, build_model

        return build_model(plan) if with_loss else build_delivered_model(plan)
