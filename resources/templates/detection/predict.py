"""Anomalies in medical images, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "boxes": [{"label", "box", "score"}], "anomaly_score": 0..1}, with a model trained on masks
also "masks": {class: path relative to OUT's folder}, written into DIR (default: `masks` beside OUT). With each
"out_of_distribution": whether the image is unlike those that the model learnt from, and then "why". An image that cannot be read
gives {"image", "error"}; the others are finished and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import numpy as np
import torch
from recipe import Recipe

from m3b.dataset.formats import Image, box_to_file, grey_values, write_labels
from m3b.training.channels import read_case
from m3b.training.detection.boxes import apply_logistic, image_score
from m3b.training.detection.inference import find_boxes, mask_probabilities, to_grid
from m3b.training.detection.network import build_model
from m3b.training.ensemble import joined
from m3b.training.lesions import drop_small, lesion_boxes
from m3b.training.out_of_distribution import judged
from m3b.training.prediction_calls import ImagePath, answer_each, noted, plain, read_call, write_answers
from m3b.training.recipe import use_recipe
from m3b.training.volume_cache import prepare_image

use_recipe(Recipe())

TOP = 10  # as in the training: so many of the surest voxels make an image's anomaly score
FAINT = 0.01  # boxes below this chance of being right are not written
MOST = 300  # boxes around lesions of masks, the surest of them; the masks hold all


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], torch.nn.Module, torch.device]:
    """config.json, the network in evaluation mode, and its device."""
    from safetensors.torch import load_file

    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = [build_model(config["plan"], with_loss=False) for _ in config["weights"]]
    for model, name in zip(models, config["weights"], strict=True):
        model.load_state_dict(load_file(str(HERE / name)))
    return config, together(models, config).to(device), device


def together(models: Sequence[torch.nn.Module], config: dict[str, Any]) -> torch.nn.Module:
    """The networks of all folds as one: chances are averaged, and distances of boxes."""
    return joined(models, "chances", len(config["classes"]))


def predict(paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks") -> list[dict[str, Any]]:
    """One dict a path, in order; a path is a file, a folder, a list of slices, or `archive.npz#key[index]`."""
    return list(stream(paths, batch, masks))


def stream(
    paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks", beside: str | Path = "."
) -> Iterator[dict[str, Any]]:
    """As `predict`, image after image; mask files go to the folder `masks` and are named relative to `beside`."""
    config, _, _ = load()

    def answer(path: ImagePath, stem: Path) -> dict[str, Any]:
        return _boxes(path, batch) if config["target"] == "boxes" else _masks(path, batch, stem, Path(beside))

    yield from answer_each(paths, config["plan"], masks, answer)


def _boxes(path: ImagePath, batch: int) -> dict[str, Any]:
    config, model, device = load()
    image = read_case(path, config["plan"])
    array = prepare_image(image, config["plan"], str(path))
    boxes, scores, labels = find_boxes(model, array, config["plan"], device, batch)
    chances = apply_logistic(scores, config["calibration"])
    share = _share(image, array.shape[1:])
    found = []
    for box, chance, label in zip(boxes, chances, labels, strict=True):
        if chance >= FAINT:
            corners = _to_file(box * np.concatenate([share, share]), path, int(config["plan"]["dims"]))
            found.append({"label": config["classes"][int(label)], "box": corners, "score": round(float(chance), 5)})
    score = apply_logistic(np.array([image_score(chances)]), config["image_calibration"])[0]
    return {
        "boxes": found,
        "anomaly_score": round(float(score), 6),
        **noted(image),
        **judged(grey_values(image, config["plan"].get("bits")), config.get("familiar")),
    }


def _share(image: Image, size: Sequence[int]) -> np.ndarray:
    """How many pixels of the image one of the working grid is, each axis."""
    shape = image.array.shape[1:]
    shape = (*shape, 1) if len(shape) < len(size) else shape
    return np.array(shape, float) / np.array(size, float)


def _to_file(box: np.ndarray, path: ImagePath, dims: int) -> list[float]:
    """A box of the image's array in coordinates of its file; a single slice given to a 3D model counts as a volume."""
    if len(box) == 4 and dims == 2:
        return [round(float(box[place]), 2) for place in (1, 0, 3, 2)]
    if len(box) == 4:
        box = np.array([*box[:2], 0.0, *box[2:], 1.0])
    return [round(float(v), 2) for v in box_to_file([float(v) for v in box], path)]


def _masks(path: ImagePath, batch: int, stem: Path, beside: Path) -> dict[str, Any]:
    config, model, device = load()
    image = read_case(path, config["plan"])
    array = prepare_image(image, config["plan"], str(path))
    working = mask_probabilities(model, array, config["plan"], device, batch)
    flat = np.sort(working.reshape(-1))[::-1][:TOP]
    score = apply_logistic(np.array([flat.mean()]), config["image_calibration"])[0]
    chances = to_grid(working, image.array.shape[1:])
    grain = np.prod(image.array.shape[1:]) / np.prod(working.shape[1:])  # least sizes are in voxels of the working grid
    files, boxes = {}, []
    stem.parent.mkdir(parents=True, exist_ok=True)
    for k, name in enumerate(config["classes"]):
        least = round(float(config["least_sizes"][k]) * float(grain))
        mask = drop_small(chances[k] >= float(config["thresholds"][k]), least)
        file = write_labels(mask.astype(np.uint8), path, f"{stem}_{plain(name)}")
        files[name] = os.path.relpath(file, beside).replace(os.sep, "/")
        for corners, sure in lesion_boxes(mask, chances[k]):
            where = _to_file(np.array(corners), path, int(config["plan"]["dims"]))
            boxes.append({"label": name, "box": where, "score": round(sure, 5)})
    surest = sorted(boxes, key=lambda box: -box["score"])[:MOST]
    return {
        "masks": files,
        "boxes": surest,
        "anomaly_score": round(float(score), 6),
        **noted(image),
        **judged(grey_values(image, config["plan"].get("bits")), config.get("familiar")),
    }


def main(argv: list[str] | None = None) -> int:
    call = read_call(argv, __doc__, 2, HERE)
    return write_answers(stream(call.paths, call.batch, call.masks, call.beside), call)


if __name__ == "__main__":
    sys.exit(main())
