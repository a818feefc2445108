"""From a folder to the segmenter that lies in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from m3b import untrusted
from m3b.errors import WrongUse
from m3b.interactive.segmenter import Segmenter

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
FETCH = "Fetch one with `hf download MODEL --local-dir DIR`, or train a small one with `m3b interactive train`."


def open_segmenter(folder: str | Path, device: str = "auto") -> Segmenter:
    """Open the segmenter in a local folder: `config.json` and weights as safetensors.

    Known are SAM and MedSAM (`model_type` sam), SAM 2 and MedSAM 2 (sam2, sam2_video), the tracker of SAM 3 (sam3_tracker,
    sam3_tracker_video) in the layout of transformers, and m3b's own small network (m3b_promptnet). Nothing is fetched.

    Args:
        device: `cpu`, `cuda`, `cuda:1`, or `auto`.

    Raises:
        WrongUse: there is no such folder, no config.json, another kind of model, no safetensors, or weights that do not
            fit the network; the message says what to do.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise WrongUse(f"There is no segmenter folder {path}. {FETCH}")
    config = _config(path)
    model_type = str(config.get("model_type", ""))
    if model_type not in KINDS:
        raise WrongUse(
            f"{path / 'config.json'} is of the model_type {model_type or 'unknown'!r}; promptable segmenters are: {', '.join(KINDS)}."
        )
    if not list(path.glob("*.safetensors")):
        pickle_names = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES)
        problem = (
            f"only pickled ones ({pickle_names[0]}), which can run code when they are opened"
            if pickle_names
            else "none at all"
        )
        raise WrongUse(
            f"{path} holds no weights as safetensors, {problem}. Convert them on a machine that you trust: "
            "load with transformers and save_pretrained(DIR, safe_serialization=True)."
        )
    return KINDS[model_type](path, config, _device(device))


def _config(place: Path) -> dict[str, Any]:
    file = place / "config.json"
    try:
        stored = file.resolve()  # a Hugging Face snapshot links to its blobs
        config = untrusted.read_json(stored.parent, stored.name)
    except FileNotFoundError:
        raise WrongUse(f"{place} holds no config.json, so it is no model folder. {FETCH}") from None
    except (OSError, ValueError) as error:
        raise WrongUse(f"{file} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise WrongUse(f"{file} is no JSON object.")
    return config


def _device(name: str) -> str:
    if name != "auto":
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _sam(place: Path, config: dict[str, Any], device: str) -> Segmenter:
    from m3b.interactive.segmenters.sam import Sam

    return Sam(place, str(config["model_type"]), device)


def _open_promptnet(path: Path, config: dict[str, Any], device: str) -> Segmenter:
    from m3b.interactive.segmenters.promptnet import PromptNetSegmenter

    return PromptNetSegmenter(path, config, device)


KINDS: dict[str, Callable[[Path, dict[str, Any], str], Segmenter]] = {
    "sam": _sam, "sam2": _sam, "sam2_video": _sam, "sam3_tracker": _sam, "sam3_tracker_video": _sam,
    "m3b_promptnet": _open_promptnet,
}  # fmt: skip
