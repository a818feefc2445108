"""Writes a tiny example, so that the project runs as shipped: bright balls and darker boxes in noise, two images a patient.

python example/make_example.py [--cases 24] [--dims 3] [--size 24] [--objects]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

LABELS = {"box": 2, "ball": 5}


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Float image and uint8 mask with the values of LABELS; the ball lies over the box."""
    image, mask = rng.normal(80, 12, shape), np.zeros(shape, np.uint8)
    grid = np.stack(np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"))
    for name, light in (("box", 60), ("ball", 120)):
        centre = np.array([rng.uniform(n * 0.3, n * 0.7) for n in shape]).reshape(-1, *(1,) * len(shape))
        radius = min(shape) * rng.uniform(0.18, 0.28)
        distance = np.abs(grid - centre)
        is_inside = distance.max(axis=0) < radius if name == "box" else np.linalg.norm(distance, axis=0) < radius * 1.1
        image[is_inside] = rng.normal(80 + light, 12, int(is_inside.sum()))
        mask[is_inside] = LABELS[name]
    return np.clip(image, 0, 255), mask


def save(place: Path, name: str, image: np.ndarray, mask: np.ndarray, objects: bool) -> tuple[str, Any]:
    """Writes one case; paths relative to `place`."""
    if image.ndim == 2:
        from PIL import Image

        Image.fromarray(image.astype(np.uint8)).save(place / f"{name}.png")
        write, suffix = lambda array, file: Image.fromarray(array).save(file), "png"
    else:
        import nibabel as nib

        affine = np.diag([-1.0, 1.2, 1.5, 1.0])
        nib.save(nib.Nifti1Image(image.astype(np.float32), affine), place / f"{name}.nii.gz")
        write, suffix = lambda array, file: nib.save(nib.Nifti1Image(array, affine), file), "nii.gz"
    if not objects:
        write(mask, place / f"{name}_mask.{suffix}")
        return f"{name}.{suffix}", f"{name}_mask.{suffix}"
    files = {}
    for label, value in LABELS.items():
        files[label] = f"{name}_{label}.{suffix}"
        write((mask == value).astype(np.uint8) * 255, place / files[label])
    return f"{name}.{suffix}", files


def make_example(folder: Path, cases: int = 24, dims: int = 3, size: int = 24, objects: bool = False) -> None:
    """`folder/data/example/*` and `folder/Datapath/{train,test,label_dict}.json`; a fifth is for the test."""
    rng = np.random.default_rng(0)
    place = folder / "data" / "example"
    place.mkdir(parents=True, exist_ok=True)
    records = []
    for number in range(cases):
        shape = tuple(size + int(rng.integers(-2, 3)) for _ in range(dims))
        image, masks = save(place, f"case_{number:03d}", *draw(rng, shape), objects)
        if objects:
            paths: Any = {name: f"data/example/{file}" for name, file in masks.items()}
        else:
            paths = f"data/example/{masks}"
        records.append({"image_path": f"data/example/{image}", "mask_path": paths, "patient": f"p{number // 2}"})
    cut = cases - max(2, cases // 10 * 2)
    (folder / "Datapath").mkdir(exist_ok=True)
    for name, part in (("train", records[:cut]), ("test", records[cut:])):
        (folder / "Datapath" / f"{name}.json").write_text(json.dumps(part, indent=1))
    label_dict = dict.fromkeys(LABELS, 0) | {n: k + 1 for k, n in enumerate(LABELS)} if objects else LABELS
    (folder / "Datapath" / "label_dict.json").write_text(json.dumps(label_dict))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--dims", type=int, default=3, choices=(2, 3))
    parser.add_argument("--size", type=int, default=24)
    parser.add_argument("--objects", action="store_true", help="one mask file a class, as for overlapping classes")
    options = parser.parse_args()
    make_example(Path(), options.cases, options.dims, options.size, options.objects)
    print("wrote data/example and Datapath/*.json")
