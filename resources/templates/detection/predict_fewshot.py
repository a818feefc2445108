"""Finds anomalies in pictures with the files of this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "anomaly_score": 0..1}; for a few-shot detector also "anomaly_map": a file with an integer from 0 to 1000
per pixel (higher is more abnormal), and if it was trained on masks "masks": {class: file} and "boxes" around their regions. Files
are written into DIR (default: `masks` next to OUT). An image that cannot be read gives {"image", "error"}; the others are predicted
and the exit code is 1.
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

from m3b.dataset.formats import box_to_file, read_image, write_labels
from m3b.training.detection.boxes import apply_logistic
from m3b.training.detection.fewshot.build import build_network
from m3b.training.detection.fewshot.combination import ensemble_probabilities, mean_logit, predict_probabilities
from m3b.training.detection.fewshot.scoring import (
    combine_signals,
    compute_signals,
    enlarge_map,
    lesion_probabilities,
    to_map_levels,
    to_probabilities,
)
from m3b.training.detection.fewshot.views import prepare_picture
from m3b.training.lesions import lesion_boxes
from m3b.training.prediction_calls import ImagePath, parse_call, predict_each, safe_name, write_answers
from m3b.training.recipe import use_recipe

use_recipe(Recipe())


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], Any, list[torch.Tensor], list[Any]]:
    """Return config.json, the network in evaluation mode, its memory of normal patches, and the ordinary networks of an ensemble."""
    from safetensors.torch import load_file

    config: dict[str, Any] = json.loads((MODEL_FOLDER / "config.json").read_text())
    state = load_file(str(MODEL_FOLDER / config["weights"][0]))
    banks = [state.pop(f"bank.{level}") for level in range(int(config.get("banks", 0)))]
    plan = config["plan"]
    plan["backbone"]["mid"] = config.get("mid", 0)
    ordinary = []
    for number in range(int(config.get("together", {}).get("copies", 0))):
        start = f"ordinary.{number}."
        copy = build_network({**plan, "engine": "image"})
        copy.load_state_dict(
            {name.removeprefix(start): state.pop(name) for name in list(state) if name.startswith(start)}
        )
        ordinary.append(copy.eval())
    model = build_network(plan, weights=False)
    model.load_state_dict(state)
    if plan["engine"] == "fewshot":
        model.adapting, model.pixels = bool(config["adapting"]), bool(config["pixels"])
    return config, model.eval(), banks, ordinary


def predict(paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks") -> list[dict[str, Any]]:
    """Return one dict per path, in order."""
    return list(stream(paths, batch, masks))


def stream(
    paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks", base: str | Path = "."
) -> Iterator[dict[str, Any]]:
    """Yield the predictions of `predict` one by one; files go to the folder `masks`, their paths are relative to `base`."""
    config, *_ = load()
    yield from predict_each(paths, config["plan"], masks, lambda path, stem: _predict_image(path, stem, Path(base)))


def _predict_image(path: ImagePath, stem: Path, base: Path) -> dict[str, Any]:
    config, model, banks, ordinary = load()
    image, plan = read_image(path), config["plan"]
    small = prepare_picture(image, plan["ordinary"], str(path))[None]
    if plan["engine"] == "image":
        probability = apply_logistic(predict_probabilities(model, [small]), config["image_calibration"])
        return {"anomaly_score": round(float(probability[0]), 6)}
    picture = prepare_picture(image, plan["backbone"], str(path))[None]
    score, deviation_map = combine_signals(compute_signals(model, [picture], banks), config)
    if ordinary:
        probability = ensemble_probabilities(score, mean_logit(ordinary, [small]), config["together"])
    else:
        probability = to_probabilities(score, config)
    grid = enlarge_map(deviation_map[0], image.array.shape[1:])
    stem.parent.mkdir(parents=True, exist_ok=True)
    answer: dict[str, Any] = {
        "anomaly_score": round(float(probability[0]), 6),
        "anomaly_map": _write_file(to_map_levels(grid), path, f"{stem}_map", base),
    }
    return answer | (_masks_and_boxes(grid, config, path, stem, base) if config["target"] == "masks" else {})


def _masks_and_boxes(
    grid: np.ndarray, config: dict[str, Any], path: ImagePath, stem: Path, base: Path
) -> dict[str, Any]:
    """Return masks and boxes of the regions above the threshold."""
    probabilities = lesion_probabilities(config["plan"], grid, float(config["map_threshold"]))
    mask, (name,) = probabilities >= 0.5, config["classes"]
    boxes = []
    for corners, probability in lesion_boxes(mask, probabilities):
        corners_in_file = [float(corners[k]) for k in (1, 0, 3, 2)] if len(corners) == 4 else box_to_file(corners, path)
        boxes.append({"label": name, "box": [round(v, 2) for v in corners_in_file], "score": round(probability, 5)})
    masks = {name: _write_file(mask.astype(np.uint8), path, f"{stem}_{safe_name(name)}", base)}
    return {"masks": masks, "boxes": sorted(boxes, key=lambda box: -box["score"])[:300]}


def _write_file(array: np.ndarray, path: ImagePath, stem: str, base: Path) -> str:
    return os.path.relpath(write_labels(array, path, stem), base).replace(os.sep, "/")


def main(argv: list[str] | None = None) -> int:
    call = parse_call(argv, __doc__, 2, MODEL_FOLDER)
    return write_answers(stream(call.paths, call.batch, call.masks, call.base_folder), call)


if __name__ == "__main__":
    sys.exit(main())
