"""Tiny networks with random weights in the layout of each family, and templates put together with the registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from m3b.resources import copy_template

TEMPLATES = Path(__file__).resolve().parents[2] / "resources" / "templates"
Tensors = dict[str, Any]


def assemble(template: str, place: Path) -> Path:
    """A template as m3b puts it together: its own files over the shared ones, with the registry."""
    copy_template(template, place)
    return place


def parts(name: str) -> Any:
    """A shared module of the templates, in a package of its own."""
    from template_kit import load

    return load(name)


def _random(make: Callable[[], Any]) -> Any:
    import torch

    torch.manual_seed(3)
    return make()


def resnet(channels: int = 3) -> tuple[Tensors, dict[str, Any]]:
    arch = {"block": "basic", "depths": [1, 1, 1, 1], "width": 8}
    return _random(lambda: parts("pretrained.backbones_2d").ResNet(2, channels, arch)).state_dict(), arch


def densenet(channels: int = 1) -> tuple[Tensors, dict[str, Any]]:
    arch = {"growth": 8, "blocks": [1, 1, 2, 1], "stem": 16}
    return _random(lambda: parts("pretrained.backbones_2d").DenseNet(2, channels, arch)).state_dict(), arch


def vit() -> tuple[Tensors, dict[str, Any]]:
    arch = {"width": 32, "depth": 2, "heads": 2, "patch": 16, "size": 32}
    return _random(lambda: parts("pretrained.backbones_2d").ViT(2, 3, arch)).state_dict(), arch


def swin() -> tuple[Tensors, dict[str, Any]]:
    arch = {"width": 12, "depths": [1, 1, 1, 1], "heads": [1, 2, 3, 4], "window": 3}
    state = _random(lambda: parts("pretrained.backbones_3d").SwinBackbone(1, arch)).state_dict()
    return {name.replace("linear", "fc"): value for name, value in state.items()}, arch


def stunet() -> tuple[Tensors, dict[str, Any]]:
    arch = {"filters": [4, 8, 16], "depths": [1, 1, 1]}
    state = _random(lambda: parts("pretrained.backbones_3d").Stages(3, 1, arch, True)).state_dict()
    return {name.replace("stages.", "conv_blocks_context.", 1): value for name, value in state.items()}, arch


def nnunet() -> Tensors:
    """nnU-Net's own network, as its trainer saves it."""
    import torch
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    def make() -> Any:
        return PlainConvUNet(
            1, 3, [4, 8, 16], torch.nn.Conv3d, [[3, 3, 3]] * 3, [[1, 1, 1], [1, 2, 2], [2, 2, 2]], [2, 2, 2], 4, [2, 2],
            conv_bias=True, norm_op=torch.nn.InstanceNorm3d, norm_op_kwargs={"affine": True}, nonlin=torch.nn.LeakyReLU,
        )  # fmt: skip

    return {name: value.clone() for name, value in _random(make).state_dict().items()}


TOWER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WORDS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 20}


def transformers_model(kind: str) -> Any:
    """A model of transformers, whole: with its tower of words or its decoder."""
    import transformers as t

    small = {"image_size": 32, "patch_size": 16}
    both = {"text_config": WORDS, "vision_config": TOWER | small}
    sam = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_dim": 64, "output_channels": 16}
    sam |= {"image_size": 64, "patch_size": 16, "window_size": 2, "global_attn_indexes": [1]}
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 16, "mask_input_channels": 4}
    decoder = {"hidden_size": 16, "mlp_dim": 16, "num_attention_heads": 2, "iou_head_hidden_dim": 16}
    model_builders: dict[str, Callable[[], Any]] = {
        "dinov2": lambda: t.Dinov2Model(
            t.Dinov2Config(**(TOWER | {"image_size": 28, "patch_size": 14, "mlp_ratio": 2}))
        ),
        "dinov3": lambda: t.DINOv3ViTModel(t.DINOv3ViTConfig(**(TOWER | small | {"num_register_tokens": 2}))),
        "clip": lambda: t.CLIPModel(t.CLIPConfig(**both)),
        "siglip": lambda: t.SiglipModel(t.SiglipConfig(**both)),
        "sam": lambda: t.SamModel(
            t.SamConfig(vision_config=sam, prompt_encoder_config=prompt, mask_decoder_config=decoder)
        ),
    }
    return _random(model_builders[kind])


def sam_original() -> tuple[Tensors, dict[str, Any]]:
    """SAM's encoder under the names of its authors' code."""
    model = transformers_model("sam")
    arch = {**model.config.vision_config.to_dict(), "model_type": "sam_vision_model"}
    names = {
        "vision_encoder.": "image_encoder.", "patch_embed.projection": "patch_embed.proj", ".layers.": ".blocks.",
        "neck.conv1": "neck.0", "neck.layer_norm1": "neck.1", "neck.conv2": "neck.2", "neck.layer_norm2": "neck.3",
        ".layer_norm": ".norm",
    }  # fmt: skip
    original_tensors = {}
    for name, value in model.state_dict().items():
        if name.startswith("vision_encoder."):
            for new, old in names.items():
                name = name.replace(new, old)
            original_tensors[name] = value
    return original_tensors, arch


def write_weights(
    folder: Path, tensors: Tensors, entry: str, arch: dict[str, Any] | None = None, **metadata: Any
) -> Path:
    """A folder as `m3b models fetch` leaves it."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, str(folder / "model.safetensors"))
    (folder / "m3b-start.json").write_text(json.dumps({"entry": entry, **({"arch": arch} if arch else {}), **metadata}))
    return folder
