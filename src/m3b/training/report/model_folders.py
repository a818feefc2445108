"""Language models and image towers of local transformers folders (safetensors), also of one folder that holds both, as
MedGemma's and LLaVA's do. Nothing is downloaded; without `weights` the configuration alone is read."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

SEEING = "vision_config"


def sees(folder: str) -> bool:
    """Whether a folder holds an image tower beside its language model."""
    return hasattr(_configuration(folder), SEEING)


def language(folder: str, weights: bool) -> Any:
    """The causal language model of a folder, in float32."""
    from transformers import AutoModelForCausalLM

    config = _configuration(folder)
    text = config.get_text_config()
    if not weights:
        return AutoModelForCausalLM.from_config(text).float()
    if text is config:
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True).float()
    whole = _both(folder)
    model = AutoModelForCausalLM.from_config(text)
    model.base_model.load_state_dict(whole.get_decoder().state_dict())
    model.get_output_embeddings().load_state_dict(whole.get_output_embeddings().state_dict())
    model.tie_weights()
    return model.float()


def pictures(folder: str, weights: bool) -> nn.Module:
    """The vision model of a folder: (B, 3, H, W) to maps (B, C, h, w) or tokens (B, C, N); where a language model lies beside it,
    the tokens that are made for that one."""
    from transformers import AutoModel

    config = _configuration(folder)
    if hasattr(config, SEEING) and hasattr(config, "text_config"):
        return _Tower(folder, config, weights)
    if weights:
        return _Maps(AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True))
    return _Maps(AutoModel.from_config(config))


def side_of(folder: str) -> int:
    """Pixels along a side of the pictures that a folder's image tower was trained on."""
    return int(getattr(_configuration(folder), SEEING).image_size)


def _configuration(folder: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, local_files_only=True)


def _both(folder: str) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(folder, local_files_only=True, use_safetensors=True)


class _Maps(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(pixel_values=x).last_hidden_state
        return found if found.ndim == 4 else found.transpose(1, 2)


class _Tower(nn.Module):
    """The image side of a model of both: tower and projector, without the language model."""

    def __init__(self, folder: str, config: Any, weights: bool) -> None:
        super().__init__()
        from transformers import AutoModelForImageTextToText

        if weights:
            whole = _both(folder)
        else:  # the words are built small, since they are thrown away
            config = copy.deepcopy(config)
            config.get_text_config().num_hidden_layers = 1
            whole = AutoModelForImageTextToText.from_config(config)
        if not hasattr(whole.base_model, "get_image_features"):
            raise SystemExit(
                f"{folder}: transformers gives no image features of a {config.model_type}; name another image_model"
            )
        self.model = whole.base_model.float()
        self.model.language_model = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.model.get_image_features(pixel_values=x).pooler_output
        tokens = found if isinstance(found, torch.Tensor) else torch.stack(list(found))
        return tokens.transpose(1, 2)
