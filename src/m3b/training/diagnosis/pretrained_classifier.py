"""Pretrained classifiers, built from the files of pretrained_files.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.diagnosis.pretrained_files import DENSENET, PretrainedError, find_weights, read_config

HEAD_NAMES = ("classifier", "head", "class_layers.out", "fc")


def build_pretrained(plan: Mapping[str, Any], load: bool = True, outputs: int = 0) -> nn.Module:
    """Build the network of `plan["network"]`: {"pretrained": path, "config": {...}}; with its weights if `load`.

    `outputs`: number of outputs; 0 for one a class.
    """
    network, outputs = plan["network"], outputs or len(plan["classes"])
    source = network.get("pretrained")
    config = dict(network.get("config") or read_config(str(source)))
    if config["model_type"] == DENSENET:
        return _build_densenet(config, plan, str(source) if load and source else "", outputs)
    from transformers import AutoConfig, AutoModelForImageClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = AutoConfig.for_model(config.pop("model_type"), **config)
    settings.num_labels = outputs
    if not (load and source):
        return _Logits(AutoModelForImageClassification.from_config(settings))
    file = find_weights(Path(source))
    try:  # through transformers, which knows the tensor names of its earlier versions
        model, loading_info = AutoModelForImageClassification.from_pretrained(
            file.parent, config=settings, use_safetensors=True, local_files_only=True, ignore_mismatched_sizes=True,
            output_loading_info=True, dtype=torch.float32,
        )  # fmt: skip
    except Exception as error:  # transformers raises many types
        raise PretrainedError(f"{file}: {type(error).__name__}: {error}") from error
    unloaded = {*loading_info["missing_keys"], *(key for key, *_ in loading_info["mismatched_keys"])}
    _check_complete({name for name, _ in model.named_parameters()}, unloaded, str(source))
    return _Logits(model)


def _check_complete(names: set[str], unloaded: set[str], source: str) -> None:
    missing = sorted(name for name in unloaded & names if not is_head(name))
    if missing:
        raise PretrainedError(
            f"{source}: {len(missing)} of {len(names)} weights are missing or of another shape: {missing[0]}"
        )


class _Logits(nn.Module):
    """A transformers model that returns only its logits."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(pixel_values=x).logits
        return logits


def _build_densenet(config: Mapping[str, Any], plan: Mapping[str, Any], source: str, outputs: int) -> nn.Module:
    from monai.networks.nets import DenseNet121
    from safetensors.torch import load_file

    dims, dropout = int(config["dims"]), float(plan["network"].get("dropout") or 0.0)
    if dims != int(plan["dims"]):
        raise PretrainedError(
            f"{source or 'the pretrained network'}: made for {dims}D images, these are {plan['dims']}D"
        )
    model = DenseNet121(
        spatial_dims=dims,
        in_channels=int(config["num_channels"]),
        out_channels=outputs,
        dropout_prob=dropout,
    )
    if source:
        weights = load_file(str(find_weights(Path(source))))
        renamed = {
            re.sub(r"(denselayer\d+\.)(norm|relu|conv)\.?(\d)", r"\1layers.\2\3", k): v for k, v in weights.items()
        }
        _load_weights(model, renamed, source)
    return model


def _load_weights(model: nn.Module, weights: Mapping[str, torch.Tensor], source: str) -> None:
    """Load everything but the head, whose classes differ. Raises PretrainedError if weights are missing."""
    state = model.state_dict()
    matching = {k: v for k, v in weights.items() if k in state and not is_head(k) and v.shape == state[k].shape}
    needed = {name for name, _ in model.named_parameters()} | {key for key in state if ".running_" in key}
    _check_complete(needed, needed - set(matching), source)
    model.load_state_dict({**state, **matching})


def is_head(name: str) -> bool:
    """Return whether a parameter belongs to the last layer, which is trained from scratch."""
    parts = name.removeprefix("backbone.").removeprefix("inner.")
    return any(parts.startswith(f"{head}.") for head in HEAD_NAMES)
