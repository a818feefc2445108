"""Backbones from other packages: image models of transformers and timm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.backbones_2d import resize_positions
from m3b.training.pretrained.tensors import OPTIONAL_NAMES, LoadedTensors
from m3b.training.pretrained.weight_files import StartError

MODEL_CLASSES = {
    "dinov2": "Dinov2Model",
    "dinov2_with_registers": "Dinov2WithRegistersModel",
    "dinov3_vit": "DINOv3ViTModel",
    "clip_vision_model": "CLIPVisionModel",
    "siglip_vision_model": "SiglipVisionModel",
    "sam_vision_model": "SamVisionModel",
}
"""model_type -> class of transformers with the image tower alone."""
INTERPOLATING_KINDS = ("clip_vision_model", "siglip_vision_model")
"""Kinds that need an option for other image sizes than their own."""
KINDS_WITHOUT_CLASS_TOKEN = ("siglip_vision_model",)


class HubBackbone(nn.Module):
    """Image tower of transformers, built from its configuration; the tokens of its last layer become one map."""

    def __init__(self, arch: Mapping[str, Any]) -> None:
        super().__init__()
        config_values = dict(arch)
        self.kind = str(config_values.pop("model_type"))
        if self.kind not in MODEL_CLASSES:
            raise StartError(f"model_type {self.kind!r}: must be one of {', '.join(MODEL_CLASSES)}")
        try:
            import transformers
        except ImportError as error:
            raise StartError(f"{self.kind} needs the package transformers: pip install transformers") from error
        model_class: Any = getattr(transformers, MODEL_CLASSES[self.kind])
        config = model_class.config_class(**config_values)
        self.inner = model_class(config)
        self.multiple = int(config.patch_size)
        width = int(getattr(config, "output_channels", 0) if self.kind == "sam_vision_model" else config.hidden_size)
        self.widths, self.steps = [width], [[self.multiple] * 2]
        registers = int(getattr(config, "num_register_tokens", 0) or 0)
        self.skip = registers + (0 if self.kind in KINDS_WITHOUT_CLASS_TOKEN else 1)

    def fetch(self, folder: Path) -> LoadedTensors:
        """Load the weights of a folder through transformers, which knows the tensor names of its earlier versions."""
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        model_class: Any = type(self.inner)
        try:
            model, loading_info = model_class.from_pretrained(
                folder, config=self.inner.config, use_safetensors=True, local_files_only=True, dtype=torch.float32,
                ignore_mismatched_sizes=True, output_loading_info=True,
            )  # fmt: skip
        except Exception as error:  # transformers raises many types
            raise StartError(f"{folder}: {type(error).__name__}: {error}") from error
        names = {name for name, _ in model.named_parameters()}
        missing = sorted({*loading_info["missing_keys"], *(key for key, *_ in loading_info["mismatched_keys"])} & names)
        missing = [name for name in missing if not re.search(OPTIONAL_NAMES, name)]
        if missing:
            raise StartError(
                f"{folder}: {len(missing)} of {len(names)} tensors are missing or have another shape ({missing[0]}, ...): the "
                "file is incomplete, or config.json is of another network; fetch both again"
            )
        self.inner = model
        return LoadedTensors(len(names), 0, len(loading_info["unexpected_keys"]))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        if self.kind == "sam_vision_model":
            return [_run_sam(self.inner, x)]
        options = {"interpolate_pos_encoding": True} if self.kind in INTERPOLATING_KINDS else {}
        tokens = self.inner(pixel_values=x, **options).last_hidden_state[:, self.skip :]
        grid = [side // self.multiple for side in x.shape[2:]]
        return [tokens.transpose(1, 2).unflatten(2, grid)]


def _run_sam(model: Any, x: torch.Tensor) -> torch.Tensor:
    """Run SAM's tower at any size: position embeddings for 1024 pixels are interpolated; attention adapts its own."""
    encoder = getattr(model, "vision_encoder", model)
    states = encoder.patch_embed.projection(x).permute(0, 2, 3, 1)
    positions = encoder.pos_embed
    if positions is not None:
        if positions.shape[1:3] != states.shape[1:3]:
            grid = (int(states.shape[1]), int(states.shape[2]))
            positions = resize_positions(positions.permute(0, 3, 1, 2), grid).permute(0, 2, 3, 1)
        states = states + positions
    for layer in encoder.layers:
        states = layer(states)
        states = states[0] if isinstance(states, tuple) else states
    return torch.as_tensor(encoder.neck(states))


class TimmBackbone(nn.Module):
    """Any model of timm with intermediate maps. `arch`: {"model": name, "args": {...}}."""

    multiple = 32

    def __init__(self, channels: int, arch: Mapping[str, Any]) -> None:
        super().__init__()
        try:
            import timm
        except ImportError as error:
            raise StartError(
                f"{arch['model']} needs the packages timm and torchvision: pip install timm ({error})"
            ) from error
        args = dict(arch.get("args") or {})
        self.inner = timm.create_model(str(arch["model"]), pretrained=False, num_classes=0, in_chans=channels, **args)
        if not hasattr(self.inner, "forward_intermediates"):
            raise StartError(f"{arch['model']}: timm gives no intermediate maps of it; use another network")
        self.inner.eval()
        with torch.no_grad():
            maps = self._maps(torch.zeros(1, channels, 64, 64))
        self.widths = [int(feature_map.shape[1]) for feature_map in maps]
        self.steps = [[64 // int(side) for side in feature_map.shape[2:]] for feature_map in maps]
        self.inner.train()

    def _maps(self, x: torch.Tensor) -> list[torch.Tensor]:
        maps = self.inner.forward_intermediates(x, output_fmt="NCHW", intermediates_only=True)
        last_of_size = {
            tuple(feature_map.shape[2:]): feature_map for feature_map in maps
        }  # the last of each resolution
        return list(last_of_size.values())

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return self._maps(x)
