"""Measure the peak memory of one 512 x 512 x 512 volume with a mask: preprocessing, training steps and prediction.

    python benchmarks/large_volume.py [--side 512] [--classes 3] [--spacing 1.0] [--patch 96] [--filters 16]

Each stage is a process of its own; the figure is the largest resident set of that process (`ru_maxrss`), the import of torch included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

TEMPLATE = Path(__file__).resolve().parents[1] / "resources" / "templates" / "segmentation"


def write_case(folder: Path, side: int, classes: int) -> None:
    """Write a CT of noise in two balls, and a mask of `classes` balls."""
    rng = np.random.default_rng(0)
    image = np.empty((side,) * 3, np.int16)
    for z in range(side):
        image[..., z] = rng.normal(40, 60, (side, side))
    mask = np.zeros((side,) * 3, np.uint8)
    grid = np.ogrid[:side, :side, :side]
    for k in range(classes):
        centre = rng.uniform(0.25, 0.75, 3) * side
        inside = sum((axis - c) ** 2 for axis, c in zip(grid, centre, strict=True)) < (side / 10) ** 2
        mask[inside], image[inside] = k + 1, image[inside] + 100 * (k + 1)
    affine = np.diag([0.8, 0.8, 0.8, 1])
    nibabel.save(nibabel.Nifti1Image(image, affine), folder / "image.nii.gz")
    nibabel.save(nibabel.Nifti1Image(mask, affine), folder / "mask.nii.gz")


def make_plan(options: argparse.Namespace) -> dict[str, Any]:
    names = [f"organ {k}" for k in range(options.classes)]
    return {
        "dims": 3, "channels": 1, "spacing": [options.spacing] * 3, "extent": None, "longest": None, "side": None,
        "intensity": {"mode": "window", "low": -160, "high": 240, "mean": 0.5, "std": 0.2}, "classes": names,
        "labels": {name: k + 1 for k, name in enumerate(names)}, "overlap": False, "patch": [options.patch] * 3,
        "batch": 2, "foreground": 0.5, "pad_value": 0.0, "mirror": [], "refine": {}, "chains": [], "workers": 0,
        "network": {"name": "unet", "filters": [options.filters << k for k in range(4)], "strides": [[1] * 3] + [[2] * 3] * 3,
                    "kernels": [[3] * 3] * 4, "residual": False, "deep_supervision": True, "dropout": 0.0},
        "loss": {"voxel": "ce", "alpha": 0.5, "beta": 0.5, "weights": None}, "task": "segmentation", "engine": "trainer",
        "precision": "fp32", "device": "cpu", "cache": options.cache,
    }  # fmt: skip


def preprocess(folder: Path, plan: dict[str, Any]) -> None:
    from m3b.training.volume_cache import build_volumes

    records = [{"image_path": "image.nii.gz", "mask_path": "mask.nii.gz", "patient": "p"}]
    build_volumes(records, plan, folder / "cache", str(folder))


def train(folder: Path, plan: dict[str, Any]) -> None:
    import torch

    from m3b.training.segmentation.dataset import Patches
    from m3b.training.segmentation.network import build_model
    from m3b.training.volume_cache import build_volumes

    records = [{"image_path": "image.nii.gz", "mask_path": "mask.nii.gz", "patient": "p"}]
    volumes = build_volumes(records, plan, folder / "cache", str(folder))
    patches, model = Patches(volumes, np.array([0]), records, plan), build_model(plan)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        batch = torch.utils.data.default_collate([patches[0] for _ in range(plan["batch"])])
        loss = model(pixel_values=batch["pixel_values"], labels=batch["labels"])["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def predict(folder: Path, plan: dict[str, Any]) -> None:
    import predict as script
    import torch

    from m3b.training.channels import read_case
    from m3b.training.segmentation.network import build_model
    from m3b.training.segmentation.scoring import predict_case
    from m3b.training.volume_cache import prepare_image

    image = read_case(str(folder / "image.nii.gz"), plan)
    model = build_model(plan).eval()
    logits = predict_case(model, torch.from_numpy(prepare_image(image, plan)), plan, torch.device("cpu")).numpy()
    mask = script.decide_on_grid(logits, image.array.shape[1:], bool(plan["overlap"]))
    assert mask.shape[-3:] == image.array.shape[1:]


STAGES: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "preprocess": preprocess,
    "train": train,
    "predict": predict,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--spacing", type=float, default=1.0)
    parser.add_argument("--patch", type=int, default=96)
    parser.add_argument("--filters", type=int, default=16, help="of the first level of the U-Net")
    parser.add_argument("--cache", default="auto")
    parser.add_argument("--stages", nargs="*", default=list(STAGES))
    parser.add_argument("--worker", nargs=2, metavar=("STAGE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        stage, folder = options.worker
        sys.path.insert(0, ".")
        began = time.perf_counter()
        STAGES[stage](Path(folder), make_plan(options))
        gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"gib": round(gib, 2), "seconds": round(time.perf_counter() - began, 1)}))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_case(Path(folder), options.side, options.classes)
        print("| stage | peak GiB | seconds |\n|---|---|---|", flush=True)
        for stage in options.stages:
            done = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--worker", stage, folder],
                capture_output=True,
                text=True,
                cwd=TEMPLATE,
            )
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            figures = json.loads(done.stdout.splitlines()[-1])
            print(f"| {stage} | {figures['gib']} | {figures['seconds']} |", flush=True)


if __name__ == "__main__":
    main()
