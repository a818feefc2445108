"""Classes, grades or numbers of medical images, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--saliency DIR]

If the model takes studies, a case of FILE.json is a list of views; images on the command line are studies of one view each.

If the model has covariates, a case of FILE.json is {"image": path, "age": 61, "sex": null}; images on the command line share those of
--with age=61 sex=F.

Each prediction: {"image", "probabilities": {class: p}, "prediction": class or grade, or the list of classes if an image can have
several, "prediction_set": classes that cannot be ruled out at "set_level", "abstains": whether the set differs from the decision}; of
a number {"image", "value", "interval": [low, high], "interval_level"}; of survival {"image", "risk", "survival": [[time, probability],
...], "median": time or null}. Each has {"out_of_distribution"}: whether the image is unlike the training images, then with "why"; and
"notes" if the reader has any, such as missing slices. An image that cannot be read gives {"image", "error"}; the others are finished
and the exit code is 1.

With --saliency, each also has {"saliency"}: "map", a file on the grid of the (first) image, or of the overview of a slide, with whole
numbers from 0 to 255, of what speaks for the answer; "method"; "class" unless the answer is a number; "score", the probability or
number; "score_hidden" and "score_elsewhere", what it is if the part from level "outline" on, or an equal part elsewhere, is hidden; or
"error".
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

from m3b.dataset.formats import DataError, Image, grey_values, read_image, select_channels, write_labels
from m3b.training.channels import read_case
from m3b.training.diagnosis.answers import format_answer, interpret_logits
from m3b.training.diagnosis.covariates import encode, split_case
from m3b.training.diagnosis.features import record_features
from m3b.training.diagnosis.linear_probe import LinearProbe, load_linear_probe
from m3b.training.diagnosis.network import build_delivered_model, list_single_networks
from m3b.training.diagnosis.saliency import (
    choose_target,
    compute_attention,
    compute_saliency,
    hide_part,
    hide_tiles,
    paint_tiles,
    read_score,
    shift_part,
)
from m3b.training.diagnosis.tiles import Bag, read_bag
from m3b.training.diagnosis.tta import apply_view
from m3b.training.diagnosis.views import list_images, prepare_case, view_count
from m3b.training.out_of_distribution import SLIDE_SIDE, feature_distance, judge_image
from m3b.training.prediction_calls import ImagePath, file_stem, first_path, format_notes, parse_call, write_answers
from m3b.training.preprocess import preprocess
from m3b.training.recipe import use_recipe
from m3b.training.stored_networks import load_networks

use_recipe(Recipe())


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], list[torch.nn.Module], torch.device]:
    """Return config.json, the networks in evaluation mode, and their device."""
    config: dict[str, Any] = json.loads((MODEL_FOLDER / "config.json").read_text())
    if len(config["weights"]) == 1:  # one network of several, measured on cases that it was not trained on
        config |= config.get("alone", {}).get(config["weights"][0], {})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = load_networks(MODEL_FOLDER, config, lambda: build_delivered_model(config["plan"]))
    return config, [model.to(device).eval() for model in models], device


@lru_cache(maxsize=1)
def load_probe() -> LinearProbe | None:
    """Return the linear probe of the model; None if it has none."""
    config, _, device = load()
    probe = load_linear_probe(MODEL_FOLDER, config)
    return None if probe is None else probe.to(device)


def compute_logits(
    models: Sequence[torch.nn.Module],
    batch: torch.Tensor,
    covariates: np.ndarray | None,
    view_mask: np.ndarray | None,
    transforms: Sequence[dict[str, Any]],
) -> torch.Tensor:
    """Return the calibrated mean logits (B, K) of networks and transforms, with those of the linear probe if there is one.

    `covariates` (B, width) are required if the model has some; with several views, `batch` is (B, V, C, H, W[, D]) and `view_mask`
    (B, V) 1 for existing views. Both may have one row for all images.
    """
    config, _, device = load()
    temperature, bias = (torch.tensor(config[key], device=device) for key in ("temperature", "bias"))
    extra_inputs = {"covariates": covariates, "views": view_mask}
    extra = {
        name: torch.from_numpy(table).to(device).expand(len(batch), -1)
        for name, table in extra_inputs.items()
        if table is not None
    }
    transformed = [apply_view(batch, transform, view_mask is not None) for transform in transforms]
    logits = torch.stack([model(view, **extra)["logits"].float() for view in transformed for model in models]).mean(0)
    if (probe := load_probe()) is not None:
        logits = probe(logits, batch, extra.get("views"))
    return logits / temperature + bias


@torch.no_grad()
def run_networks(
    images: np.ndarray, covariates: np.ndarray | None = None, view_mask: np.ndarray | None = None
) -> np.ndarray:
    """Return (B, K) calibrated probabilities, or numbers, of the mean logits of all networks for (B, C, H, W[, D]) float32 images;
    see `compute_logits`."""
    config, models, device = load()
    logits = compute_logits(models, torch.from_numpy(images).to(device), covariates, view_mask, config["views"])
    return interpret_logits(logits, config).cpu().numpy()


@lru_cache(maxsize=1)
def load_detectors() -> list[dict[str, np.ndarray]]:
    """Return the distribution of each network's features of training images; [] if it is unknown."""
    from safetensors.numpy import load_file

    file = MODEL_FOLDER / "familiar.safetensors"
    detectors: dict[int, dict[str, np.ndarray]] = {}
    for name, value in (load_file(str(file)) if file.is_file() else {}).items():
        number, _, part = name.partition(".")
        detectors.setdefault(int(number), {})[part] = value
    return [detectors[number] for number in sorted(detectors)]


