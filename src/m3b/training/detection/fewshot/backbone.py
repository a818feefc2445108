"""A frozen image network from a local folder, as one module whose blocks can be listened to and changed.

Formats: a folder of transformers (`config.json`, `model.safetensors`) with CLIP, SigLIP, DINOv2 or DINOv3; one of
open_clip (`open_clip_config.json`, `open_clip_model.safetensors`), as CLIP and BiomedCLIP come; or the small network of
`convnet` (`config.json` with model_type m3b-conv). Weights are read from safetensors alone, never from a pickle,
and nothing is downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from m3b.training.detection.fewshot.backbone_folder import TEXTED, BackboneError, describe, weights_in
from m3b.training.detection.fewshot.convnet import KIND, ConvNet

__all__ = ["Backbone", "BackboneError", "describe", "load_backbone"]


@dataclass
class Backbone:
    """What few-shot detectors build on.

    Args:
        vision: (B, 3, S, S) through all blocks.
        blocks: in order; each gives (B, tokens, width), or a map (B, width, H, W).
        text: texts to (texts, joint width), or None where the network knows no text.
        joint: width of the space of texts; 0 without.
    """

    vision: nn.Module
    blocks: Sequence[nn.Module]
    text: Any = None
    joint: int = 0


def load_backbone(described: Mapping[str, Any], folder: str | Path | None = None) -> Backbone:
    """The network that `describe` described, with its weights from `folder`, or with random ones where that is None.

    Text comes with weights alone: a delivered model holds what its prompts came to.

    Raises:
        BackboneError: weights that do not belong to the described network, or a library that is not installed.
    """
    try:
        made = _MAKERS[str(described["format"])](described, Path(folder) if folder is not None else None)
    except (OSError, RuntimeError, KeyError, SafetensorError) as error:
        raise BackboneError(f"{folder or 'the backbone'}: {type(error).__name__}: {error}") from error
    made.vision.requires_grad_(False).eval()
    return made


def _conv(described: Mapping[str, Any], folder: Path | None) -> Backbone:
    net = ConvNet(int(described["config"]["width"]))
    if folder is not None:
        from safetensors.torch import load_file

        net.load_state_dict(load_file(str(weights_in(folder))))
    return Backbone(net, list(net.stages))


class _Vision(nn.Module):
    """A vision tower of transformers at any input size."""

    def __init__(self, inner: nn.Module, interpolates: bool) -> None:
        super().__init__()
        self.inner, self.interpolates = inner, interpolates

    def forward(self, x: torch.Tensor) -> Any:
        more = {"interpolate_pos_encoding": True} if self.interpolates else {}
        return self.inner(pixel_values=x, **more).last_hidden_state


def _transformers(described: Mapping[str, Any], folder: Path | None) -> Backbone:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoConfig, AutoModel

    config = dict(described["config"])
    kind = str(config.pop("model_type"))
    if folder is None:
        model = AutoModel.from_config(AutoConfig.for_model(kind, **config))
    else:
        model = AutoModel.from_pretrained(
            folder, use_safetensors=True, local_files_only=True, dtype=torch.float32, trust_remote_code=False
        )
    tower = model.vision_model if kind in TEXTED else model
    vision = _Vision(tower, kind in TEXTED)
    made = Backbone(vision, _blocks(tower, str(folder or kind)))
    if kind in TEXTED and folder is not None:
        made.text, made.joint = _texts(model, folder), int(_joint(model))
    return made


def _blocks(tower: nn.Module, name: str) -> list[nn.Module]:
    """The longest list of modules of one class: the transformer's blocks."""
    lists = [one for one in tower.modules() if isinstance(one, nn.ModuleList | nn.Sequential)]
    alike = [list(one) for one in lists if len(one) > 1 and len({type(part) for part in one}) == 1]
    if not alike:
        raise BackboneError(f"{name}: no list of blocks was found in its vision tower.")
    return max(alike, key=len)


def _joint(model: nn.Module) -> int:
    projection = getattr(model, "text_projection", None)
    if isinstance(projection, nn.Linear):
        return int(projection.out_features)
    return int(model.config.text_config.hidden_size)  # SigLIP: the head keeps the width


def _texts(model: Any, folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise BackboneError(f"{folder}: its tokenizer cannot be read, so that prompts cannot be: {error}") from error
    length = int(getattr(model.config.text_config, "max_position_embeddings", 77))

    @torch.no_grad()
    def encode(texts: Sequence[str]) -> torch.Tensor:
        batch = tokenizer(list(texts), padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        given = {key: value for key, value in batch.items() if key in ("input_ids", "attention_mask")}
        found = model.get_text_features(**given)
        return found if isinstance(found, torch.Tensor) else found.pooler_output

    return encode


def _open_clip(described: Mapping[str, Any], folder: Path | None) -> Backbone:
    try:
        import open_clip
    except ImportError as error:
        raise BackboneError(
            "a folder of open_clip needs the package open_clip_torch: pip install open_clip_torch"
        ) from error
    if folder is None:
        config = described["config"].get("model_cfg", described["config"])
        model = open_clip.CLIP(**{key: value for key, value in config.items() if key != "custom_text"})
    else:
        model = open_clip.create_model(f"local-dir:{folder}", force_image_size=int(described["size"]))
    made = Backbone(model.visual, _blocks(model.visual, str(folder or "open_clip")))
    if folder is not None:
        tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
        made.text = torch.no_grad()(lambda texts: model.encode_text(tokenizer(list(texts))))
        made.joint = int(made.text(["an image"]).shape[1])
    return made


_MAKERS = {KIND: _conv, "transformers": _transformers, "open_clip": _open_clip}
