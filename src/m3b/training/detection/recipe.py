"""The defaults of a detection recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from m3b.training.detection.detectors import detector_of, is_library
from m3b.training.recipe import RECIPE_METHODS, EngineMethods, Recipe, Transform


class DetectionRecipe(Recipe):
    """Data sets, networks and losses of detection; see `Recipe` for the methods."""

    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return the training part and the validation part."""
        from m3b.training.detection.dataset import build_datasets

        return build_datasets(plan, fold)

    def _build_augmentation(self, plan: Mapping[str, Any]) -> list[Transform]:
        from m3b.training.augment_masks import AugmentPatches
        from m3b.training.detection.augment_boxes import AugmentBoxes

        return [AugmentBoxes(plan["augment"]) if plan["target"] == "boxes" else AugmentPatches(plan)]

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

    def postprocess(self, plan: Mapping[str, Any], prediction: Any) -> Any:
        """Return the boxes without those that overlap better ones; probabilities of masks stay."""
        from m3b.training.detection.boxes import suppress_overlaps

        if not isinstance(prediction, tuple):
            return prediction
        rows = suppress_overlaps(*prediction)
        return tuple(values[rows] for values in prediction)

    def list_engine_methods(self, plan: Mapping[str, Any]) -> EngineMethods:
        """Return all methods; with a library's detector not network and loss; of few-shot detectors the post-processing of masks."""
        engine = str(plan.get("engine", "patches"))
        if is_library(plan):
            methods = RECIPE_METHODS - {"build_loss", "build_network"}
            return EngineMethods(
                detector_of(plan["network"]), methods, "use --set network.detector=own, which calls every method"
            )
        if engine == "patches":
            return EngineMethods(engine, RECIPE_METHODS, "")
        if plan["target"] == "states":
            return EngineMethods(engine, frozenset(), "train the task diagnosis, whose engine calls every method")
        return EngineMethods(engine, frozenset({"postprocess"}), "use --set engine=patches, which calls every method")

    def build_model(self, plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
        """Return network and loss as one module."""
        from m3b.training.detection.network import build_model

        return build_model(plan, with_loss)