def run_with_distances(
    images: np.ndarray, covariates: np.ndarray | None = None, view_mask: np.ndarray | None = None
) -> tuple[np.ndarray, list[float | None]]:
    """Return the outputs, and the distance of each image's features from those of training images; None if unknown."""
    config, models, _ = load()
    detectors = load_detectors()
    if not detectors:
        return run_networks(images, covariates, view_mask), [None] * len(images)
    with record_features(models, len(config["classes"])) as features:
        rows = run_networks(images, covariates, view_mask)
    pairs = list(zip(features, detectors, strict=False))
    if not pairs:
        return rows, [None] * len(images)
    return rows, [
        float(np.mean([feature_distance(rows_of_network[index], fit) for rows_of_network, fit in pairs]))
        for index in range(len(images))
    ]


def explain(
    answer: dict[str, Any],
    image: Image,
    pixels: np.ndarray,
    covariates: np.ndarray | None,
    view_mask: np.ndarray | None,
    bag: Bag | None,
    stem: Path,
    base: Path,
) -> dict[str, Any]:
    """Return `saliency` of an answer, and write its map; the inputs of the networks have one row.

    Args:
        bag: the tiles of a slide; None for other cases.
    """
    try:
        config, models, device = load()
        models = list_single_networks(models)
        dims, target = int(config["plan"]["dims"]), choose_target(config, answer)
        batch = torch.from_numpy(pixels).to(device)
        if bag is not None and view_mask is not None:
            saliency_map = compute_attention(models, batch, torch.from_numpy(view_mask).to(device))
            hidden = [(pixels, mask) for mask in hide_tiles(view_mask, saliency_map)]
            levels = paint_tiles(saliency_map, bag)
        else:
            saliency_map = compute_saliency(
                models,
                lambda images, models: compute_logits(models, images, covariates, view_mask, [{}]),
                batch,
                config,
                target,
            )
            parts = (saliency_map.marked, shift_part(saliency_map.marked))
            hidden = [(hide_part(batch, part, dims).cpu().numpy(), view_mask) for part in parts]
            levels = saliency_map.to_levels(image, config["plan"])
        scores = [read_score(answer, target)]
        for hidden_pixels, mask in hidden:
            row = run_networks(hidden_pixels, covariates, mask)[0]
            scores.append(read_score(format_answer(config, row), target))
        path = list_images(answer["image"])[0] if view_count(config["plan"]) > 1 else answer["image"]
        stem.parent.mkdir(parents=True, exist_ok=True)
        reference = select_channels(path, config["plan"].get("channel_names"))
        file = write_labels(levels, reference, stem)
        return {
            "map": os.path.relpath(file, base).replace(os.sep, "/"),
            "method": saliency_map.method,
            **({} if target is None else {"class": config["classes"][target]}),
            "outline": saliency_map.outline,
            **dict(zip(("score", "score_hidden", "score_elsewhere"), scores, strict=True)),
        }
    except Exception as error:  # noqa: BLE001 - an answer without an explanation is an answer
        return {"error": f"{type(error).__name__}: {error}"}


