"""Open the segmenter in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from m3b.errors import UsageError
from m3b.interactive.segmenter import Segmenter
from m3b.isolation import untrusted

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
FETCH_HINT = "Fetch one with `hf download MODEL --local-dir DIR`, or train a small one with `m3b interactive train`."


def open_segmenter(folder: str | Path, device: str = "auto") -> Segmenter:
    """Open the segmenter in a local folder: `config.json` and weights as safetensors.

    Supported are SAM and MedSAM (`model_type` sam), SAM 2 and MedSAM 2 (sam2, sam2_video), the tracker of SAM 3
    (sam3_tracker, sam3_tracker_video) in the layout of transformers, and m3b's own small network (m3b_promptnet).
    Nothing is downloaded.

    Args:
        device: `cpu`, `cuda`, `cuda:1`, or `auto`.

    Raises:
        UsageError: there is no such folder, no config.json, another kind of model, no safetensors, or weights that do
            not fit the network; the message says what to do.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UsageError(f"There is no segmenter folder {path}. {FETCH_HINT}")
    config = _read_config(path)
    model_type = str(config.get("model_type", ""))
    if model_type not in OPENERS:
        raise UsageError(
            f"{path / 'config.json'} is of the model_type {model_type or 'unknown'!r}; promptable segmenters are: "
            f"{', '.join(OPENERS)}."
        )
    if not list(path.glob("*.safetensors")):
        pickle_names = sorted(file.name for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES)
        problem = (
            f"only pickled ones ({pickle_names[0]}), which can run code when they are opened"
            if pickle_names
            else "none at all"
        )
        raise UsageError(
            f"{path} holds no weights as safetensors, {problem}. Convert them on a machine that you trust: "
            "load with transformers and save_pretrained(DIR, safe_serialization=True)."
        )
    return OPENERS[model_type](path, config, _choose_device(device))


def _read_config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    try:
        stored = file.resolve()  # a Hugging Face snapshot links to its blobs
        config = untrusted.read_json(stored.parent, stored.name)
    except FileNotFoundError:
        raise UsageError(f"{path} holds no config.json, so it is no model folder. {FETCH_HINT}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise UsageError(f"{file} is no JSON object.")
    return config


def _choose_device(name: str) -> str:
    if name != "auto":
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _open_sam(path: Path, config: dict[str, Any], device: str) -> Segmenter:
    from m3b.interactive.segmenters.sam import SamSegmenter

    return SamSegmenter(path, str(config["model_type"]), device)


def _open_promptnet(path: Path, config: dict[str, Any], device: str) -> Segmenter:
    from m3b.interactive.segmenters.promptnet import PromptNetSegmenter

    return PromptNetSegmenter(path, config, device)


OPENERS: dict[str, Callable[[Path, dict[str, Any], str], Segmenter]] = {
    "sam": _open_sam, "sam2": _open_sam, "sam2_video": _open_sam, "sam3_tracker": _open_sam, "sam3_tracker_video": _open_sam,
    "m3b_promptnet": _open_promptnet,
}  # fmt: skip
