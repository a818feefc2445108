"""Language models and image towers of local transformers folders (safetensors), also of folders with both, such as MedGemma and LLaVA.
Nothing is downloaded; without `weights` only the configuration is read."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

VISION_KEY = "vision_config"


def has_image_tower(folder: str) -> bool:
    """Return whether a folder has an image tower in addition to its language model."""
    return hasattr(_read_config(folder), VISION_KEY)


def load_language_model(folder: str, weights: bool) -> Any:
    """Return the causal language model of a folder, in float32."""
    from transformers import AutoModelForCausalLM

    config = _read_config(folder)
    text = config.get_text_config()
    if not weights:
        return AutoModelForCausalLM.from_config(text).float()
    if text is config:
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True).float()
    model_of_both = _load_vision_language_model(folder)
    model = AutoModelForCausalLM.from_config(text)
    model.base_model.load_state_dict(model_of_both.get_decoder().state_dict())
    model.get_output_embeddings().load_state_dict(model_of_both.get_output_embeddings().state_dict())
    model.tie_weights()
    return model.float()


def load_image_model(folder: str, weights: bool) -> nn.Module:
    """Return the vision model of a folder: (B, 3, H, W) to maps (B, C, h, w) or tokens (B, C, N); of a vision-language model, the
    tokens for its language model."""
    from transformers import AutoModel

    config = _read_config(folder)
    if hasattr(config, VISION_KEY) and hasattr(config, "text_config"):
        return _ImageTower(folder, config, weights)
    if weights:
        return _ImageModel(AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True))
    return _ImageModel(AutoModel.from_config(config))


def read_image_side(folder: str) -> int:
    """Return the side in pixels of the images that a folder's image tower was trained on."""
    return int(getattr(_read_config(folder), VISION_KEY).image_size)


def _read_config(folder: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, local_files_only=True)


def _load_vision_language_model(folder: str) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(folder, local_files_only=True, use_safetensors=True)


class _ImageModel(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model(pixel_values=x).last_hidden_state
        return features if features.ndim == 4 else features.transpose(1, 2)


class _ImageTower(nn.Module):
    """Image tower and projector of a vision-language model, without the language model."""

    def __init__(self, folder: str, config: Any, weights: bool) -> None:
        super().__init__()
        from transformers import AutoModelForImageTextToText

        if weights:
            model_of_both = _load_vision_language_model(folder)
        else:  # a minimal language model, since it is discarded
            config = copy.deepcopy(config)
            config.get_text_config().num_hidden_layers = 1
            model_of_both = AutoModelForImageTextToText.from_config(config)
        if not hasattr(model_of_both.base_model, "get_image_features"):
            raise SystemExit(
                f"{folder}: transformers gives no image features of a {config.model_type}; use another image_model"
            )
        self.model = model_of_both.base_model.float()
        self.model.language_model = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.model.get_image_features(pixel_values=x).pooler_output
        tokens = features if isinstance(features, torch.Tensor) else torch.stack(list(features))
        return tokens.transpose(1, 2)