def predict(paths: Sequence[ImagePath], batch: int = 8, saliency: Path | None = None) -> list[dict[str, Any]]:
    """Return one dict a case, in order: a file, a folder, a list of slices, or `archive.npz#key[index]`; if the model has covariates,
    `{"image": one of these, "age": 61, ...}`; saliency maps are written into the folder `saliency`."""
    return list(stream(paths, batch, saliency))


def stream(
    paths: Sequence[ImagePath], batch: int = 8, saliency: Path | None = None, base: Path = Path()
) -> Iterator[dict[str, Any]]:
    """Yield the predictions batch by batch; paths of saliency maps are relative to `base`."""
    config, _, _ = load()
    rules = config["plan"].get("covariates") or []
    batch = 1 if config["plan"].get("tiles") else batch  # the tiles of a slide are a batch of their own
    for start in range(0, len(paths), batch):
        answers: list[dict[str, Any]] = []
        images: list[np.ndarray] = []
        first_views: list[Image] = []
        case_covariates: list[dict[str, Any]] = []
        view_masks: list[Any] = []
        bag: Bag | None = None

        def read_view(path: Any, plan: dict[str, Any], case_images: list[Image]) -> np.ndarray:
            image = read_case(path, plan)
            case_images.append(image)
            return preprocess(image, plan, str(path))

        for case in paths[start : start + batch]:
            path = case["image"] if rules and isinstance(case, dict) and "image" in case else case
            case_images: list[Image] = []
            try:
                values = split_case(case, rules)[1]
                if config["plan"].get("tiles"):
                    bag = read_bag(path, config["plan"])
                    pixels, mask = bag.pixels, bag.is_tile
                    case_images.append(read_image(f"{path}#overview={SLIDE_SIDE}"))
                else:
                    pixels, mask = prepare_case(
                        path,
                        config["plan"],
                        lambda path, plan, case_images=case_images: read_view(path, plan, case_images),
                    )
                images.append(pixels)
                view_masks.append(mask)
                case_covariates.append(values)
                first_views.append(case_images[0])  # the first view of a study
                answers.append({"image": path})
            except DataError as error:
                answers.append({"image": path, "error": str(error)})
            except Exception as error:  # noqa: BLE001 - a corrupt file must not affect the others
                answers.append({"image": path, "error": f"{path}: {type(error).__name__}: {error}"})
        stacked_masks = np.stack(view_masks) if images and view_masks[0] is not None else None
        extra_inputs = encode(case_covariates, rules) if rules else None
        rows, distances = (
            run_with_distances(np.stack(images), extra_inputs, stacked_masks) if images else (np.empty(0), [])
        )
        predicted = iter(range(len(images)))
        for number, answer in enumerate(answers, start=start + 1):
            if "error" in answer:
                yield answer
                continue
            index = next(predicted)
            image = first_views[index]
            answer |= format_answer(config, rows[index])
            answer |= format_notes(image)
            answer |= judge_image(
                grey_values(image, config["plan"].get("bits")), config.get("familiar"), distances[index]
            )
            if saliency is not None and "error" not in answer:
                inputs = [
                    table if table is None else table[index : index + 1] for table in (extra_inputs, stacked_masks)
                ]
                stem = saliency / f"{number:04d}_{file_stem(first_path(answer['image']))}"
                answer["saliency"] = explain(answer, image, images[index][None], *inputs, bag, stem, base)
            yield answer


def main(argv: list[str] | None = None) -> int:
    call = parse_call(argv, __doc__, 8, MODEL_FOLDER, has_saliency=True)
    return write_answers(stream(call.paths, call.batch, call.saliency, call.base_folder), call)


if __name__ == "__main__":
    sys.exit(main())
