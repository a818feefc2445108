"""Reports of medical images, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "findings", "impression"}, "" for a section that the model was not taught. The views of one
study are a list of paths in the --list file. With each "out_of_distribution": whether the first view is unlike those that the
model learnt from, and then "why". A study that cannot be read gives {"image", "error"}; the others are
finished and the exit code is 1. Of several views, those that cannot be read are passed over. No masks are written.
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
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from recipe import Recipe

from m3b.dataset.formats import DataError, grey_values
from m3b.training.channels import read_case
from m3b.training.out_of_distribution import judged
from m3b.training.prediction_calls import ImagePath, noted, read_call, write_answers
from m3b.training.preprocess import preprocess
from m3b.training.recipe import use_recipe
from m3b.training.report.network import build_model, inside
from m3b.training.report.tokenizer import Words

use_recipe(Recipe())


@lru_cache(maxsize=1)
def read_config() -> dict[str, Any]:
    """config.json."""
    found: dict[str, Any] = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], Any, Words, torch.device]:
    """The plan, the network in evaluation mode, its tokenizer, and its device."""
    from safetensors.torch import load_file

    config = read_config()
    plan = inside(config["plan"], HERE)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(plan, with_loss=False)
    model.load_state_dict(load_file(str(HERE / config["weights"][0])))
    return plan, model.to(device).eval(), Words.load(HERE / "tokenizer.json"), device


def read_study(path: ImagePath, plan: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(V, C, H, W[, D]) float32 and (V,) which views there are. Raises DataError if none can be read."""
    pixels, there, _ = seen_study(path, plan)
    return pixels, there


def seen_study(path: ImagePath, plan: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """As `read_study`, and whether the first view is unlike those that the model learnt from."""
    unlike: dict[str, Any] = {}
    room = int(plan["views"])
    pixels = np.zeros((room, int(plan["channels"]), *plan["size"]), np.float32)
    there = np.zeros(room, np.float32)
    views = list(path)[:room] if isinstance(path, list | tuple) else [path]
    faults = []
    for view in views:
        try:
            image = read_case(view, plan)
            pixels[int(there.sum())] = preprocess(image, plan, str(view))
            unlike = unlike or {
                **noted(image),
                **judged(grey_values(image, plan.get("bits")), read_config().get("familiar")),
            }
            there[int(there.sum())] = 1.0
        except DataError as error:
            faults.append(str(error))
    if not there.any():
        raise DataError("; ".join(faults) or "an empty list of views is no study")
    for fault in faults:
        print(f"view passed over: {fault}", file=sys.stderr)
    return pixels, there, unlike


def predict(paths: Sequence[ImagePath], batch: int = 8) -> list[dict[str, Any]]:
    """One dict a study, in order; a study is a path (file, folder, `archive.npz#key[index]`) or a list of its views."""
    return list(stream(paths, batch))


def stream(paths: Sequence[ImagePath], batch: int = 8) -> Iterator[dict[str, Any]]:
    """As `predict`, batch after batch."""
    plan, model, words, device = load()
    for start in range(0, len(paths), batch):
        answers: list[dict[str, Any]] = []
        studies: list[tuple[np.ndarray, np.ndarray]] = []
        for path in paths[start : start + batch]:
            try:
                pixels, there, unlike = seen_study(path, plan)
                studies.append((pixels, there))
                answers.append({"image": path, **unlike})
            except DataError as error:
                answers.append({"image": path, "error": str(error)})
        texts: Iterator[dict[str, str]] = iter(())
        if studies:
            batched, present = (torch.from_numpy(np.stack(part)).to(device) for part in zip(*studies, strict=True))
            texts = iter(model.write(batched, present, plan, words))
        for answer in answers:
            yield answer if "error" in answer else answer | next(texts)


def main(argv: list[str] | None = None) -> int:
    call = read_call(argv, __doc__, 8, HERE)
    return write_answers(stream(call.paths, call.batch), call)


if __name__ == "__main__":
    sys.exit(main())
