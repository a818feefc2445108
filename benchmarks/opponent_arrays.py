"""Write the cases of a project as arrays, for opponents that know nothing of m3b and run in environments of their own.

    python opponent_arrays.py PROJECT OUT.npz [WEIGHTS]

For `train`, `valid` and `test`: `images_PART` (N, 256, 256, 3) uint8, `labels_PART` (N, K) of 0 and 1 (not of the test part),
`features_PART` (N, F): histograms of oriented gradients (Dalal and Triggs, CVPR 2005) of 96 x 96 pixels and the picture at 24
x 24; with WEIGHTS, mean and maximum over the last map of that frozen backbone at 224 x 224. `seconds`: what the features
took.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SIDE, HOG_SIDE, SMALL_SIDE, FEATURE_SIDE = 256, 96, 24, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    from m3b.training.diagnosis.dataset import build_datasets
    from m3b.training.preprocess import prepare_image

    out, weights = Path(sys.argv[2]).resolve(), sys.argv[3] if len(sys.argv) > 3 else ""
    os.chdir(sys.argv[1])
    plan, test = json.loads(Path("plan.json").read_text()), json.loads(Path("test.json").read_text())
    if plan["task"] not in ("diagnosis", "grading") or plan["dims"] != 2 or plan["intensity"]["mode"] != "unit":
        raise SystemExit("the opponent takes pictures, of classes or grades")
    plan |= {"size": [SIDE, SIDE], "channels": 3, "folds": 1, "refit": False, "workers": 0}
    plan["intensity"] = {"mode": "unit", "mean": 0.0, "std": 1.0}
    tables: dict[str, Any] = {}
    for name, part in zip(("train", "valid"), build_datasets(plan), strict=True):
        items = [part[k] for k in range(len(part))]
        tables[f"images_{name}"] = to_bytes([item["pixel_values"].numpy() for item in items])
        tables[f"labels_{name}"] = np.stack([item["labels"].numpy() for item in items])
    tables["images_test"] = to_bytes([prepare_image(record["image_path"], plan) for record in test])
    start = time.monotonic()
    for name in ("train", "valid", "test"):
        features = [extract_gradients(image) for image in tables[f"images_{name}"]]
        tables[f"features_{name}"] = np.array(features, np.float32)
    if weights:
        body = build_frozen(weights, plan["task"])
        for name in ("train", "valid", "test"):
            rows = [tables[f"features_{name}"], extract_maps(body, tables[f"images_{name}"])]
            tables[f"features_{name}"] = np.hstack(rows)
    np.savez(out, **tables, seconds=time.monotonic() - start)


def to_bytes(images: list[np.ndarray]) -> np.ndarray:
    """Return (N, H, W, C) uint8 of (C, H, W) images from 0 to 1."""
    return np.stack([np.round(255 * image.clip(0, 1)).astype(np.uint8).transpose(1, 2, 0) for image in images])


def extract_gradients(image: np.ndarray) -> np.ndarray:
    from skimage.feature import hog
    from skimage.transform import resize

    grey, small = (resize(image, (side, side, 3), anti_aliasing=True) for side in (HOG_SIDE, SMALL_SIDE))
    gradients = hog(grey.mean(axis=2), orientations=9, pixels_per_cell=(12, 12), cells_per_block=(2, 2))
    return np.concatenate([gradients, small.ravel()])


def build_frozen(weights: str, task: str) -> Any:
    from m3b.training.pretrained.backbones import build_backbone
    from m3b.training.pretrained.starts import find_start

    return build_backbone({**find_start(weights, task, 2).network, "backbone_lr": 0}, 2, 3).eval()


def extract_maps(body: Any, images: np.ndarray) -> np.ndarray:
    """Return mean and maximum of the coarsest map of each image."""
    import torch

    rows = []
    for part in np.array_split(images, max(1, len(images) // 8)):
        pixels = (torch.from_numpy(part).float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
        pixels = torch.nn.functional.interpolate(
            pixels.permute(0, 3, 1, 2), FEATURE_SIDE, mode="bilinear", antialias=True
        )
        maps = body(pixels)[-1].flatten(2)
        rows.append(torch.cat([maps.mean(2), maps.amax(2)], dim=1).numpy())
    return np.concatenate(rows)


if __name__ == "__main__":
    main()
