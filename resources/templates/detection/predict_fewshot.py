"""Anomalies in pictures, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "anomaly_score": 0..1}; of a detector that looks at patches also "anomaly_map": a file with a
whole number from 0 to 1000 a pixel, higher is more abnormal, and where it was trained on masks "masks": {class: file} and
"boxes" around what they mark. Files are written into DIR (default: `masks` beside OUT). An image that cannot be read gives
{"image", "error"}; the others are finished and the exit code is 1.
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
from torch.nn import functional

from m3b.dataset.formats import box_to_file, read_image, write_labels
from m3b.training.detection.boxes import apply_logistic
from m3b.training.detection.fewshot.build import build
from m3b.training.detection.fewshot.combination import joint_chances, mean_logit, raw
from m3b.training.detection.fewshot.scoring import chances, combined, levels, look
from m3b.training.detection.fewshot.views import prepare
from m3b.training.lesions import lesion_boxes
from m3b.training.prediction_calls import ImagePath, answer_each, plain, read_call, write_answers


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], Any, list[torch.Tensor], list[Any]]:
    """config.json, the network in evaluation mode, its memory of normal patches, and the ordinary networks that are asked with it."""
    from safetensors.torch import load_file

    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    state = load_file(str(HERE / config["weights"][0]))
    banks = [state.pop(f"bank.{level}") for level in range(int(config.get("banks", 0)))]
    plan = config["plan"]
    plan["backbone"]["mid"] = config.get("mid", 0)
    ordinary = []
    for number in range(int(config.get("together", {}).get("copies", 0))):
        start = f"ordinary.{number}."
        copy = build({**plan, "engine": "image"})
        copy.load_state_dict(
            {name.removeprefix(start): state.pop(name) for name in list(state) if name.startswith(start)}
        )
        ordinary.append(copy.eval())
    model = build(plan, weights=False)
    model.load_state_dict(state)
    if plan["engine"] == "fewshot":
        model.adapting, model.pixels = bool(config["adapting"]), bool(config["pixels"])
    return config, model.eval(), banks, ordinary


def predict(paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks") -> list[dict[str, Any]]:
    """One dict a path, in order."""
    return list(stream(paths, batch, masks))


def stream(
    paths: Sequence[ImagePath], batch: int = 2, masks: str | Path = "masks", beside: str | Path = "."
) -> Iterator[dict[str, Any]]:
    """As `predict`, image after image; files go to the folder `masks` and are named relative to `beside`."""
    config, *_ = load()
    yield from answer_each(paths, config["plan"], masks, lambda path, stem: _answer(path, stem, Path(beside)))


def _answer(path: ImagePath, stem: Path, beside: Path) -> dict[str, Any]:
    config, model, banks, ordinary = load()
    image = read_image(path)
    shown = prepare(image, config["plan"]["backbone"], str(path))[None]
    if config["plan"]["engine"] == "image":
        return {"anomaly_score": round(float(apply_logistic(raw(model, shown), config["image_calibration"])[0]), 6)}
    score, away = combined(look(model, shown, banks), config)
    chance = (
        joint_chances(score, mean_logit(ordinary, shown), config["together"]) if ordinary else chances(score, config)
    )
    whole = functional.interpolate(torch.from_numpy(away).float()[None], size=image.array.shape[1:], mode="bilinear")
    grid = whole[0, 0].numpy()
    stem.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {
        "anomaly_score": round(float(chance[0]), 6),
        "anomaly_map": _file(levels(grid), path, f"{stem}_map", beside),
    }
    return found | (_marks(grid, config, path, stem, beside) if config["target"] == "masks" else {})


def _marks(grid: np.ndarray, config: dict[str, Any], path: ImagePath, stem: Path, beside: Path) -> dict[str, Any]:
    """Masks and boxes of what lies above the threshold."""
    mask, (name,) = grid >= float(config["map_threshold"]), config["classes"]
    sure = 1 / (1 + np.exp(-np.clip(grid - float(config["map_threshold"]), -30, 30)))
    boxes = []
    for corners, chance in lesion_boxes(mask, sure):
        place = [float(corners[k]) for k in (1, 0, 3, 2)] if len(corners) == 4 else box_to_file(corners, path)
        boxes.append({"label": name, "box": [round(v, 2) for v in place], "score": round(chance, 5)})
    masks = {name: _file(mask.astype(np.uint8), path, f"{stem}_{plain(name)}", beside)}
    return {"masks": masks, "boxes": sorted(boxes, key=lambda box: -box["score"])[:300]}


def _file(array: np.ndarray, path: ImagePath, stem: str, beside: Path) -> str:
    return os.path.relpath(write_labels(array, path, stem), beside).replace(os.sep, "/")


def main(argv: list[str] | None = None) -> int:
    call = read_call(argv, __doc__, 2, HERE)
    return write_answers(stream(call.paths, call.batch, call.masks, call.beside), call)


if __name__ == "__main__":
    sys.exit(main())
