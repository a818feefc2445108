"""Adapters of a delivered few-shot detector that was trained on other sets, for zero-shot detection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from m3b.training.detection.fewshot.backbone import BackboneError, find_weights
from m3b.training.detection.fewshot.model import FewshotModel

CALIBRATION_KEYS = ("reference", "image_calibration", "map_threshold")
"""Keys of a delivered detector's calibration on normal images; with k = 0 the set at hand provides none."""


def describe_adapters(folder: str | Path) -> dict[str, Any]:
    """Return the config of a delivered few-shot detector with trained adapters.

    Raises:
        BackboneError: no such folder, no few-shot detector, one of normal images only, or no safetensors; with the remedy.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise BackboneError(
            f"{folder} holds no few-shot detector (config.json): set the folder that export.py of such a project wrote."
        )
    config: dict[str, Any] = json.loads((path / "config.json").read_text())
    plan = config.get("plan") or {}
    if plan.get("engine") != "fewshot":
        raise BackboneError(f"{folder} is no few-shot detector: its engine is {plan.get('engine', 'patches')!r}.")
    if not config.get("adapting"):
        raise BackboneError(f"{folder} was made of normal images alone: it has a memory but no trained adapters.")
    find_weights(path)
    return config


def load_adapters(model: FewshotModel, folder: str | Path) -> dict[str, Any]:
    """Load the adapters of a delivered detector into a model on the same backbone; return its config.

    Text features are those of the model's own prompts; the two learnt vectors of a backbone without text are loaded.

    Raises:
        BackboneError: another backbone, other sizes, or weights that cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = describe_adapters(folder)
    try:
        stored = load_file(str(find_weights(Path(folder))))
    except (OSError, SafetensorError) as error:
        raise BackboneError(f"{folder}: its weights cannot be read: {error}") from error
    model_state = model.state_dict()
    if not _has_same_backbone(model_state, stored):
        raise BackboneError(
            f"{folder}: its adapters were trained on another backbone. Set their backbone (backbone=FOLDER), or adapters for "
            "this one."
        )
    trained_names = [name for name, _ in model.named_parameters() if not name.startswith("vision.")]
    mismatches = [name for name in trained_names if name not in stored or stored[name].shape != model_state[name].shape]
    if mismatches:
        raise BackboneError(f"{folder}: its adapters do not fit this model ({mismatches[0]}): other sizes of features.")
    model.load_state_dict({name: stored[name] for name in trained_names}, strict=False)
    model.pixels = bool(config["pixels"])
    return config


def _has_same_backbone(model_state: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor]) -> bool:
    """Return whether the frozen part is equal in both."""
    frozen = [name for name in model_state if name.startswith("vision.")]
    return bool(frozen) and all(name in stored and torch.equal(model_state[name], stored[name]) for name in frozen)


def zero_shot_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config without examples: text similarity only, calibrated where the adapters were trained."""
    return {"memory_weight": 0.0, **{name: config[name] for name in CALIBRATION_KEYS if name in config}}
