"""What a folder says of the network in it: format, config, input size, mean and deviation; and its weights as safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from m3b.training.detection.fewshot.convnet import KIND

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
TEXTED = ("clip", "siglip", "siglip2")
TEXTLESS = ("dinov2", "dinov3_vit")
OPEN_CLIP = "open_clip_config.json"
CLIP_NORM = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
"""Mean and deviation of CLIP, where a folder says nothing of its own."""


class BackboneError(ValueError):
    """A folder that is no usable backbone; says which file and why."""


def describe(folder: str | Path, size: int = 0) -> dict[str, Any]:
    """What is needed to build the network again without its weights: format, config, input size, mean and deviation.

    Args:
        size: side of the input in pixels; 0 takes the network's own.

    Raises:
        BackboneError: no such folder, no safetensors, or no network that sees.
    """
    place = Path(folder)
    if not place.is_dir():
        raise BackboneError(f"{folder} is no folder. Give the folder of a vision model (backbone=FOLDER).")
    if (place / OPEN_CLIP).is_file():
        return _describe_open_clip(place, size)
    if not (place / "config.json").is_file():
        raise BackboneError(f"{folder} holds neither config.json (transformers) nor {OPEN_CLIP} (open_clip).")
    weights_in(place)
    config = json.loads((place / "config.json").read_text())
    kind = str(config.get("model_type") or "")
    if kind == KIND:
        side = size or int(config["size"])
        return {"format": KIND, "config": config, "size": side, "mean": config["mean"], "std": config["std"]}
    if kind not in (*TEXTED, *TEXTLESS):
        raise BackboneError(
            f"{folder}: model_type {kind!r} is no vision model that is known here; "
            f"{', '.join((*TEXTED, *TEXTLESS, KIND))} are."
        )
    inner = config.get("vision_config", config)
    side = size or int(inner.get("image_size") or 224)
    return {"format": "transformers", "config": config, "size": side, **_norm(place)}


def weights_in(place: Path, name: str = "model.safetensors") -> Path:
    """The weights of a folder.

    Raises:
        BackboneError: there are none as safetensors.
    """
    found = sorted(place.glob("*.safetensors"))
    if found:
        return place / name if (place / name).is_file() else found[0]
    pickled = sorted(one.name for ending in PICKLES for one in place.glob(ending))
    if pickled:
        raise BackboneError(
            f"{place}: the weights are a pickle ({pickled[0]}), which can run code when it is opened. Convert them to "
            f"{name} where you trust them; they are not loaded here."
        )
    raise BackboneError(f"{place} holds no weights: {name} is missing.")


def _norm(place: Path) -> dict[str, list[float]]:
    file = place / "preprocessor_config.json"
    said = json.loads(file.read_text()) if file.is_file() else {}
    return {"mean": said.get("image_mean") or CLIP_NORM["mean"], "std": said.get("image_std") or CLIP_NORM["std"]}


def _describe_open_clip(place: Path, size: int) -> dict[str, Any]:
    weights_in(place, "open_clip_model.safetensors")
    config = json.loads((place / OPEN_CLIP).read_text())
    model, said = config.get("model_cfg", config), config.get("preprocess_cfg", {})
    if "vision_cfg" not in model:
        raise BackboneError(f"{place}: {OPEN_CLIP} describes no vision tower (vision_cfg).")
    own = model["vision_cfg"].get("image_size", 224)
    norm = {"mean": said.get("mean") or CLIP_NORM["mean"], "std": said.get("std") or CLIP_NORM["std"]}
    side = size or int(own[0] if isinstance(own, list) else own)
    return {"format": "open_clip", "config": config, "size": side, **norm}
