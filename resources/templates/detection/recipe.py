"""What this project trains: edit a method to change it. plan.json holds the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import Sampler

from m3b.training.detection.recipe import DetectionRecipe
from m3b.training.recipe import Transform


class Recipe(DetectionRecipe):
    """Training, planning, validation, predict.py and exported graphs use these methods."""

    added_channels = 0
    """How many input channels `derive_channels` adds."""

    def derive_channels(self, pixels: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W[, D]) float32 -> (B, C + added_channels, H, W[, D]), each image from itself alone."""
        return pixels

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
        """Return the network that `network` of plan.json names; `m3b.training.detection.network` has those that are known."""
        return super().build_network(plan, load)

    def build_loss(self, plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
        """Return the loss of outputs and labels; `m3b.training.detection.loss` has those that are known."""
        return super().build_loss(plan, cell)

    def build_schedule(self, plan: Mapping[str, Any]) -> Callable[[float], float]:
        """Return the learning rate as a share of the plan's, for the progress of the training from 0 to 1."""
        return super().build_schedule(plan)

    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return training and validation part of a fold; `m3b.training.detection.dataset` reads Datapath/train.json."""
        return super().build_datasets(plan, fold)

    def build_transforms(self, plan: Mapping[str, Any], training: bool) -> list[Transform]:
        """Return functions of a batch, in their order: the augmentation in training, else what predictions need."""
        return super().build_transforms(plan, training)

    def build_sampler(self, plan: Mapping[str, Any], dataset: Any) -> Sampler[Any]:
        """Return the items of the training part that an epoch shows: a torch sampler, e.g. WeightedRandomSampler."""
        return super().build_sampler(plan, dataset)

    def postprocess(self, plan: Mapping[str, Any], prediction: Any) -> Any:
        """Return a prediction as it is scored and delivered: boxes, scores and labels, or (K, *shape) probabilities of masks."""
        return super().postprocess(plan, prediction)
