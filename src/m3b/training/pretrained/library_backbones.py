"""Backbones that other packages build: image models of transformers and of timm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.starts import StartError
from m3b.training.pretrained.tensors import UNUSED, Taken

CLASSES = {
    "dinov2": "Dinov2Model",
    "dinov2_with_registers": "Dinov2WithRegistersModel",
    "dinov3_vit": "DINOv3ViTModel",
    "clip_vision_model": "CLIPVisionModel",
    "siglip_vision_model": "SiglipVisionModel",
    "sam_vision_model": "SamVisionModel",
}
"""model_type -> the class of transformers that has the image tower alone."""
INTERPOLATING = ("clip_vision_model", "siglip_vision_model")
"""Kinds that take other sizes than their own only when told so."""
NO_CLASS_TOKEN = ("siglip_vision_model",)


class HubBackbone(nn.Module):
    """An image tower of transformers, from its configuration alone. Tokens of its last layer become one map."""

    def __init__(self, arch: Mapping[str, Any]) -> None:
        super().__init__()
        said = dict(arch)
        self.kind = str(said.pop("model_type"))
        if self.kind not in CLASSES:
            raise StartError(f"model_type {self.kind!r}: known are {', '.join(CLASSES)}")
        try:
            import transformers
        except ImportError as error:
            raise StartError(f"{self.kind} needs the package transformers: pip install transformers") from error
        kind: Any = getattr(transformers, CLASSES[self.kind])
        config = kind.config_class(**said)
        self.inner = kind(config)
        self.multiple = int(config.patch_size)
        width = int(getattr(config, "output_channels", 0) if self.kind == "sam_vision_model" else config.hidden_size)
        self.widths, self.steps = [width], [[self.multiple] * 2]
        registers = int(getattr(config, "num_register_tokens", 0) or 0)
        self.skip = registers + (0 if self.kind in NO_CLASS_TOKEN else 1)

    def fetch(self, folder: Path) -> Taken:
        """The weights of a folder, through transformers, which knows the names that they had in its earlier versions."""
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        kind: Any = type(self.inner)
        try:
            model, said = kind.from_pretrained(
                folder, config=self.inner.config, use_safetensors=True, local_files_only=True, dtype=torch.float32,
                ignore_mismatched_sizes=True, output_loading_info=True,
            )  # fmt: skip
        except Exception as error:
            raise StartError(f"{folder}: {type(error).__name__}: {error}") from error
        names = {name for name, _ in model.named_parameters()}
        lacking = sorted({*said["missing_keys"], *(key for key, *_ in said["mismatched_keys"])} & names)
        lacking = [name for name in lacking if not re.search(UNUSED, name)]
        if lacking:
            raise StartError(
                f"{folder}: {len(lacking)} of {len(names)} tensors are missing or of another form ({lacking[0]}, ...): the "
                "file is not whole, or config.json is of another network; fetch both again"
            )
        self.inner = model
        return Taken(len(names), 0, len(said["unexpected_keys"]))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        if self.kind == "sam_vision_model":
            return [_sam(self.inner, x)]
        more = {"interpolate_pos_encoding": True} if self.kind in INTERPOLATING else {}
        tokens = self.inner(pixel_values=x, **more).last_hidden_state[:, self.skip :]
        grid = [side // self.multiple for side in x.shape[2:]]
        return [tokens.transpose(1, 2).unflatten(2, grid)]


def _sam(model: Any, x: torch.Tensor) -> torch.Tensor:
    """SAM's tower at any size: it takes 1024 only; its places are interpolated, those of attention it fits by itself."""
    encoder = getattr(model, "vision_encoder", model)
    states = encoder.patch_embed.projection(x).permute(0, 2, 3, 1)
    places = encoder.pos_embed
    if places is not None:
        if places.shape[1:3] != states.shape[1:3]:
            grid = (int(states.shape[1]), int(states.shape[2]))
            moved = nn.functional.interpolate(places.permute(0, 3, 1, 2), size=grid, mode="bicubic", antialias=True)
            places = moved.permute(0, 2, 3, 1)
        states = states + places
    for layer in encoder.layers:
        states = layer(states)
        states = states[0] if isinstance(states, tuple) else states
    return torch.as_tensor(encoder.neck(states))


class TimmBackbone(nn.Module):
    """Any model of timm that gives its inner maps. `arch`: {"model": name, "args": {...}}."""

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
            raise StartError(f"{arch['model']}: timm gives no inner maps of it; take another network")
        self.inner.eval()
        with torch.no_grad():
            maps = self._maps(torch.zeros(1, channels, 64, 64))
        self.widths = [int(one.shape[1]) for one in maps]
        self.steps = [[64 // int(side) for side in one.shape[2:]] for one in maps]
        self.inner.train()

    def _maps(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = self.inner.forward_intermediates(x, output_fmt="NCHW", intermediates_only=True)
        last = {tuple(one.shape[2:]): one for one in found}  # the last of each resolution
        return list(last.values())

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return self._maps(x)
