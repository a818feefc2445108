"""Writes a tiny example, so that the project runs as shipped: bright discs against bright squares, two a patient.

python example/make_example.py [--cases 60] [--dims 2] [--size 32] [--multi-label] [--task diagnosis|grading|regression]

A grading is of how bright the disc is in four steps, a regression of the very brightness.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "diagnosis": {"disc": 0, "square": 1},
    "grading": {"0": 0, "1": 1, "2": 2, "3": 3},
    "regression": {"brightness (grey levels)": 0},
    "survival": {"survival (months)": 0},
}
"""Task -> label_dict.json."""


def _graded(rng: np.random.Generator) -> tuple[float, dict[str, Any]]:
    grade = int(rng.integers(0, 4))
    return 40.0 * grade, {"grade": str(grade)}


def _valued(rng: np.random.Generator) -> tuple[float, dict[str, Any]]:
    value = float(rng.uniform(20, 120))
    return value, {"value": round(value, 2)}


def _followed(rng: np.random.Generator) -> tuple[float, dict[str, Any]]:
    """The brighter the sooner; a third is lost before."""
    bright = float(rng.uniform(20, 120))
    time, end = rng.exponential(60 * np.exp((70 - bright) / 25)), rng.uniform(10, 200)
    return bright, {"time": round(float(min(time, end)), 2), "event": bool(time <= end)}


TARGET_DRAWERS: dict[str, Callable[[np.random.Generator], tuple[float, dict[str, Any]]]] = {
    "grading": _graded,
    "regression": _valued,
    "survival": _followed,
}
"""Task -> how bright a disc is, and what its record says of that."""


def draw(rng: np.random.Generator, dims: int, size: int, classes: set[str], bright: float | None = None) -> np.ndarray:
    """uint8 (size,)*dims: noise, with a disc (ball) and/or a square (cube) somewhere."""
    image = rng.normal(80, 12, (size,) * dims)
    grid = np.stack(np.meshgrid(*[np.arange(size)] * dims, indexing="ij"))
    radius = size * rng.uniform(0.15, 0.22)
    for name in sorted(classes):
        centre = rng.uniform(size * 0.3, size * 0.7, (dims, *(1,) * dims))
        is_inside = np.linalg.norm(grid - centre, axis=0) < radius * 1.1
        if name == "square":
            is_inside = np.abs(grid - centre).max(axis=0) < radius
        image[is_inside] += (70 if name == "square" else 100) if bright is None else bright
    return np.clip(image, 0, 255).astype(np.uint8)


def make_example(
    folder: Path, cases: int = 60, dims: int = 2, size: int = 32, multi_label: bool = False, task: str = "diagnosis"
) -> None:
    """`folder/data/example/*` and `folder/Datapath/{train,test,label_dict}.json`; a fifth is for the test."""
    rng = np.random.default_rng(0)
    place = folder / "data" / "example"
    place.mkdir(parents=True, exist_ok=True)
    records = []
    for number in range(cases):
        labels = {("disc", "square")[number // 2 % 2]}
        if multi_label:
            labels = {name for bit, name in enumerate(("disc", "square")) if number // 2 >> bit & 1}
        draw_target = TARGET_DRAWERS.get(task)
        bright, target = draw_target(rng) if draw_target else (None, {"labels": sorted(labels)})
        image = draw(rng, dims, size, {"disc"} if draw_target else labels, bright)
        name = f"case_{number:03d}.png" if dims == 2 else f"case_{number:03d}.npy"
        if dims == 2:
            from PIL import Image

            Image.fromarray(image).save(place / name)
        else:
            np.save(place / name, image)
        records.append({"image_path": f"data/example/{name}", **target, "patient": f"p{number // 2}"})
    cut = cases - cases // 10 * 2
    (folder / "Datapath").mkdir(exist_ok=True)
    for name, part in (("train", records[:cut]), ("test", records[cut:])):
        (folder / "Datapath" / f"{name}.json").write_text(json.dumps(part, indent=1))
    (folder / "Datapath" / "label_dict.json").write_text(json.dumps(NAMES[task]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--dims", type=int, default=2, choices=(2, 3))
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--multi-label", action="store_true")
    parser.add_argument("--task", choices=NAMES, default="diagnosis")
    options = parser.parse_args()
    make_example(Path(), options.cases, options.dims, options.size, options.multi_label, options.task)
    print("wrote data/example and Datapath/*.json")
