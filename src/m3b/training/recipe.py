"""The recipe of a project: what its training is made of, a method each, in `recipe.py` of the project's folder.

Everything in `m3b.training` asks the recipe of the working directory, so an overridden method holds for training, planning,
validation, the deliverable and exported graphs alike.
"""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Sampler

Batch = dict[str, Any]
Transform = Callable[[Batch], Batch]
RECIPE_FILE = "recipe.py"
RECIPE_METHODS = frozenset(
    {
        "build_datasets", "build_loss", "build_network", "build_sampler", "build_schedule", "build_transforms", "derive_channels",
        "postprocess",
    }
)  # fmt: skip
"""Methods that a project may change."""
_recipes: dict[tuple[str, int], Recipe] = {}
_chosen_recipe: list[Recipe] = []


@dataclass(frozen=True)
class EngineMethods:
    """The methods of a recipe that the engine of a plan calls.

    Attributes:
        engine: name of the engine, for messages.
        remedy: how another method is called: "use ...".
    """

    engine: str
    methods: frozenset[str]
    remedy: str


class Recipe(ABC):
    """The methods that a project may override. The recipes of the tasks are their defaults.

    Attributes:
        added_channels: number of channels that `derive_channels` adds.
    """

    added_channels = 0

    def derive_channels(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the input of the network: (B, C, H, W[, D]) float32 -> (B, C + added_channels, H, W[, D]).

        Each image is changed from itself alone.
        """
        return pixels

    def build_transforms(self, plan: Mapping[str, Any], training: bool) -> list[Transform]:
        """Return functions of a batch, in their order, on its device: the augmentation in training, else what predictions need.

        A batch is {"pixel_values": (B, C, H, W[, D]), ...}, with the labels in training and without them in predictions, of which each
        window or image is changed from itself alone, before `derive_channels`. Exported graphs hold the functions of predictions.
        """
        return self._build_augmentation(plan) if training else []

    @abstractmethod
    def _build_augmentation(self, plan: Mapping[str, Any]) -> list[Transform]:
        """Return the augmentation that `augment` of the plan describes."""

    def build_sampler(self, plan: Mapping[str, Any], dataset: Any) -> Sampler[Any]:
        """Return the items of `dataset` that an epoch shows, in their order; `len` of it is the length of an epoch.

        Data sets of patches also take pairs as items: (case, index of the class that the patch shows).
        """
        from m3b.training.sampling import CaseSampler

        items = int(plan.get("epoch_patches") or max(len(dataset), int(plan.get("patches") or 0)))
        return CaseSampler(len(dataset), items, int(plan["seed"]))

    @abstractmethod
    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return the training and the validation part of a fold, as torch data sets.

        Args:
            fold: from 0; `REFIT_FOLD` (-1) for a network that is trained on all cases, whose validation part is empty.
        """

    def collate(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch of items of the data sets: every tensor stacked."""
        names = [name for name, value in items[0].items() if torch.is_tensor(value)]
        return {name: torch.stack([item[name] for item in items]) for name in names}

    @abstractmethod
    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> nn.Module:
        """Return the network from input channels to outputs.

        Args:
            load: read pretrained weights; the deliverable has its own.
        """

    @abstractmethod
    def build_loss(self, plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
        """Return the loss of outputs and labels.

        Args:
            cell: pixels along each axis for one cell of a detector's heat map; None for other networks.
        """

    def build_schedule(self, plan: Mapping[str, Any]) -> Callable[[float], float]:
        """Return the learning rate as a share of the plan's, for the progress of the training from 0 to 1."""
        from m3b.training.clock import one_cycle

        return one_cycle

    def postprocess(self, plan: Mapping[str, Any], prediction: Any) -> Any:
        """Return a prediction of an image as it is scored and delivered; exported graphs hold that of diagnosis alone.

        Args:
            prediction: diagnosis: (B, outputs) of the network, before calibration; segmentation: uint8 class ids (*shape), or
                (K, *shape) of 0/1 if classes overlap; detection: (boxes (N, 2 d), scores, labels) or probabilities (K, *shape);
                report: {section: text}.
        """
        return prediction

    def list_engine_methods(self, plan: Mapping[str, Any]) -> EngineMethods:
        """Return the methods that the engine of a plan calls: all, or those of its parts that are not a library's own."""
        return EngineMethods("m3b", RECIPE_METHODS, "")

    @abstractmethod
    def build_model(self, plan: Mapping[str, Any], with_loss: bool = True) -> nn.Module:
        """Return network and loss as one module: `forward(**batch) -> {"logits", "loss"}`."""


def get_recipe() -> Recipe:
    """Return the recipe that was set by `use_recipe`, or that of the working directory.

    Raises:
        SystemExit: there is no recipe.
    """
    if _chosen_recipe:
        return _chosen_recipe[-1]
    file = Path.cwd() / RECIPE_FILE
    try:
        key = (str(file), file.stat().st_mtime_ns)
    except OSError:
        raise SystemExit(
            f"{file.parent} holds no {RECIPE_FILE}: run this in the folder of a training project"
        ) from None
    if key not in _recipes:
        _recipes[key] = _load_recipe(file)
    return _recipes[key]


def use_recipe(recipe: Recipe | None) -> None:
    """Set the recipe of this process: deliverables do, whose working directory may be any.

    Args:
        recipe: None for that of the working directory.
    """
    _chosen_recipe[:] = [] if recipe is None else [recipe]


def _load_recipe(file: Path) -> Recipe:
    spec = importlib.util.spec_from_file_location("recipe", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["recipe"] = module  # where pickle looks for the classes of the file
    spec.loader.exec_module(module)
    recipe: Recipe = module.Recipe()
    return recipe


def apply_transforms(transforms: Iterable[Transform], batch: Batch) -> Batch:
    """Return the batch after all transforms."""
    for transform in transforms:
        batch = transform(batch)
    return batch


class RecipeInput(nn.Module):
    """What a recipe puts before the network: its transforms of predictions, then its own channels."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.recipe = get_recipe()
        self.transforms = self.recipe.build_transforms(plan, training=False)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the input of the network.

        Raises:
            SystemExit: the recipe returns another shape than it promises.
        """
        if not self.training:
            pixels = apply_transforms(self.transforms, {"pixel_values": pixels})["pixel_values"]
        if not self.recipe.added_channels:
            return pixels
        derived = self.recipe.derive_channels(pixels)
        expected_shape = (pixels.shape[1] + self.recipe.added_channels, *pixels.shape[2:])
        if derived.shape[1:] != expected_shape:
            raise SystemExit(
                f"{RECIPE_FILE}: derive_channels returns {tuple(derived.shape[1:])} for {tuple(pixels.shape[1:])}; "
                f"added_channels = {self.recipe.added_channels} promises {expected_shape}"
            )
        return derived


def with_derived_channels(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan with the number of channels that the first layer gets.

    Raises:
        SystemExit: channels are added, and the pretrained network takes those of its own configuration alone.
    """
    network = plan["network"]
    config = network.get("config") or {}
    added_channels = get_recipe().added_channels
    has_fixed_input = network.get("image_model") or (config and config.get("builder", "transformers") == "transformers")
    if added_channels and has_fixed_input:
        raise SystemExit(
            f"{RECIPE_FILE} adds input channels, and this pretrained network takes its own number alone: set "
            "added_channels = 0, or start from another (--set network.pretrained=none)"
        )
    return {**plan, "channels": int(plan["channels"]) + added_channels}
