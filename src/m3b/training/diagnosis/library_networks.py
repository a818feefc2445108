"""Classifiers of timm and torchvision by name, from random weights: `network.name=timm:NAME` or `torchvision:NAME`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from m3b.training.torchvision_ops import declare_operators

LIBRARIES = ("timm", "torchvision")
WITHOUT_ONE_OUTPUT = ("googlenet", "inception_v3")
"""Networks of torchvision that return further outputs in training."""


def build_library_network(plan: Mapping[str, Any], outputs: int, check: bool) -> nn.Module:
    """Build the network that `plan["network"]["name"]` names, with its own head for `outputs`; nothing is downloaded.

    Args:
        check: run it once on an image of zeros.

    Raises:
        SystemExit: the library or the network does not exist, or the network does not take the plan's input.
    """
    network, size, channels = plan["network"], [int(side) for side in plan["size"]], int(plan["channels"])
    option = f"network.name={network['name']}"
    library, _, name = str(network["name"]).partition(":")
    if library not in LIBRARIES:
        raise SystemExit(f"{option}: unknown library; known are {', '.join(LIBRARIES)}")
    if int(plan["dims"]) != 2:
        raise SystemExit(f"{option}: a network of 2D images, and these are volumes; use resnet18 or densenet121")
    build = _build_timm if library == "timm" else _build_torchvision
    declare_operators()
    try:
        model = build(name, outputs, channels, size, float(network.get("dropout") or 0.0))
        if check:
            with torch.no_grad():
                model.eval()(torch.zeros(1, channels, *size))
    except ImportError as error:
        raise SystemExit(f"{option} needs {library}: pip install 'm3b[vision]' ({error})") from error
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise SystemExit(
            f"{option} does not take {channels} channels of {size}; set size=[224,224] ({error})"
        ) from error
    return model.train()


def _check_name(name: str, known_names: Sequence[str]) -> None:
    """Refuse other names: timm takes those of a hub, too."""
    if name not in known_names:
        matches = ", ".join(difflib.get_close_matches(name, known_names, 3)) or f"{known_names[0]} and others"
        raise SystemExit(f"network.name: the library has no classifier {name!r}; it has {matches}")


def _build_timm(name: str, outputs: int, channels: int, size: list[int], dropout: float) -> nn.Module:
    import timm

    _check_name(name, timm.list_models())
    config = timm.models.get_pretrained_cfg(name)
    sizes = {"img_size": size} if config is not None and config.fixed_input_size else {}
    return timm.create_model(name, pretrained=False, num_classes=outputs, in_chans=channels, drop_rate=dropout, **sizes)


def _build_torchvision(name: str, outputs: int, channels: int, size: list[int], dropout: float) -> nn.Module:
    from torchvision import models

    _check_name(name, [item for item in models.list_models(models) if item not in WITHOUT_ONE_OUTPUT])
    options = {"image_size": size[0]} if name.startswith("vit_") else {}
    model: nn.Module = models.get_model(name, weights=None, num_classes=outputs, **options)
    for part in model.modules():
        if isinstance(part, nn.Dropout) and dropout:
            part.p = dropout
    return replace_first_layer(model, channels)


def replace_first_layer(model: nn.Module, channels: int) -> nn.Module:
    """Let the first convolution take another number of channels; its new weights are random."""
    place, first = next((name, part) for name, part in model.named_modules() if isinstance(part, nn.Conv2d))
    if first.in_channels != channels:
        options = {key: getattr(first, key) for key in ("out_channels", "kernel_size", "stride", "padding", "dilation")}
        model.set_submodule(place, nn.Conv2d(channels, **options, bias=first.bias is not None))
    return model
