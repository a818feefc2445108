"""Finds anomalies in medical images with the files of this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "boxes": [{"label", "box", "score"}], "anomaly_score": 0..1}; for a model trained on masks also "masks":
{class: path relative to OUT's folder}, written into DIR (default: `masks` next to OUT). Also "out_of_distribution": whether the
image is unlike the training images, and if so "why". An image that cannot be read gives {"image", "error"}; the others are
predicted and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

MODEL_FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(MODEL_FOLDER))

import numpy as np
import torch
from recipe import Recipe

from m3b.dataset.formats import Image, box_to_file, grey_values, write_labels
from m3b.training.channels import read_case
from m3b.training.detection.boxes import apply_logistic, image_score
from m3b.training.detection.inference import find_boxes, mask_probabilities, resample_probabilities
from m3b.training.detection.network import build_model
from m3b.training.ensemble import build_ensemble
from m3b.training.lesions import lesion_boxes, remove_small_lesions
from m3b.training.out_of_distribution import judge_image
from m3b.training.prediction_calls import ImagePath, format_notes, parse_call, predict_each, safe_name, write_answers
from m3b.training.recipe import use_recipe
from m3b.training.stored_networks import load_networks
from m3b.training.volume_cache import prepare_image

use_recipe(Recipe())

TOP_VOXELS = 10
"""Voxels with the highest probability that make an image's anomaly score, as in the training."""
MIN_PROBABILITY = 0.01
"""Boxes with a lower probability are not written."""
MAX_BOXES = 300
"""Boxes around lesions of masks that are written at most, by score; the masks contain all lesions."""


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], torch.nn.Module, torch.device]:
    """Return config.json, the network in evaluation mode, and its device."""
    config: dict[str, Any] = json.loads((MODEL_FOLDER / "config.json").read_text())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = load_networks(MODEL_FOLDER, config, lambda: build_model(config["plan"], with_loss=False))
    return config, average_networks(models, config).to(device), device


def average_networks(models: Sequence[torch.nn.Module], config: dict[str, Any]) -> torch.nn.Module:
    """Return the networks of all folds as one: probabilities and distances of boxes are averaged."""
    return build_ensemble(models, "chances", len(config["classes"]))


def predict(paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks") -> list[dict[str, Any]]:
    """Return one dict per path, in order; a path is a file, a folder, a list of slices, or `archive.npz#key[index]`."""
    return list(stream(paths, batch, masks))


def stream(
    paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks", base: str | Path = "."
) -> Iterator[dict[str, Any]]:
    """Yield the predictions of `predict` one by one; mask files go to the folder `masks`, their paths are relative to `base`."""
    config, _, _ = load()

    def answer(path: ImagePath, stem: Path) -> dict[str, Any]:
        return (
            _predict_boxes(path, batch)
            if config["target"] == "boxes"
            else _predict_masks(path, batch, stem, Path(base))
        )

    yield from predict_each(paths, config["plan"], masks, answer)


def _predict_boxes(path: ImagePath, batch: int) -> dict[str, Any]:
    config, model, device = load()
    image = read_case(path, config["plan"])
    array = prepare_image(image, config["plan"], str(path))
    boxes, scores, labels = find_boxes(model, array, config["plan"], device, batch)
    probabilities = apply_logistic(scores, config["calibration"])
    scale = _grid_scale(image, array.shape[1:])
    detections = []
    for box, probability, label in zip(boxes, probabilities, labels, strict=True):
        if probability >= MIN_PROBABILITY:
            corners = _to_file_coordinates(box * np.concatenate([scale, scale]), path, int(config["plan"]["dims"]))
            detections.append(
                {"label": config["classes"][int(label)], "box": corners, "score": round(float(probability), 5)}
            )
    score = apply_logistic(np.array([image_score(probabilities)]), config["image_calibration"])[0]
    return {
        "boxes": detections,
        "anomaly_score": round(float(score), 6),
        **format_notes(image),
        **judge_image(grey_values(image, config["plan"].get("bits")), config.get("familiar")),
    }


def _grid_scale(image: Image, size: Sequence[int]) -> np.ndarray:
    """Return the pixels of the image per pixel of the working grid, along each axis."""
    shape = image.array.shape[1:]
    shape = (*shape, 1) if len(shape) < len(size) else shape
    return np.array(shape, float) / np.array(size, float)


def _to_file_coordinates(box: np.ndarray, path: ImagePath, dims: int) -> list[float]:
    """Convert a box of the image's array to coordinates of its file; a single slice for a 3D model counts as a volume."""
    if len(box) == 4 and dims == 2:
        return [round(float(box[corner]), 2) for corner in (1, 0, 3, 2)]
    if len(box) == 4:
        box = np.array([*box[:2], 0.0, *box[2:], 1.0])
    return [round(float(v), 2) for v in box_to_file([float(v) for v in box], path)]


def _predict_masks(path: ImagePath, batch: int, stem: Path, base: Path) -> dict[str, Any]:
    config, model, device = load()
    image = read_case(path, config["plan"])
    array = prepare_image(image, config["plan"], str(path))
    grid_probabilities = mask_probabilities(model, array, config["plan"], device, batch)
    highest = np.sort(grid_probabilities.reshape(-1))[::-1][:TOP_VOXELS]
    score = apply_logistic(np.array([highest.mean()]), config["image_calibration"])[0]
    probabilities = resample_probabilities(grid_probabilities, image.array.shape[1:])
    voxel_ratio = np.prod(image.array.shape[1:]) / np.prod(
        grid_probabilities.shape[1:]
    )  # minimum sizes are in voxels of the working grid
    files, boxes = {}, []
    stem.parent.mkdir(parents=True, exist_ok=True)
    for k, name in enumerate(config["classes"]):
        min_size = round(float(config["least_sizes"][k]) * float(voxel_ratio))
        mask = remove_small_lesions(probabilities[k] >= float(config["thresholds"][k]), min_size)
        file = write_labels(mask.astype(np.uint8), path, f"{stem}_{safe_name(name)}")
        files[name] = os.path.relpath(file, base).replace(os.sep, "/")
        for corners, lesion_score in lesion_boxes(mask, probabilities[k]):
            corners_in_file = _to_file_coordinates(np.array(corners), path, int(config["plan"]["dims"]))
            boxes.append({"label": name, "box": corners_in_file, "score": round(lesion_score, 5)})
    best_boxes = sorted(boxes, key=lambda box: -box["score"])[:MAX_BOXES]
    return {
        "masks": files,
        "boxes": best_boxes,
        "anomaly_score": round(float(score), 6),
        **format_notes(image),
        **judge_image(grey_values(image, config["plan"].get("bits")), config.get("familiar")),
    }


def main(argv: list[str] | None = None) -> int:
    call = parse_call(argv, __doc__, 2, MODEL_FOLDER)
    return write_answers(stream(call.paths, call.batch, call.masks, call.base_folder), call)


if __name__ == "__main__":
    sys.exit(main())
