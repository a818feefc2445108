"""The defaults of a segmentation recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from m3b.training.recipe import RECIPE_METHODS, EngineMethods, Recipe, Transform


class SegmentationRecipe(Recipe):
    """Data sets, networks and losses of segmentation; see `Recipe` for the methods."""

    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return training patches and validation cases."""
        from m3b.training.segmentation.dataset import build_datasets

        return build_datasets(plan, fold)

    def _build_augmentation(self, plan: Mapping[str, Any]) -> list[Transform]:
        from m3b.training.augment_masks import AugmentPatches

        return [AugmentPatches(plan)]

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
        """Return the network that `network` of the plan names."""
        from m3b.training.segmentation.network import build_network

        return build_network(plan, load)

    def build_loss(self, plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
        """Return the loss that the plan describes."""
        from m3b.training.segmentation.loss import build_loss

        return build_loss(plan)

    def postprocess(self, plan: Mapping[str, Any], prediction: Any) -> Any:
        """Return the mask with the largest component of classes and without holes, as `refine` of the plan says."""
        from m3b.training.segmentation.mask_cleaning import clean_mask

        return clean_mask(prediction, plan)

    def build_schedule(self, plan: Mapping[str, Any]) -> Callable[[float], float]:
        """Return the schedule of the learning rate: nnU-Net's own for its engine."""
        return poly_decay if plan.get("engine") == "nnunet" else super().build_schedule(plan)

    def list_engine_methods(self, plan: Mapping[str, Any]) -> EngineMethods:
        """Return all methods; of nnU-Net, whose other parts are its own, the schedule and the post-processing."""
        is_nnunet = plan.get("engine") == "nnunet"
        methods = frozenset({"build_schedule", "postprocess"}) if is_nnunet else RECIPE_METHODS
        return EngineMethods(
            str(plan.get("engine", "trainer")), methods, "use --set engine=trainer, which calls every method"
        )

    def build_model(self, plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
        """Return network and loss as one module."""
        from m3b.training.segmentation.network import build_model

        return build_model(plan, with_loss)


def poly_decay(progress: float) -> float:
    """Return the learning rate of nnU-Net's training as a share of its first one."""
    return float((1 - min(progress, 0.999)) ** 0.9)
