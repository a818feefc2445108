"""Classes, grades or numbers of medical images, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json]

Of a model of studies a case of FILE.json is a list of views; images that are named here are studies of one view each.

Of a model that is given covariates a case of FILE.json is {"image": path, "age": 61, "sex": null}; images that are named here
share those of --with age=61 sex=F.

Each prediction: {"image", "probabilities": {class: p}, "prediction": class or grade, or the list of classes where an image
can have several, "prediction_set": classes that cannot be ruled out at "set_level", "abstains": whether that is more or less
than the decision}; of a number {"image", "value", "interval": [low, high], "interval_level"}; of survival {"image", "risk",
"survival": [[time, probability], ...], "median": time or null}. With each {"out_of_distribution"}: whether the image is unlike
those that the model learnt from, and then "why"; and "notes" if the reader has any, such as slices that are missing. An image
that cannot be read gives {"image", "error"}; the others are finished and the exit code is 1.
"""

from __future__ import annotations

import json
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

from m3b.dataset.formats import DataError, Image, grey_values
from m3b.training.channels import read_case
from m3b.training.diagnosis.answers import answer_of, meaning
from m3b.training.diagnosis.covariates import encode, split_case
from m3b.training.diagnosis.features import watched
from m3b.training.diagnosis.network import build_model
from m3b.training.diagnosis.tta import see
from m3b.training.diagnosis.views import prepared
from m3b.training.out_of_distribution import feature_distance, judged
from m3b.training.prediction_calls import ImagePath, noted, read_call, write_answers
from m3b.training.preprocess import preprocess
from m3b.training.recipe import use_recipe

use_recipe(Recipe())


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], list[torch.nn.Module], torch.device]:
    """config.json, the networks in evaluation mode, and their device."""
    from safetensors.torch import load_file

    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    if len(config["weights"]) == 1:  # one network of several, measured on cases that it was not trained on
        config |= config.get("alone", {}).get(config["weights"][0], {})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = []
    for name in config["weights"]:
        model = build_model(config["plan"], with_loss=False)
        model.load_state_dict(load_file(str(HERE / name)))
        models.append(model.to(device).eval())
    return config, models, device


@torch.no_grad()
def outputs(images: np.ndarray, covariates: np.ndarray | None = None, there: np.ndarray | None = None) -> np.ndarray:
    """(B, C, H, W[, D]) float32 to (B, K): the calibrated probabilities, or the numbers, of the mean logits of all networks.

    `covariates` is (B, width) where the model is given some; of cases of several views `images` is (B, V, C, H, W[, D]) and `there`
    (B, V) 1 for those that a case has.
    """
    config, models, device = load()
    batch = torch.from_numpy(images).to(device)
    temperature, bias = (torch.tensor(config[key], device=device) for key in ("temperature", "bias"))
    beside = {"covariates": covariates, "views": there}
    more = {name: torch.from_numpy(table).to(device) for name, table in beside.items() if table is not None}
    seen = [see(batch, view, there is not None) for view in config["views"]]
    logits = torch.stack([model(view, **more)["logits"].float() for model in models for view in seen]).mean(0)
    return meaning(logits / temperature + bias, config).cpu().numpy()


@lru_cache(maxsize=1)
def familiar() -> list[dict[str, np.ndarray]]:
    """What each network's features of training images were; empty where nothing is known of them."""
    from safetensors.numpy import load_file

    file = HERE / "familiar.safetensors"
    found: dict[int, dict[str, np.ndarray]] = {}
    for name, value in (load_file(str(file)) if file.is_file() else {}).items():
        number, _, part = name.partition(".")
        found.setdefault(int(number), {})[part] = value
    return [found[number] for number in sorted(found)]


def seen_outputs(
    images: np.ndarray, covariates: np.ndarray | None = None, there: np.ndarray | None = None
) -> tuple[np.ndarray, list[float | None]]:
    """As `outputs`, and how far each image's features lie from those of training images; None where nobody knows."""
    config, models, _ = load()
    known = familiar()
    if not known:
        return outputs(images, covariates, there), [None] * len(images)
    with watched(models, len(config["classes"])) as features:
        rows = outputs(images, covariates, there)
    pairs = list(zip(features, known, strict=False))
    if not pairs:
        return rows, [None] * len(images)
    return rows, [float(np.mean([feature_distance(one[at], fit) for one, fit in pairs])) for at in range(len(images))]


def predict(paths: Sequence[ImagePath], batch: int = 8) -> list[dict[str, Any]]:
    """One dict a case, in order: a file, a folder, a list of slices, or `archive.npz#key[index]`; of a model that is given covariates
    `{"image": one of these, "age": 61, ...}`."""
    return list(stream(paths, batch))


def stream(paths: Sequence[ImagePath], batch: int = 8) -> Iterator[dict[str, Any]]:
    """As `predict`, batch after batch."""
    config, _, _ = load()
    rules = config["plan"].get("covariates") or []
    for start in range(0, len(paths), batch):
        answers: list[dict[str, Any]] = []
        images: list[np.ndarray] = []
        shown: list[Image] = []
        given: list[dict[str, Any]] = []
        there: list[Any] = []

        def opened(path: Any, plan: dict[str, Any], looked: list[Image]) -> np.ndarray:
            image = read_case(path, plan)
            looked.append(image)
            return preprocess(image, plan, str(path))

        for case in paths[start : start + batch]:
            path = case["image"] if rules and isinstance(case, dict) and "image" in case else case
            looked: list[Image] = []
            try:
                values = split_case(case, rules)[1]
                pixels, seen = prepared(
                    path, config["plan"], lambda one, plan, looked=looked: opened(one, plan, looked)
                )
                images.append(pixels)
                there.append(seen)
                given.append(values)
                shown.append(looked[0])  # of a study its first view
                answers.append({"image": path})
            except DataError as error:
                answers.append({"image": path, "error": str(error)})
            except Exception as error:  # noqa: BLE001 - one strange file must not cost the others their answers
                answers.append({"image": path, "error": f"{path}: {type(error).__name__}: {error}"})
        several = np.stack(there) if images and there[0] is not None else None
        beside = encode(given, rules) if rules else None
        rows, far = seen_outputs(np.stack(images), beside, several) if images else (np.empty(0), [])
        told = iter(zip(rows, far, shown, strict=True))
        for answer in answers:
            if "error" in answer:
                yield answer
                continue
            row, distance, image = next(told)
            grey = grey_values(image, config["plan"].get("bits"))
            yield {
                **answer,
                **answer_of(config, row),
                **noted(image),
                **judged(grey, config.get("familiar"), distance),
            }


def main(argv: list[str] | None = None) -> int:
    call = read_call(argv, __doc__, 8, HERE)
    return write_answers(predict(call.paths, call.batch), call)


if __name__ == "__main__":
    sys.exit(main())
