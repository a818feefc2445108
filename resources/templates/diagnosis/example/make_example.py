"""Writes a tiny example, so that the project runs as shipped: bright discs against bright squares, two a patient.

python example/make_example.py [--cases 60] [--dims 2] [--size 32] [--multi-label]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np


def draw(rng: np.random.Generator, dims: int, size: int, classes: set[str]) -> np.ndarray:
    """uint8 (size,)*dims: noise, with a disc (ball) and/or a square (cube) somewhere."""
    image = rng.normal(80, 12, (size,) * dims)
    grid = np.stack(np.meshgrid(*[np.arange(size)] * dims, indexing="ij"))
    radius = size * rng.uniform(0.15, 0.22)
    for name in sorted(classes):
        centre = rng.uniform(size * 0.3, size * 0.7, (dims, *(1,) * dims))
        inside = np.linalg.norm(grid - centre, axis=0) < radius * 1.1
        if name == "square":
            inside = np.abs(grid - centre).max(axis=0) < radius
        image[inside] += 70 if name == "square" else 100
    return np.clip(image, 0, 255).astype(np.uint8)


def make_example(folder: Path, cases: int = 60, dims: int = 2, size: int = 32, multi_label: bool = False) -> None:
    """`folder/data/example/*` and `folder/Datapath/{train,test,label_dict}.json`; a fifth is for the test."""
    rng = np.random.default_rng(0)
    place = folder / "data" / "example"
    place.mkdir(parents=True, exist_ok=True)
    records = []
    for number in range(cases):
        labels = {("disc", "square")[number // 2 % 2]}
        if multi_label:
            labels = {name for bit, name in enumerate(("disc", "square")) if number // 2 >> bit & 1}
        image = draw(rng, dims, size, labels)
        name = f"case_{number:03d}.png" if dims == 2 else f"case_{number:03d}.npy"
        if dims == 2:
            from PIL import Image

            Image.fromarray(image).save(place / name)
        else:
            np.save(place / name, image)
        records.append({"image_path": f"data/example/{name}", "labels": sorted(labels), "patient": f"p{number // 2}"})
    cut = cases - cases // 10 * 2
    (folder / "Datapath").mkdir(exist_ok=True)
    for name, part in (("train", records[:cut]), ("test", records[cut:])):
        (folder / "Datapath" / f"{name}.json").write_text(json.dumps(part, indent=1))
    (folder / "Datapath" / "label_dict.json").write_text(json.dumps({"disc": 0, "square": 1}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--dims", type=int, default=2, choices=(2, 3))
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--multi-label", action="store_true")
    chosen = parser.parse_args()
    make_example(Path(), chosen.cases, chosen.dims, chosen.size, chosen.multi_label)
    print("wrote data/example and Datapath/*.json")
