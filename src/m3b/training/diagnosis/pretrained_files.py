"""Pretrained networks as files of this machine: which there are, and what is said of each. Never downloaded, never unpickled.

Two kinds: a folder as transformers writes it (`config.json` and `model.safetensors`), or a `.safetensors` file with the
weights of a DenseNet-121 in MONAI's or torchvision's naming.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KINDS = ("convnext", "convnextv2", "deit", "efficientnet", "mobilenet_v2", "regnet", "resnet", "swin", "swinv2", "vit")


FIXED = ("deit", "swin", "swinv2", "vit")
"""Kinds whose input size is part of their weights."""


DENSENET = "monai-densenet121"


_LEFT_OUT = {"id2label", "label2id", "architectures", "_name_or_path", "dtype", "torch_dtype", "transformers_version"}


class PretrainedError(ValueError):
    """A pretrained network that cannot be used; says which file and why."""


def read_config(place: str | Path) -> dict[str, Any]:
    """What is needed to build the network again without its weights. Raises PretrainedError."""
    place = Path(place)
    weights = weights_of(place)
    described = place / "config.json" if place.is_dir() else place.with_suffix(".json")
    config = json.loads(described.read_text()) if described.is_file() else {}
    kind = str(config.get("model_type") or "")
    if kind in KINDS and place.is_dir():
        return {key: value for key, value in config.items() if key not in _LEFT_OUT and value is not None}
    if kind and kind != "densenet":
        raise PretrainedError(
            f"{described}: model_type {kind!r}; a folder with one of {', '.join((*KINDS, 'densenet'))} is needed"
        )
    shape = _first_convolution(weights)
    if not shape:
        raise PretrainedError(f"{weights}: no config.json beside it, and these are not the weights of a DenseNet-121")
    return {"model_type": DENSENET, "num_channels": shape[1], "dims": len(shape) - 2}


def _first_convolution(file: Path) -> list[int]:
    """Shape of a DenseNet's first weights, read from the head of the file; empty if there are none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), "pt") as stored:
            names = [name for name in stored.keys() if name.endswith("conv0.weight")]  # noqa: SIM118 - it is no dict
            return [int(n) for n in stored.get_slice(names[0]).get_shape()] if names else []
    except (SafetensorError, OSError) as error:
        raise PretrainedError(f"{file}: {error}") from error


def weights_of(place: Path) -> Path:
    """The safetensors file of a folder, or the file itself."""
    file = place / "model.safetensors" if place.is_dir() else place
    if file.suffix != ".safetensors" or not file.is_file():
        raise PretrainedError(f"{place}: needs config.json and model.safetensors (a pickle such as .bin is not loaded)")
    return file


def read_norm(place: str | Path) -> dict[str, list[float]]:
    """Mean and deviation a channel that the network is used to; ImageNet's where nothing is said."""
    file = Path(place) / "preprocessor_config.json"
    said = json.loads(file.read_text()) if file.is_file() else {}
    mean, std = said.get("image_mean") or [0.485, 0.456, 0.406], said.get("image_std") or [0.229, 0.224, 0.225]
    return {"mean": [round(float(v), 4) for v in mean], "std": [round(float(v), 4) for v in std]}


def find_pretrained() -> tuple[list[Path], str]:
    """Usable folders of the Hugging Face cache from the smallest weights up, and what was looked at, for people."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from huggingface_hub import CacheNotFound, constants, scan_cache_dir

        cache = os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE
        revisions = [rev for repo in scan_cache_dir(cache).repos if repo.repo_type == "model" for rev in repo.revisions]
    except ImportError:
        return [], "huggingface_hub is not installed"
    except (CacheNotFound, OSError, ValueError):
        return [], "no readable Hugging Face cache here"
    found = []
    for revision in revisions:
        place = Path(revision.snapshot_path)
        try:
            config = read_config(place)
        except (PretrainedError, ValueError, OSError):
            continue
        if config["model_type"] != DENSENET:
            found.append(place)
    found.sort(key=lambda place: (weights_of(place).stat().st_size, str(place)))
    return found, f"Hugging Face cache: {len(revisions)} model(s), {len(found)} usable"


def fitting_size(config: Mapping[str, Any], wanted: list[int]) -> list[int]:
    """The input size to use: the network's own where it is fixed, else multiples of 32 near what was wanted."""
    if config["model_type"] in FIXED and config.get("image_size"):
        side = config["image_size"]
        return [int(v) for v in side] if isinstance(side, list) else [int(side)] * 2
    return [max(64, round(v / 32) * 32) for v in wanted]
