"""Local files of pretrained classifiers and their configuration. Never downloaded, never unpickled.

Two kinds: a folder written by transformers (`config.json` and `model.safetensors`), or a `.safetensors` file with the weights of a
DenseNet-121 in MONAI's or torchvision's naming.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODEL_TYPES = (
    "convnext",
    "convnextv2",
    "deit",
    "efficientnet",
    "mobilenet_v2",
    "regnet",
    "resnet",
    "swin",
    "swinv2",
    "vit",
)


FIXED_SIZE_TYPES = ("deit", "swin", "swinv2", "vit")
"""Kinds whose input size is part of their weights."""


DENSENET = "monai-densenet121"


_UNUSED_KEYS = {
    "id2label",
    "label2id",
    "architectures",
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "transformers_version",
}


class PretrainedError(ValueError):
    """A pretrained network that cannot be used; says which file and why."""


def read_config(folder: str | Path) -> dict[str, Any]:
    """Return the settings to build the network without its weights. Raises PretrainedError."""
    folder = Path(folder)
    weights = find_weights(folder)
    config_file = folder / "config.json" if folder.is_dir() else folder.with_suffix(".json")
    config = json.loads(config_file.read_text()) if config_file.is_file() else {}
    kind = str(config.get("model_type") or "")
    if kind in MODEL_TYPES and folder.is_dir():
        return {key: value for key, value in config.items() if key not in _UNUSED_KEYS and value is not None}
    if kind and kind != "densenet":
        raise PretrainedError(
            f"{config_file}: model_type {kind!r}; must be one of {', '.join((*MODEL_TYPES, 'densenet'))}"
        )
    shape = _first_convolution(weights)
    if not shape:
        raise PretrainedError(f"{weights}: no config.json beside it, and these are not the weights of a DenseNet-121")
    return {"model_type": DENSENET, "num_channels": shape[1], "dims": len(shape) - 2}


def _first_convolution(file: Path) -> list[int]:
    """Return the shape of a DenseNet's first weights from the header of the file; [] if there are none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), "pt") as tensors:
            names = [name for name in tensors.keys() if name.endswith("conv0.weight")]  # noqa: SIM118 - it is no dict
            return [int(n) for n in tensors.get_slice(names[0]).get_shape()] if names else []
    except (SafetensorError, OSError) as error:
        raise PretrainedError(f"{file}: {error}") from error


def find_weights(folder: Path) -> Path:
    """Return the safetensors file of a folder, or the file itself."""
    file = folder / "model.safetensors" if folder.is_dir() else folder
    if file.suffix != ".safetensors" or not file.is_file():
        raise PretrainedError(
            f"{folder}: needs config.json and model.safetensors (a pickle such as .bin is not loaded)"
        )
    return file


def read_normalisation(folder: str | Path) -> dict[str, list[float]]:
    """Return the mean and deviation of each channel that the network expects; default ImageNet's."""
    file = Path(folder) / "preprocessor_config.json"
    preprocessor = json.loads(file.read_text()) if file.is_file() else {}
    mean, std = (
        preprocessor.get("image_mean") or [0.485, 0.456, 0.406],
        preprocessor.get("image_std") or [0.229, 0.224, 0.225],
    )
    return {"mean": [round(float(v), 4) for v in mean], "std": [round(float(v), 4) for v in std]}


def find_pretrained() -> tuple[list[Path], str]:
    """Return usable folders of the Hugging Face cache, smallest weights first, and a description of the search."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from huggingface_hub import CacheNotFound, constants, scan_cache_dir

        cache = os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE
        revisions = [rev for repo in scan_cache_dir(cache).repos if repo.repo_type == "model" for rev in repo.revisions]
    except ImportError:
        return [], "huggingface_hub is not installed"
    except (CacheNotFound, OSError, ValueError):
        return [], "this machine has no Hugging Face cache"
    folders = []
    for revision in revisions:
        folder = Path(revision.snapshot_path)
        try:
            config = read_config(folder)
        except (PretrainedError, ValueError, OSError):
            continue
        if config["model_type"] != DENSENET:
            folders.append(folder)
    folders.sort(key=lambda folder: (find_weights(folder).stat().st_size, str(folder)))
    return folders, f"{len(folders)} of the {len(revisions)} model(s) in the Hugging Face cache can be used"


def fit_size(config: Mapping[str, Any], size: list[int]) -> list[int]:
    """Return the input size: the network's own if it is fixed, else multiples of 32 near the requested one."""
    if config["model_type"] in FIXED_SIZE_TYPES and config.get("image_size"):
        side = config["image_size"]
        return [int(v) for v in side] if isinstance(side, list) else [int(side)] * 2
    return [max(64, round(v / 32) * 32) for v in size]
