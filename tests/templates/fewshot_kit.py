"""Small backbones made from a config, and a folder of pictures with or without a bright patch, for the few-shot engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE = 32
NORM = {"mean": [0.5] * 3, "std": [0.25] * 3}


def conv_backbone(place: Path, width: int = 8) -> Path:
    """A folder with a small convolutional network of random weights."""
    import torch
    from safetensors.torch import save_file

    from m3b.training.detection.fewshot.convnet import ConvNet  # type: ignore[import-not-found]

    torch.manual_seed(0)
    place.mkdir(parents=True, exist_ok=True)
    save_file(ConvNet(width).state_dict(), str(place / "model.safetensors"))
    config = {"model_type": "m3b-conv", "width": width, "size": SIDE, **NORM}
    (place / "config.json").write_text(json.dumps(config))
    return place


WORDS = (
    *("normal", "healthy", "image", "medical", "abnormal", "damaged", "broken", "with", "without", "flaw"),
    *("lesion", "a", "photo", "of", "the", "in", "scene"),
)


def clip_backbone(place: Path, kind: str = "clip") -> Path:
    """A folder with a tiny CLIP or SigLIP of random weights and a tokenizer of a few words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import (
        CLIPConfig,
        CLIPModel,
        PreTrainedTokenizerFast,
        SiglipConfig,
        SiglipModel,
    )  # fmt: skip

    torch.manual_seed(0)
    text = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 40,
            "max_position_embeddings": 12, "bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0}  # fmt: skip
    vision = {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 2, "image_size": SIDE,
              "patch_size": 8}  # fmt: skip
    if kind == "clip":
        model: Any = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=20))
    else:
        model = SiglipModel(SiglipConfig(text_config={**text, "hidden_size": 24}, vision_config=vision))
    model.save_pretrained(place)
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<s>", "<unk>", "</s>", *dict.fromkeys(WORDS)])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(place)
    return place


def dino_backbone(place: Path, side: int = SIDE, patch: int = 8) -> Path:
    """A folder with a tiny DINOv2 of random weights: no text."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    Dinov2Model(
        Dinov2Config(hidden_size=24, num_hidden_layers=4, num_attention_heads=2, image_size=side, patch_size=patch)
    ).save_pretrained(place)
    return place


def pictures(project: Path, normal: int, abnormal: int, masks: bool = False) -> list[dict[str, Any]]:
    """Noisy pictures, of which the abnormal ones have a bright square; and the three index files."""
    rng, records = np.random.default_rng(0), []
    (project / "data/x").mkdir(parents=True, exist_ok=True)
    for number in range(normal + abnormal):
        array, mask = rng.normal(90, 10, (40, 44)), np.zeros((40, 44), np.uint8)
        ill = number >= normal
        if ill:
            y, x = rng.integers(4, 22, 2)
            array[y : y + 14, x : x + 14] += 110
            mask[y : y + 14, x : x + 14] = 1
        Image.fromarray(np.clip(array, 0, 255).astype(np.uint8)).save(project / f"data/x/{number}.png")
        record: dict[str, Any] = {"image_path": f"data/x/{number}.png", "patient": f"p{number}"}
        if masks:
            Image.fromarray(mask).save(project / f"data/x/m{number}.png")
            record["mask_path"] = f"data/x/m{number}.png" if ill else None
        else:
            record["abnormal"] = ill
        records.append(record)
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/test.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text(json.dumps({"lesion": 1} if masks else {"anomaly": 0}))
    return records


def small_plan(
    backbone: dict[str, Any], engine: str = "fewshot", target: str = "states", **overrides: Any
) -> dict[str, Any]:
    """A plan as plan.py writes it."""
    settings = {"protocol": "m3b", "shots": None, "draws": 2, "epochs": 6, "lr": 1e-3, "scale": 20.0, "compare": False,
                "adapters": None, **overrides}  # fmt: skip
    prompts = {
        "object": "image",
        "normal": ["healthy {}"],
        "abnormal": ["{} with lesion"],
        "templates": ["a photo of the {}"],
    }
    return {
        "task": "detection", "engine": engine, "target": target, "classes": ["lesion"], "labels": {"lesion": 1}, "dims": 2,
        "backbone": backbone, "fewshot": settings, "prompts": prompts,
        "ordinary": {"width": 4, "lr": 2e-3, "epochs": 6, "size": SIDE, **NORM},
        "batch": 8, "device": "cpu", "validation_share": 0.25, "seed": 0, "channel_names": None,
    }  # fmt: skip
