"""A network that is taught by scribbles, with all other pixels ignored, is nearly as good as by full masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from segmentation_kit import assemble_segmentation, small_plan
from template_kit import call

SIDE = 64
TRAIN_CASES, TEST_CASES = 48, 24


def _draw_case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A picture of two or three bright discs, its mask, and its scribbles: a cross in each disc, and lines in the ground."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    mask, scribbles = np.zeros((SIDE, SIDE), np.uint8), np.zeros((SIDE, SIDE), bool)
    for _ in range(int(random.integers(2, 4))):
        row, column, radius = (int(random.integers(*span)) for span in ((16, SIDE - 16), (16, SIDE - 16), (8, 15)))
        mask[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = 1
        scribbles[row, column - radius + 1 : column + radius] = True
        scribbles[row - radius + 1 : row + radius, column] = True
    scribbles[random.integers(0, SIDE, 2), :] = True
    scribbles[:, random.integers(0, SIDE)] = True
    scribbles &= (mask == 1) | ~ndimage.binary_dilation(mask, iterations=1)
    image = 60 + 50 * ndimage.gaussian_filter(random.normal(0, 4, (SIDE, SIDE)), 4)
    image = image + 55 * mask + random.normal(0, 12, (SIDE, SIDE))
    return image.clip(0, 255).astype(np.uint8), mask, scribbles


def _train(folder: Path, kind: str) -> float:
    """Train on full masks, on scribbles, or on scribbles with everything else as background; return the Dice on full masks."""
    project = assemble_segmentation(folder)
    (project / "data").mkdir()
    (project / "Datapath").mkdir(exist_ok=True)
    records = []
    for seed in range(TRAIN_CASES):
        image, mask, scribbles = _draw_case(seed)
        labels = mask if kind == "full" else mask * scribbles
        for name, array in (("image", image), ("mask", labels), ("ignored", ~scribbles)):
            Image.fromarray(array.astype(np.uint8)).save(project / f"data/{name}{seed}.png")
        record = {"image_path": f"data/image{seed}.png", "mask_path": f"data/mask{seed}.png", "patient": f"p{seed}"}
        records.append(record | ({"ignore_path": f"data/ignored{seed}.png"} if kind == "scribbles" else {}))
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text('{"disc": 1}')
    small_plan(project, max_steps=400, folds=1, refit=False)
    call(project, "train.py")
    for seed in range(1000, 1000 + TEST_CASES):
        image, mask, _ = _draw_case(seed)
        np.savez(project / f"data/test{seed}.npz", image=image, mask=mask)
    call(project, "-c", SCORE)
    return float((project / "dice.txt").read_text())


SCORE = """
import json, pathlib, numpy as np, torch
from safetensors.torch import load_file
from m3b.dataset.formats import Image
from m3b.training.resampling import resize_ids
from m3b.training.segmentation import network, scoring
from m3b.training.volume_cache import prepare_image
plan, device, dice = json.load(open("Logout/trained.json")), torch.device("cpu"), []
model = network.build_model(plan, with_loss=False).eval()
model.load_state_dict(load_file("Logout/fold0/best.safetensors"))
for file in sorted(pathlib.Path("data").glob("test*.npz")):
    case = np.load(file)
    pixels = torch.from_numpy(prepare_image(Image(case["image"][None], None, 2), plan))
    with torch.no_grad():
        predicted = scoring.decide_mask(scoring.predict_case(model, pixels, plan, device), False)
    dice += scoring.class_dice(predicted, resize_ids(case["mask"], predicted.shape), 1, False)
pathlib.Path("dice.txt").write_text(str(np.mean(dice)))
"""


@pytest.mark.slow
def test_scribbles_teach_nearly_what_full_masks_teach(tmp_path: Path) -> None:
    scribbles = np.mean([_draw_case(seed)[2].mean() for seed in range(TRAIN_CASES)])
    assert scribbles < 0.1
    dice = {kind: _train(tmp_path / kind, kind) for kind in ("full", "scribbles", "background")}
    print(f"scribbles on {scribbles:.1%} of the pixels; Dice {dice}")
    assert dice["full"] > 0.85
    assert dice["scribbles"] > dice["full"] - 0.07
    assert dice["scribbles"] > dice["background"] + 0.2
