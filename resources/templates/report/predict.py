"""Reports of medical images, from the files in this folder alone.

    python predict.py IMAGE... [--list FILE.json] [-o OUT.json] [--masks DIR] [--batch N]

Each prediction: {"image", "findings", "impression"}, "" for a section that the model has not learnt. The views of one study are a list
of paths in the --list file. Each has "out_of_distribution": whether the first view is unlike the training images, then with "why". A
study that cannot be read gives {"image", "error"}; the others are finished and the exit code is 1. Views that cannot be read are
skipped. No masks are written.
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
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from recipe import Recipe

from m3b.dataset.formats import DataError, grey_values
from m3b.training.channels import read_case
from m3b.training.out_of_distribution import judge_image
from m3b.training.prediction_calls import ImagePath, format_notes, parse_call, write_answers
from m3b.training.preprocess import preprocess
from m3b.training.recipe import use_recipe
from m3b.training.report.network import build_model, resolve_folders
from m3b.training.report.tokenizer import ReportTokenizer

use_recipe(Recipe())


@lru_cache(maxsize=1)
def read_config() -> dict[str, Any]:
    """Return config.json."""
    config: dict[str, Any] = json.loads((MODEL_FOLDER / "config.json").read_text(encoding="utf-8"))
    return config


@lru_cache(maxsize=1)
def load() -> tuple[dict[str, Any], Any, ReportTokenizer, torch.device]:
    """Return the plan, the network in evaluation mode, its tokenizer, and its device."""
    from safetensors.torch import load_file

    config = read_config()
    plan = resolve_folders(config["plan"], MODEL_FOLDER)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(plan, with_loss=False)
    model.load_state_dict(load_file(str(MODEL_FOLDER / config["weights"][0])))
    return plan, model.to(device).eval(), ReportTokenizer.load(MODEL_FOLDER / "tokenizer.json"), device


def read_study(path: ImagePath, plan: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return (V, C, H, W[, D]) float32, (V,) 1 for existing views, and notes with the OOD flag of the first view.

    Raises:
        DataError: no view can be read.
    """
    reliability: dict[str, Any] = {}
    max_views = int(plan["views"])
    pixels = np.zeros((max_views, int(plan["channels"]), *plan["size"]), np.float32)
    view_mask = np.zeros(max_views, np.float32)
    views = list(path)[:max_views] if isinstance(path, list | tuple) else [path]
    errors = []
    for view in views:
        try:
            image = read_case(view, plan)
            pixels[int(view_mask.sum())] = preprocess(image, plan, str(view))
            reliability = reliability or {
                **format_notes(image),
                **judge_image(grey_values(image, plan.get("bits")), read_config().get("familiar")),
            }
            view_mask[int(view_mask.sum())] = 1.0
        except DataError as error:
            errors.append(str(error))
    if not view_mask.any():
        raise DataError("; ".join(errors) or "a study without views")
    for error_text in errors:
        print(f"view skipped: {error_text}", file=sys.stderr)
    return pixels, view_mask, reliability


def predict(paths: Sequence[ImagePath], batch: int = 8) -> list[dict[str, Any]]:
    """Return one dict a study, in order; a study is a path (file, folder, `archive.npz#key[index]`) or a list of its views."""
    return list(stream(paths, batch))


def stream(paths: Sequence[ImagePath], batch: int = 8) -> Iterator[dict[str, Any]]:
    """Yield the reports batch by batch."""
    plan, model, tokenizer, device = load()
    for start in range(0, len(paths), batch):
        answers: list[dict[str, Any]] = []
        studies: list[tuple[np.ndarray, np.ndarray]] = []
        for path in paths[start : start + batch]:
            try:
                pixels, view_mask, reliability = read_study(path, plan)
                studies.append((pixels, view_mask))
                answers.append({"image": path, **reliability})
            except DataError as error:
                answers.append({"image": path, "error": str(error)})
        texts: Iterator[dict[str, str]] = iter(())
        if studies:
            batched, present = (torch.from_numpy(np.stack(part)).to(device) for part in zip(*studies, strict=True))
            texts = iter(model.write(batched, present, plan, tokenizer))
        for answer in answers:
            yield answer if "error" in answer else answer | next(texts)


def main(argv: list[str] | None = None) -> int:
    call = parse_call(argv, __doc__, 8, MODEL_FOLDER)
    return write_answers(stream(call.paths, call.batch), call)


if __name__ == "__main__":
    sys.exit(main())
