"""Writes a tiny example, so that the project runs as shipped: bright discs and squares on noise, a third of it empty.

python example/make_example.py [--truth boxes|masks|objects] [--cases 40] [--dims 2] [--size 64]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = ("disc", "square")


def draw(rng: np.random.Generator, dims: int, size: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (size,)*dims image and (2, ...) bool: where discs (balls) and squares (cubes) lie; they may overlap."""
    image = rng.normal(80, 12, (size,) * dims)
    marked = np.zeros((2, *image.shape), bool)
    grid = np.stack(np.meshgrid(*[np.arange(size)] * dims, indexing="ij"))
    for _ in range(number):
        kind, radius = int(rng.integers(2)), size * rng.uniform(0.07, 0.14)
        centre = rng.uniform(size * 0.2, size * 0.8, (dims, *(1,) * dims))
        is_inside = np.linalg.norm(grid - centre, axis=0) < radius * 1.1
        if kind == 1:
            is_inside = np.abs(grid - centre).max(axis=0) < radius
        image[is_inside] += (100, 60)[kind]
        marked[kind] |= is_inside
    return np.clip(image, 0, 255).astype(np.uint8), marked


def save(array: np.ndarray, stem: Path) -> str:
    """PNG for pictures, NIfTI for volumes (array axes are rows, columns, slices)."""
    if array.ndim == 2:
        from PIL import Image

        Image.fromarray(array).save(f"{stem}.png")
        return f"{stem}.png"
    import nibabel as nib

    nib.save(nib.Nifti1Image(array.transpose(1, 0, 2), np.diag([-1.0, -1.0, 1.5, 1.0])), f"{stem}.nii.gz")
    return f"{stem}.nii.gz"


def boxes_of(marked: np.ndarray) -> list[dict[str, Any]]:
    """Boxes around connected shapes, x along columns, y along rows, upper corner behind the last pixel."""
    from scipy import ndimage

    boxes = []
    for name, mask in zip(CLASSES, marked, strict=True):
        for place in ndimage.find_objects(ndimage.label(mask)[0]):
            order = (place[1], place[0], *place[2:])
            boxes.append({"label": name, "box": [*(int(p.start) for p in order), *(int(p.stop) for p in order)]})
    return boxes


def make_example(
    folder: Path, truth: str = "boxes", cases: int = 40, dims: int = 2, size: int = 64, per_patient: int = 2
) -> None:
    """`folder/data/example/*` and `folder/Datapath/{train,test,label_dict}.json`; a fifth is for the test."""
    rng = np.random.default_rng(0)
    place = folder / "data" / "example"
    place.mkdir(parents=True, exist_ok=True)
    records = []
    for number in range(cases):
        image, marked = draw(rng, dims, size, number % 3)
        path = Path(save(image, place / f"case_{number:03d}")).relative_to(folder)
        record: dict[str, Any] = {"image_path": str(path), "patient": f"p{number // per_patient}"}
        if truth == "boxes":
            record["boxes"] = boxes_of(marked)
        elif not marked.any():
            record["mask_path"] = None
        elif truth == "objects":
            files = {
                n: save(m.astype(np.uint8), place / f"{n}_{number:03d}") for n, m in zip(CLASSES, marked, strict=True)
            }
            record["mask_path"] = {n: str(Path(f).relative_to(folder)) for n, f in files.items()}
        else:
            ids = np.where(marked[1], 4, np.where(marked[0], 1, 0)).astype(np.uint8)
            record["mask_path"] = str(Path(save(ids, place / f"mask_{number:03d}")).relative_to(folder))
        records.append(record)
    cut = cases - cases // 10 * 2
    (folder / "Datapath").mkdir(exist_ok=True)
    for name, part in (("train", records[:cut]), ("test", records[cut:])):
        (folder / "Datapath" / f"{name}.json").write_text(json.dumps(part, indent=1))
    numbers = {"boxes": (0, 1), "objects": (1, 2), "masks": (1, 4)}[truth]
    (folder / "Datapath" / "label_dict.json").write_text(json.dumps(dict(zip(CLASSES, numbers, strict=True))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", default="boxes", choices=("boxes", "masks", "objects"))
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--dims", type=int, default=2, choices=(2, 3))
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    make_example(Path(), options.truth, options.cases, options.dims, options.size)
    print("wrote data/example and Datapath/*.json")
