"""The recipe of a project: what its training is made of, a method each, in `recipe.py` of the project's folder.

Everything in `m3b.training` asks the recipe of the working directory, so an overridden method holds for training, planning,
validation, the deliverable and exported graphs alike.
"""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

RECIPE_FILE = "recipe.py"
_recipes: dict[tuple[str, int], Recipe] = {}
_chosen_recipe: list[Recipe] = []


class Recipe(ABC):
    """The methods that a project may override. The recipes of the tasks are their defaults.

    Attributes:
        added_channels: number of channels that `derive_channels` adds.
    """

    added_channels = 0

    def derive_channels(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the input of the network: (B, C, H, W[, D]) float32 -> (B, C + added_channels, H, W[, D]).

        Each image is changed from itself alone. nnU-Net's own trainer and detectors from few examples do not call this.
        """
        return pixels

    @abstractmethod
    def build_datasets(self, plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
        """Return the training and the validation part of a fold, as torch data sets."""

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
        """Return the learning rate as a share of the plan's, for the progress of the training from 0 to 1.

        nnU-Net's own trainer does not call this.
        """
        from m3b.training.clock import one_cycle

        return one_cycle

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


def add_channels(recipe: Recipe, pixels: torch.Tensor) -> torch.Tensor:
    """Return the input of the network with the recipe's own channels.

    Raises:
        SystemExit: the recipe returns another shape than it promises.
    """
    if not recipe.added_channels:
        return pixels
    derived = recipe.derive_channels(pixels)
    expected_shape = (pixels.shape[1] + recipe.added_channels, *pixels.shape[2:])
    if derived.shape[1:] != expected_shape:
        raise SystemExit(
            f"{RECIPE_FILE}: derive_channels returns {tuple(derived.shape[1:])} for {tuple(pixels.shape[1:])}; "
            f"added_channels = {recipe.added_channels} promises {expected_shape}"
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
