"""Segments medical images with the files of this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "mask": file (relative to OUT.json's folder), "volumes_ml": {class: v or null}}; "masks": {class: file}
instead if the training cases had one mask file per class. Masks have the geometry of their image. Also "out_of_distribution":
whether the image is unlike the training images, and if so "why". An image that cannot be read gives {"image", "error"}; the others
are predicted and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

MODEL_FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(MODEL_FOLDER))

import numpy as np
import torch
from recipe import Recipe

from m3b.dataset.formats import DataError, Image, grey_values, select_channels, write_labels
from m3b.training.channels import read_case
from m3b.training.ensemble import build_ensemble
from m3b.training.out_of_distribution import judge_image
from m3b.training.prediction_calls import (
    ImagePath,
    file_stem,
    first_path,
    format_notes,
    parse_call,
    safe_name,
    write_answers,
)
from m3b.training.recipe import get_recipe, use_recipe
from m3b.training.resampling import resize
from m3b.training.segmentation.network import build_model
from m3b.training.segmentation.scoring import predict_case
from m3b.training.stored_networks import load_networks, load_weights
from m3b.training.volume_cache import prepare_image

use_recipe(Recipe())

MAX_PARALLEL_IMAGES = 4
"""Maximum 2D images that are predicted at the same time on a processor. Threads that share a narrow network mostly wait for each
other: beside other programs, twelve images took 86 s with two threads each, and 5 s with one (two cores, a load of 15)."""
PredictMask = Callable[[Image, str, int], np.ndarray]


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], PredictMask]:
    """Return config.json, and a function of an image to the decided mask of its classes."""
    config: dict[str, Any] = json.loads((MODEL_FOLDER / "config.json").read_text())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    plan = config["plan"]
    if device.type == "cpu" and plan.get("precision") == "bf16" and not _has_bf16():
        plan["precision"] = "fp32"
    if config["engine"] == "nnunet":
        from m3b.training.segmentation.nnunet_steps import load_nnunet, predict_nnunet

        network = load_nnunet(config["nnunet"], load_weights(MODEL_FOLDER, config)[0], device)
        return config, lambda image, name, batch: predict_nnunet(network, image, config["nnunet"], device, name)
    models = load_networks(MODEL_FOLDER, config, lambda: build_model(plan, with_loss=False))
    network = build_ensemble(models, averaging_of(plan)).to(device)

    def run(image: Image, name: str, batch: int) -> np.ndarray:
        array = torch.from_numpy(prepare_image(image, plan, name))
        logits = predict_case(network, array, {**plan, "batch": batch}, device).numpy()
        return decide_on_grid(logits, image.array.shape[1:], bool(plan["overlap"]))

    return config, run


def averaging_of(plan: dict[str, Any]) -> str:
    """Return what several networks average; outputs of rows of structures are values, not probabilities."""
    if plan.get("chains"):
        return "values"
    return "chances" if plan["overlap"] else "classes"


def _has_bf16() -> bool:
    """Return whether this CPU has bfloat16 instructions; without them bfloat16 is slower."""
    check = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(check and check())


def decide_on_grid(logits: np.ndarray, shape: tuple[int, ...], overlap: bool) -> np.ndarray:
    """Convert logits at the network's resolution to uint8 at the image's: class ids, or (K, *shape) of 0/1."""
    size = shape if len(shape) == logits.ndim - 1 else (*shape, 1)
    if overlap:
        return np.stack([resize(logit[None], size)[0] > 0 for logit in logits]).astype(np.uint8).reshape(-1, *shape)
    largest, mask = resize(logits[:1], size)[0].copy(), np.zeros(size, np.uint8)
    for class_id in range(1, len(logits)):  # one class at a time: all of them together may not fit into memory
        logit = resize(logits[class_id : class_id + 1], size)[0]
        higher = logit > largest
        mask[higher], largest[higher] = class_id, logit[higher]
    return mask.reshape(shape)


def predict(paths: Sequence[ImagePath], masks: str | Path = "masks", batch: int = 2) -> list[dict[str, Any]]:
    """Return one dict per path, in order; mask files are written to `masks` (their paths are relative to its parent)."""
    return list(stream(paths, batch, Path(masks), Path(masks).resolve().parent))


def stream(
    paths: Sequence[ImagePath], batch: int = 2, masks: Path = Path("masks"), home: Path = Path()
) -> Iterator[dict[str, Any]]:
    """Yield the predictions of `predict` one by one; paths of masks are relative to `home`."""
    masks.mkdir(parents=True, exist_ok=True)
    width = max(4, len(str(len(paths))))

    def predict_one(number: int, path: ImagePath) -> dict[str, Any]:
        try:
            answer = _predict_image(path, masks / f"{number:0{width}d}_{file_stem(first_path(path))}", batch)
        except (DataError, MemoryError) as error:
            return {"image": path, "error": str(error) or "out of memory"}
        for key in ("mask", "masks"):
            if key in answer:
                answer[key] = _make_relative(answer[key], home)
        return {"image": path, **answer}

    config, cores = load()[0], torch.get_num_threads()
    parallel = max(1, min(cores, MAX_PARALLEL_IMAGES, len(paths))) if _predicts_pictures_on_cpu(config) else 1
    with ThreadPoolExecutor(parallel, initializer=torch.set_num_threads, initargs=(cores // parallel,)) as pool:
        yield from pool.map(predict_one, range(1, len(paths) + 1), paths)


def _predicts_pictures_on_cpu(config: dict[str, Any]) -> bool:
    """Return whether images are so small that the threads of one would mostly wait for each other."""
    return config["engine"] == "trainer" and int(config["plan"]["dims"]) == 2 and not torch.cuda.is_available()


def _make_relative(place: Any, home: Path) -> Any:
    if isinstance(place, dict):
        return {name: _make_relative(file, home) for name, file in place.items()}
    return Path(os.path.relpath(place.resolve(), home.resolve())).as_posix()


def _predict_image(path: ImagePath, stem: Path, batch: int) -> dict[str, Any]:
    config, run = load()
    path = select_channels(path, config["plan"].get("channel_names"))
    image = read_case(path, config["plan"])
    notes = {
        **format_notes(image),
        **judge_image(grey_values(image, config["plan"].get("bits")), config.get("familiar")),
    }
    mask, values = get_recipe().postprocess(config["plan"], run(image, str(path), batch)), config["labels"]
    voxel_ml = float(np.prod(image.spacing)) / 1000 if image.spacing and image.dims == 3 else None
    classes = config["classes"]
    overlap = bool(config["plan"]["overlap"])
    layers = (mask[k] if overlap else (mask == k + 1).astype(np.uint8) for k in range(len(classes)))
    kinds = len(classes) + 1
    counts = mask.reshape(len(mask), -1).sum(1) if overlap else np.bincount(mask.ravel(), minlength=kinds)[1:]
    volumes = {
        n: None if voxel_ml is None else round(int(c) * voxel_ml, 4) for n, c in zip(classes, counts, strict=True)
    }
    if config["multi_label"]:
        names = [safe_name(name) for name in classes]
        names = [name if names.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(names)]
        files = [write_labels(layer, path, f"{stem}_{name}") for layer, name in zip(layers, names, strict=True)]
        return {"masks": dict(zip(classes, files, strict=True)), "volumes_ml": volumes, **notes}
    table = np.array([0, *(int(values[name]) for name in classes)])
    return {"mask": write_labels(table[mask], path, stem), "volumes_ml": volumes, **notes}


def main(argv: list[str] | None = None) -> int:
    call = parse_call(argv, __doc__, 2, MODEL_FOLDER)
    return write_answers(stream(call.paths, call.batch, call.masks, call.base_folder), call)


if __name__ == "__main__":
    sys.exit(main())
