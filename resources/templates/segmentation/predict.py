"""Masks of medical images, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "mask": file (relative to OUT.json's folder), "volumes_ml": {class: v or null}}; "masks":
{class: file} instead if the training cases had a mask file a class. Masks have their image's own geometry. With each
"out_of_distribution": whether the image is unlike those that the model learnt from, and then "why". An image that cannot be
read gives {"image", "error"}; the others are finished and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import numpy as np
import torch
from recipe import Recipe

from m3b.dataset.formats import DataError, Image, grey_values, select_channels, write_labels
from m3b.training.channels import read_case
from m3b.training.ensemble import joined
from m3b.training.out_of_distribution import judged
from m3b.training.prediction_calls import ImagePath, first_of, noted, plain, read_call, stem_of, write_answers
from m3b.training.recipe import use_recipe
from m3b.training.resampling import resize
from m3b.training.segmentation.mask_cleaning import refined
from m3b.training.segmentation.network import build_model
from m3b.training.segmentation.scoring import run_whole
from m3b.training.volume_cache import prepare_image

use_recipe(Recipe())

Logits = Callable[[Image, str, int], np.ndarray]


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], Logits]:
    """config.json, and what turns an image into the decided array of its classes."""
    from safetensors.torch import load_file

    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    weights = [load_file(str(HERE / name)) for name in config["weights"]]
    plan = config["plan"]
    if device.type == "cpu" and plan.get("precision") == "bf16" and not _has_bf16():
        plan["precision"] = "fp32"
    if config["engine"] == "nnunet":
        from m3b.training.segmentation.nnunet_steps import load_nnunet, predict_nnunet

        network = load_nnunet(config["nnunet"], weights[0], device)
        return config, lambda image, name, batch: predict_nnunet(network, image, config["nnunet"], device, name)
    models = [build_model(plan, with_loss=False) for _ in weights]
    for model, own in zip(models, weights, strict=True):
        model.load_state_dict(own)
    network = joined(models, kind_of(plan)).to(device)

    def run(image: Image, name: str, batch: int) -> np.ndarray:
        array = torch.from_numpy(prepare_image(image, plan, name))
        logits = run_whole(network, array, {**plan, "batch": batch}, device).numpy()
        return decide_at(logits, image.array.shape[1:], bool(plan["overlap"]))

    return config, run


def kind_of(plan: dict[str, Any]) -> str:
    """How the answers of several networks are averaged; rows of structures have fields, no chances, in their channels."""
    if plan.get("chains"):
        return "values"
    return "chances" if plan["overlap"] else "classes"


def _has_bf16() -> bool:
    """Whether this processor computes in bfloat16; where it does not, that would be slower, not quicker."""
    check = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(check and check())


def decide_at(logits: np.ndarray, shape: tuple[int, ...], overlap: bool) -> np.ndarray:
    """Logits at the network's resolution to uint8 at the image's: places of classes, or (K, *shape) of 0/1."""
    size = shape if len(shape) == logits.ndim - 1 else (*shape, 1)
    if overlap:
        return np.stack([resize(part[None], size)[0] > 0 for part in logits]).astype(np.uint8).reshape(-1, *shape)
    best, chosen = resize(logits[:1], size)[0].copy(), np.zeros(size, np.uint8)
    for place in range(1, len(logits)):  # one class at a time: all of them enlarged might not fit into memory
        part = resize(logits[place : place + 1], size)[0]
        higher = part > best
        chosen[higher], best[higher] = place, part[higher]
    return chosen.reshape(shape)


def predict(paths: Sequence[ImagePath], masks: str | Path = "masks", batch: int = 2) -> list[dict[str, Any]]:
    """One dict a path, in order, mask files written to `masks` (their paths are given relative to its parent)."""
    return list(stream(paths, batch, Path(masks), Path(masks).resolve().parent))


def stream(
    paths: Sequence[ImagePath], batch: int = 2, masks: Path = Path("masks"), home: Path = Path()
) -> Iterator[dict[str, Any]]:
    """As `predict`, image after image; paths of masks relative to `home`."""
    masks.mkdir(parents=True, exist_ok=True)
    width = max(4, len(str(len(paths))))
    for number, path in enumerate(paths, start=1):
        try:
            answer = _one(path, masks / f"{number:0{width}d}_{stem_of(first_of(path))}", batch)
        except (DataError, MemoryError) as error:
            yield {"image": path, "error": str(error) or "out of memory"}
            continue
        for key in ("mask", "masks"):
            if key in answer:
                answer[key] = _relative(answer[key], home)
        yield {"image": path, **answer}


def _relative(place: Any, home: Path) -> Any:
    if isinstance(place, dict):
        return {name: _relative(file, home) for name, file in place.items()}
    return Path(os.path.relpath(place.resolve(), home.resolve())).as_posix()


def _one(path: ImagePath, stem: Path, batch: int) -> dict[str, Any]:
    config, run = load()
    path = select_channels(path, config["plan"].get("channel_names"))
    image = read_case(path, config["plan"])
    unlike = {**noted(image), **judged(grey_values(image, config["plan"].get("bits")), config.get("familiar"))}
    found, values = refined(run(image, str(path), batch), config["plan"]), config["labels"]
    unit = float(np.prod(image.spacing)) / 1000 if image.spacing and image.dims == 3 else None
    classes = config["classes"]
    overlap = bool(config["plan"]["overlap"])
    layers = (found[k] if overlap else (found == k + 1).astype(np.uint8) for k in range(len(classes)))
    kinds = len(classes) + 1
    counts = found.reshape(len(found), -1).sum(1) if overlap else np.bincount(found.ravel(), minlength=kinds)[1:]
    volumes = {n: None if unit is None else round(int(c) * unit, 4) for n, c in zip(classes, counts, strict=True)}
    if config["multi_label"]:
        names = [plain(name) for name in classes]
        names = [name if names.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(names)]
        files = [write_labels(one, path, f"{stem}_{name}") for one, name in zip(layers, names, strict=True)]
        return {"masks": dict(zip(classes, files, strict=True)), "volumes_ml": volumes, **unlike}
    table = np.array([0, *(int(values[name]) for name in classes)])
    return {"mask": write_labels(table[found], path, stem), "volumes_ml": volumes, **unlike}


def main(argv: list[str] | None = None) -> int:
    call = read_call(argv, __doc__, 2, HERE)
    return write_answers(stream(call.paths, call.batch, call.masks, call.beside), call)


if __name__ == "__main__":
    sys.exit(main())
