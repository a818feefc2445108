"""Classes, grades or numbers of medical images, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json]

Of a model of studies a case of FILE.json is a list of views; images that are named here are studies of one view each.

Of a model that is given covariates a case of FILE.json is {"image": path, "age": 61, "sex": null}; images that are named here
share those of --with age=61 sex=F.

Each prediction: {"image", "probabilities": {class: p}, "prediction": class or grade, or the list of classes where an image
can have several}; of a number {"image", "value", "interval": [low, high], "interval_level"}; of survival {"image", "risk",
"survival": [[time, probability], ...], "median": time or null}. An image that cannot be read
gives {"image", "error"}; the others are finished and the exit code is 1.
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
from Model.network import build_model, outputs_of
from Utils.answers import answer_of, meaning
from Utils.calling import ImagePath, read_call, write_answers
from Utils.covariates import encode, split_case
from Utils.formats import ImageError
from Utils.preprocess import prepare
from Utils.studies import prepared
from Utils.tta import see


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], list[torch.nn.Module], torch.device]:
    """config.json, the networks in evaluation mode, and their device."""
    from safetensors.torch import load_file

    config: dict[str, Any] = json.loads((HERE / "config.json").read_text())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = []
    for name in config["weights"]:
        model = build_model(config["plan"], with_loss=False)
        model.load_state_dict(load_file(str(HERE / name)))
        models.append(model.to(device).eval())
    return config, models, device


@torch.no_grad()
def outputs(images: np.ndarray, covariates: np.ndarray | None = None, there: np.ndarray | None = None) -> np.ndarray:
    """(B, C, H, W[, D]) float32 to (B, K): each network's calibrated probabilities, or its numbers, averaged.

    `covariates` is (B, width) where the model is given some; of cases of several views `images` is (B, V, C, H, W[, D]) and `there`
    (B, V) 1 for those that a case has.
    """
    config, models, device = load()
    batch = torch.from_numpy(images).to(device)
    temperature, bias = (torch.tensor(config[key], device=device) for key in ("temperature", "bias"))
    beside = {"covariates": covariates, "views": there}
    more = {name: torch.from_numpy(table).to(device) for name, table in beside.items() if table is not None}
    total = torch.zeros(len(images), outputs_of(config["plan"]), device=device)
    for model in models:
        logits = torch.stack(
            [model(see(batch, view, there is not None), **more)["logits"].float() for view in config["views"]]
        ).mean(0)
        logits = logits / temperature + bias
        total += meaning(logits, config)
    return (total / len(models)).cpu().numpy()


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
        given: list[dict[str, Any]] = []
        there: list[Any] = []
        for case in paths[start : start + batch]:
            path = case["image"] if rules and isinstance(case, dict) and "image" in case else case
            try:
                values = split_case(case, rules)[1]
                pixels, seen = prepared(path, config["plan"], prepare)
                images.append(pixels)
                there.append(seen)
                given.append(values)
                answers.append({"image": path})
            except ImageError as error:
                answers.append({"image": path, "error": str(error)})
            except Exception as error:  # noqa: BLE001 - one strange file must not cost the others their answers
                answers.append({"image": path, "error": f"{path}: {type(error).__name__}: {error}"})
        several = np.stack(there) if images and there[0] is not None else None
        rows = iter(outputs(np.stack(images), encode(given, rules) if rules else None, several) if images else [])
        for answer in answers:
            yield answer if "error" in answer else {**answer, **answer_of(config, next(rows))}


def main(argv: list[str] | None = None) -> int:
    call = read_call(argv, __doc__, 8, HERE)
    return write_answers(predict(call.paths, call.batch), call)


if __name__ == "__main__":
    sys.exit(main())
