"""Networks whose weights were trained before: found on this machine, never downloaded, never unpickled.

Two kinds: a folder as transformers writes it (`config.json` and `model.safetensors`), or a `.safetensors` file with the
weights of a DenseNet-121 in MONAI's or torchvision's naming.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

KINDS = ("convnext", "convnextv2", "deit", "efficientnet", "mobilenet_v2", "regnet", "resnet", "swin", "swinv2", "vit")
FIXED = ("deit", "swin", "swinv2", "vit")
"""Kinds whose input size is part of their weights."""
DENSENET = "monai-densenet121"
HEADS = ("classifier", "head", "class_layers.out", "fc")
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


def build_pretrained(plan: Mapping[str, Any], load: bool = True) -> nn.Module:
    """The network of `plan["network"]`: {"pretrained": path, "config": {...}}; with its weights if `load`."""
    network, classes = plan["network"], len(plan["classes"])
    place = network.get("pretrained")
    config = dict(network.get("config") or read_config(str(place)))
    if config["model_type"] == DENSENET:
        return _densenet(config, plan, str(place) if load and place else "")
    from transformers import AutoConfig, AutoModelForImageClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = AutoConfig.for_model(config.pop("model_type"), **config)
    settings.num_labels = classes
    if not (load and place):
        return _Logits(AutoModelForImageClassification.from_config(settings))
    file = weights_of(Path(place))
    try:  # through transformers, which knows the names that weights had in its earlier versions
        model, said = AutoModelForImageClassification.from_pretrained(
            file.parent, config=settings, use_safetensors=True, local_files_only=True, ignore_mismatched_sizes=True,
            output_loading_info=True, dtype=torch.float32,
        )  # fmt: skip
    except Exception as error:  # a damaged or foreign file makes it raise nearly anything
        raise PretrainedError(f"{file}: {type(error).__name__}: {error}") from error
    unloaded = {*said["missing_keys"], *(key for key, *_ in said["mismatched_keys"])}
    _complete({name for name, _ in model.named_parameters()}, unloaded, str(place))
    return _Logits(model)


def _complete(names: set[str], unloaded: set[str], place: str) -> None:
    lacking = sorted(name for name in unloaded & names if not is_head(name))
    if lacking:
        raise PretrainedError(
            f"{place}: {len(lacking)} of {len(names)} weights are missing or of another shape: {lacking[0]}"
        )


class _Logits(nn.Module):
    """A transformers model that answers with logits alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(pixel_values=x).logits
        return logits


def _densenet(config: Mapping[str, Any], plan: Mapping[str, Any], place: str) -> nn.Module:
    from monai.networks.nets import DenseNet121

    dims, dropout = int(config["dims"]), float(plan["network"].get("dropout") or 0.0)
    if dims != int(plan["dims"]):
        raise PretrainedError(
            f"{place or 'the pretrained network'}: made for {dims}D images, these are {plan['dims']}D"
        )
    model = DenseNet121(
        spatial_dims=dims,
        in_channels=int(config["num_channels"]),
        out_channels=len(plan["classes"]),
        dropout_prob=dropout,
    )
    if place:
        weights = _read(weights_of(Path(place)))
        named = {
            re.sub(r"(denselayer\d+\.)(norm|relu|conv)\.?(\d)", r"\1layers.\2\3", k): v for k, v in weights.items()
        }
        _put(model, named, place)
    return model


def _read(file: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(str(file))


def _put(model: nn.Module, weights: Mapping[str, torch.Tensor], place: str) -> None:
    """Everything but the head, whose classes are others; complete, or PretrainedError."""
    own = model.state_dict()
    fits = {k: v for k, v in weights.items() if k in own and not is_head(k) and v.shape == own[k].shape}
    needed = {name for name, _ in model.named_parameters()} | {key for key in own if ".running_" in key}
    _complete(needed, needed - set(fits), place)
    model.load_state_dict({**own, **fits})


def is_head(name: str) -> bool:
    """Whether a parameter belongs to the last layer, which is trained from the start."""
    parts = name.removeprefix("backbone.").removeprefix("inner.")
    return any(parts.startswith(f"{head}.") for head in HEADS)


def fitting_size(config: Mapping[str, Any], wanted: list[int]) -> list[int]:
    """The input size to use: the network's own where it is fixed, else multiples of 32 near what was wanted."""
    if config["model_type"] in FIXED and config.get("image_size"):
        side = config["image_size"]
        return [int(v) for v in side] if isinstance(side, list) else [int(side)] * 2
    return [max(64, round(v / 32) * 32) for v in wanted]
