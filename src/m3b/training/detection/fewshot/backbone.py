"""A frozen image network from a local folder, as one module whose blocks accept hooks.

Formats: a folder of transformers (`config.json`, `model.safetensors`) with CLIP, SigLIP, DINOv2 or DINOv3; one of open_clip
(`open_clip_config.json`, `open_clip_model.safetensors`), such as CLIP and BiomedCLIP; or the small network of `convnet`
(`config.json` with model_type m3b-conv). Weights are read from safetensors only, never from a pickle, and nothing is downloaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from m3b.training.detection.fewshot.convnet import KIND, STAGES, ConvNet

PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
MODELS_WITH_TEXT = ("clip", "siglip", "siglip2")
MODELS_WITHOUT_TEXT = ("dinov2", "dinov3_vit")
PREPROCESSOR_FILE = "preprocessor_config.json"
OPEN_CLIP = "open_clip_config.json"
CLIP_NORM = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
"""Mean and deviation of CLIP, for a folder without its own."""


class BackboneError(ValueError):
    """A folder that is no usable backbone, with the file and the reason."""


def describe_backbone(folder: str | Path, size: int = 0) -> dict[str, Any]:
    """Return what is needed to build the network without its weights: format, config, input size and its step, mean and deviation.

    Args:
        size: side of the input in pixels; 0 for the network's own.

    Raises:
        BackboneError: no such folder, no safetensors, or no vision network.
    """
    path = Path(folder)
    if not path.is_dir():
        raise BackboneError(f"{folder} is no folder. Set the folder of a vision model (backbone=FOLDER).")
    if (path / OPEN_CLIP).is_file():
        return _describe_open_clip(path, size)
    if not (path / "config.json").is_file():
        raise BackboneError(f"{folder} holds neither config.json (transformers) nor {OPEN_CLIP} (open_clip).")
    find_weights(path)
    config = json.loads((path / "config.json").read_text())
    model_type = str(config.get("model_type") or "")
    if model_type == KIND:
        side = size or int(config["size"])
        return {
            "format": KIND,
            "config": config,
            "size": side,
            "step": 2**STAGES,
            "mean": config["mean"],
            "std": config["std"],
        }
    if model_type not in (*MODELS_WITH_TEXT, *MODELS_WITHOUT_TEXT):
        raise BackboneError(
            f"{folder}: unknown model_type {model_type!r}; known vision models are "
            f"{', '.join((*MODELS_WITH_TEXT, *MODELS_WITHOUT_TEXT, KIND))}."
        )
    vision_config = config.get("vision_config", config)
    step = int(vision_config.get("patch_size") or 16)
    preprocessing = _read_preprocessing(path)
    side = size or _input_side(preprocessing) or int(vision_config.get("image_size") or 224)
    norm = {name: preprocessing.get(f"image_{name}") or CLIP_NORM[name] for name in ("mean", "std")}
    return {"format": "transformers", "config": config, "size": side // step * step, "step": step, **norm}


def find_weights(folder: Path, name: str = "model.safetensors") -> Path:
    """Return the weights file of a folder.

    Raises:
        BackboneError: there is no safetensors file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return folder / name if (folder / name).is_file() else files[0]
    pickles = sorted(file.name for pattern in PICKLE_PATTERNS for file in folder.glob(pattern))
    if pickles:
        raise BackboneError(
            f"{folder}: the weights are a pickle ({pickles[0]}), which can run code when it is opened, so they are not loaded. If "
            f"you trust them, convert them to {name}."
        )
    raise BackboneError(f"{folder} holds no weights: {name} is missing.")


def _read_preprocessing(folder: Path) -> dict[str, Any]:
    file = folder / PREPROCESSOR_FILE
    config: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return config


def _input_side(preprocessing: Mapping[str, Any]) -> int:
    """Return the side of the weights' own input: of the centre crop, else of the resized picture; 0 if unknown."""
    is_cropped = preprocessing.get("do_center_crop", "crop_size" in preprocessing)
    value = (preprocessing.get("crop_size") if is_cropped else None) or preprocessing.get("size") or 0
    return min(map(int, value.values())) if isinstance(value, Mapping) else int(value)


def _describe_open_clip(folder: Path, size: int) -> dict[str, Any]:
    find_weights(folder, "open_clip_model.safetensors")
    config = json.loads((folder / OPEN_CLIP).read_text())
    model, preprocessing = config.get("model_cfg", config), config.get("preprocess_cfg", {})
    if "vision_cfg" not in model:
        raise BackboneError(f"{folder}: {OPEN_CLIP} describes no vision tower (vision_cfg).")
    image_size = model["vision_cfg"].get("image_size", 224)
    norm = {"mean": preprocessing.get("mean") or CLIP_NORM["mean"], "std": preprocessing.get("std") or CLIP_NORM["std"]}
    side = size or int(image_size[0] if isinstance(image_size, list) else image_size)
    return {"format": "open_clip", "config": config, "size": side, "step": side, **norm}


