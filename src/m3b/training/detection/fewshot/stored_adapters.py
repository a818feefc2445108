"""Adapters that were trained on other sets, out of a few-shot detector that was delivered: what zero-shot detection works by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from m3b.training.detection.fewshot.backbone_folder import BackboneError, weights_in
from m3b.training.detection.fewshot.model import FewshotModel

CALIBRATED = ("reference", "image_calibration", "map_threshold")
"""What a delivered detector knows of normal images; at k = 0 nothing of the set at hand is known."""


def describe_adapters(folder: str | Path) -> dict[str, Any]:
    """The config of a delivered few-shot detector whose adapters were trained.

    Raises:
        BackboneError: no such folder, no few-shot detector, one of normal images alone, or no safetensors; says what to do.
    """
    place = Path(folder)
    if not (place / "config.json").is_file():
        raise BackboneError(
            f"{folder} holds no few-shot detector (config.json): give the folder that export.py of such a project wrote."
        )
    config: dict[str, Any] = json.loads((place / "config.json").read_text())
    plan = config.get("plan") or {}
    if plan.get("engine") != "fewshot":
        raise BackboneError(f"{folder} is no few-shot detector: its engine is {plan.get('engine', 'patches')!r}.")
    if not config.get("adapting"):
        raise BackboneError(f"{folder} was made of normal images alone: it has a memory, and no trained adapters.")
    weights_in(place)
    return config


def load_adapters(model: FewshotModel, folder: str | Path) -> dict[str, Any]:
    """Put the adapters of a delivered detector into a model on the same backbone; gives its config.

    Texts of a backbone that knows some are the model's own, of its own prompts; the two vectors that stand for them elsewhere are
    taken over.

    Raises:
        BackboneError: another backbone, other sizes, or weights that cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = describe_adapters(folder)
    try:
        stored = load_file(str(weights_in(Path(folder))))
    except (OSError, SafetensorError) as error:
        raise BackboneError(f"{folder}: its weights cannot be read: {error}") from error
    mine = model.state_dict()
    if not _same(mine, stored):
        raise BackboneError(
            f"{folder}: its adapters were trained on another backbone. Name the backbone that they belong to (backbone=FOLDER), or "
            "adapters for this one."
        )
    learnt = [name for name, _ in model.named_parameters() if not name.startswith("vision.")]
    wrong = [name for name in learnt if name not in stored or stored[name].shape != mine[name].shape]
    if wrong:
        raise BackboneError(f"{folder}: its adapters do not fit this model ({wrong[0]}): other sizes of features.")
    model.load_state_dict({name: stored[name] for name in learnt}, strict=False)
    model.pixels = bool(config["pixels"])
    return config


def _same(mine: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor]) -> bool:
    """Whether the frozen part is the same in both."""
    frozen = [name for name in mine if name.startswith("vision.")]
    return bool(frozen) and all(name in stored and torch.equal(mine[name], stored[name]) for name in frozen)


def known(config: Mapping[str, Any]) -> dict[str, Any]:
    """What turns looks into answers where no example is there: language alone, calibrated where the adapters were trained."""
    return {"memory_weight": 0.0, **{name: config[name] for name in CALIBRATED if name in config}}
