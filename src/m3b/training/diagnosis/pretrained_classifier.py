"""Networks whose weights were trained before, built from the files that pretrained_files.py finds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.diagnosis.pretrained_files import DENSENET, PretrainedError, read_config, weights_of

HEADS = ("classifier", "head", "class_layers.out", "fc")


def build_pretrained(plan: Mapping[str, Any], load: bool = True, outputs: int = 0) -> nn.Module:
    """The network of `plan["network"]`: {"pretrained": path, "config": {...}}; with its weights if `load`.

    `outputs`: how many numbers it gives; 0 for one a class.
    """
    network, outputs = plan["network"], outputs or len(plan["classes"])
    place = network.get("pretrained")
    config = dict(network.get("config") or read_config(str(place)))
    if config["model_type"] == DENSENET:
        return _densenet(config, plan, str(place) if load and place else "", outputs)
    from transformers import AutoConfig, AutoModelForImageClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = AutoConfig.for_model(config.pop("model_type"), **config)
    settings.num_labels = outputs
    if not (load and place):
        return _Logits(AutoModelForImageClassification.from_config(settings))
    file = weights_of(Path(place))
    try:  # through transformers, which knows the names that weights had in its earlier versions
        model, said = AutoModelForImageClassification.from_pretrained(
            file.parent, config=settings, use_safetensors=True, local_files_only=True, ignore_mismatched_sizes=True,
            output_loading_info=True, dtype=torch.float32,
        )  # fmt: skip
    except Exception as error:
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


def _densenet(config: Mapping[str, Any], plan: Mapping[str, Any], place: str, outputs: int) -> nn.Module:
    from monai.networks.nets import DenseNet121

    dims, dropout = int(config["dims"]), float(plan["network"].get("dropout") or 0.0)
    if dims != int(plan["dims"]):
        raise PretrainedError(
            f"{place or 'the pretrained network'}: made for {dims}D images, these are {plan['dims']}D"
        )
    model = DenseNet121(
        spatial_dims=dims,
        in_channels=int(config["num_channels"]),
        out_channels=outputs,
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