@dataclass
class Backbone:
    """The frozen network of a few-shot detector.

    Args:
        vision: (B, 3, S, S) through all blocks.
        blocks: in order; each returns (B, tokens, width), or a map (B, width, H, W).
        text: function of texts to (texts, joint width), or None for a network without text.
        joint: width of the joint space of texts and images; 0 without text.
        shapes: (patches, width) at each depth of the adapters, as `model.depth_shapes` measured them.
    """

    vision: nn.Module
    blocks: Sequence[nn.Module]
    text: Any = None
    joint: int = 0
    shapes: list[tuple[int, int]] = field(default_factory=list)


def load_backbone(description: Mapping[str, Any], folder: str | Path | None = None) -> Backbone:
    """Return the network of `describe_backbone`, with weights from `folder`, or random ones if it is None.

    The text encoder comes with weights only: a delivered model contains the features of its prompts.

    Raises:
        BackboneError: weights that do not belong to the described network, or a library that is not installed.
    """
    try:
        backbone = _LOADERS[str(description["format"])](description, Path(folder) if folder is not None else None)
    except (OSError, RuntimeError, KeyError, SafetensorError) as error:
        raise BackboneError(f"{folder or 'the backbone'}: {type(error).__name__}: {error}") from error
    backbone.vision.requires_grad_(False).eval()
    return backbone


def _load_conv(description: Mapping[str, Any], folder: Path | None) -> Backbone:
    net = ConvNet(int(description["config"]["width"]))
    if folder is not None:
        from safetensors.torch import load_file

        net.load_state_dict(load_file(str(find_weights(folder))))
    return Backbone(net, list(net.stages))


class _VisionTower(nn.Module):
    """A vision tower of transformers at any input size."""

    def __init__(self, inner: nn.Module, interpolates: bool) -> None:
        super().__init__()
        self.inner, self.interpolates = inner, interpolates

    def forward(self, x: torch.Tensor) -> Any:
        options = {"interpolate_pos_encoding": True} if self.interpolates else {}
        return self.inner(pixel_values=x, **options).last_hidden_state


def _load_transformers(description: Mapping[str, Any], folder: Path | None) -> Backbone:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoConfig, AutoModel

    config = dict(description["config"])
    model_type = str(config.pop("model_type"))
    if folder is None:
        model = AutoModel.from_config(AutoConfig.for_model(model_type, **config))
    else:
        model = AutoModel.from_pretrained(
            folder, use_safetensors=True, local_files_only=True, dtype=torch.float32, trust_remote_code=False
        )
    tower = model.vision_model if model_type in MODELS_WITH_TEXT else model
    vision = _VisionTower(tower, model_type in MODELS_WITH_TEXT)
    backbone = Backbone(vision, _find_blocks(tower, str(folder or model_type)))
    if model_type in MODELS_WITH_TEXT and folder is not None:
        backbone.text, backbone.joint = _make_text_encoder(model, folder), int(_text_width(model))
    return backbone


def _find_blocks(tower: nn.Module, name: str) -> list[nn.Module]:
    """Return the longest list of modules of one class: the transformer's blocks."""
    lists = [modules for modules in tower.modules() if isinstance(modules, nn.ModuleList | nn.Sequential)]
    candidates = [list(modules) for modules in lists if len(modules) > 1 and len({type(part) for part in modules}) == 1]
    if not candidates:
        raise BackboneError(f"{name}: its vision tower has no list of blocks.")
    return max(candidates, key=len)


def _text_width(model: nn.Module) -> int:
    projection = getattr(model, "text_projection", None)
    if isinstance(projection, nn.Linear):
        return int(projection.out_features)
    return int(model.config.text_config.hidden_size)  # SigLIP: the head does not change the width


def _make_text_encoder(model: Any, folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise BackboneError(f"{folder}: its tokenizer cannot be read, so prompts cannot be encoded: {error}") from error
    length = int(getattr(model.config.text_config, "max_position_embeddings", 77))

    @torch.no_grad()
    def encode(texts: Sequence[str]) -> torch.Tensor:
        batch = tokenizer(list(texts), padding="max_length", truncation=True, max_length=length, return_tensors="pt")
        inputs = {key: value for key, value in batch.items() if key in ("input_ids", "attention_mask")}
        features = model.get_text_features(**inputs)
        return features if isinstance(features, torch.Tensor) else features.pooler_output

    return encode


def _load_open_clip(description: Mapping[str, Any], folder: Path | None) -> Backbone:
    try:
        import open_clip
    except ImportError as error:
        raise BackboneError(
            "a folder of open_clip needs the package open_clip_torch: pip install open_clip_torch"
        ) from error
    if folder is None:
        config = description["config"].get("model_cfg", description["config"])
        model = open_clip.CLIP(**{key: value for key, value in config.items() if key != "custom_text"})
    else:
        model = open_clip.create_model(f"local-dir:{folder}", force_image_size=int(description["size"]))
    backbone = Backbone(model.visual, _find_blocks(model.visual, str(folder or "open_clip")))
    if folder is not None:
        tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
        backbone.text = torch.no_grad()(lambda texts: model.encode_text(tokenizer(list(texts))))
        backbone.joint = int(backbone.text(["an image"]).shape[1])
    return backbone


_LOADERS = {KIND: _load_conv, "transformers": _load_transformers, "open_clip": _load_open_clip}
