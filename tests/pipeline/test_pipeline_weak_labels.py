"""Whole runs by rules on weak masks: boxes, and scribbles; hidden outlines say what was learnt."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from m3b import Pipeline, load_model
from m3b.data.index import read_index
from m3b.dataset.reading import read_mask
from m3b.run.result import Result
from m3b.run.training_overrides import TrainingOverrides

SIDE = 64
SETTINGS = {"patch": [SIDE, SIDE], "spacing": [1.0, 1.0], "batch": 6, "network.filters": [8, 16, 32, 64, 64]}


def draw_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A picture of one or two bright ellipses at any angle, and its mask."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    mask = np.zeros((SIDE, SIDE), bool)
    for _ in range(int(random.integers(1, 3))):
        row, column, angle = *random.integers(16, SIDE - 16, 2), random.uniform(0, np.pi)
        along = (columns - column) * np.cos(angle) + (rows - row) * np.sin(angle)
        across = (rows - row) * np.cos(angle) - (columns - column) * np.sin(angle)
        mask |= (along / random.integers(9, 15)) ** 2 + (across / random.integers(5, 9)) ** 2 <= 1
    picture = 60 + 50 * ndimage.gaussian_filter(random.normal(0, 4, (SIDE, SIDE)), 4) + 55 * mask
    return (picture + random.normal(0, 12, (SIDE, SIDE))).clip(0, 255).astype(np.uint8), mask


def write_boxes(folder: Path, count: int) -> Path:
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    for number in range(count):
        picture, mask = draw_case(number)
        Image.fromarray(picture).save(folder / f"images/case{number:03d}.png")
        images.append({"id": number, "file_name": f"case{number:03d}.png", "width": SIDE, "height": SIDE})
        for rows, columns in ndimage.find_objects(ndimage.label(mask)[0]):
            box = [columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start]
            annotations.append({"id": len(annotations), "image_id": number, "category_id": 1, "bbox": box})
    categories = [{"id": 1, "name": "lesion"}]
    coco = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(coco))
    return folder


def write_scribbles(folder: Path, count: int) -> Path:
    """Masks that say of a few lines whether they are lesion, and of everything else nothing; a README says so."""
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    for number in range(count):
        picture, mask = draw_case(number)
        lines = np.zeros((SIDE, SIDE), bool)
        lines[::9] = True
        is_labelled = lines & (ndimage.binary_erosion(mask) | ~ndimage.binary_dilation(mask, iterations=2))
        labels = np.where(is_labelled, mask, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / f"images/case{number:03d}.png")
        Image.fromarray(labels).save(folder / f"labels/case{number:03d}.png")
    (folder / "README.txt").write_text("In the masks 0 is background, 1 is lesion and 255 is unlabelled.")
    return folder


def measure_hidden_dice(run: Path, out: Path) -> float:
    """Return the mean Dice of 24 new pictures, whose outlines nobody saw."""
    out.mkdir()
    truths = []
    for seed in range(1000, 1024):
        picture, mask = draw_case(seed)
        Image.fromarray(picture).save(out / f"{seed}.png")
        truths.append(mask)
    answers = load_model(run / "model").predict(sorted(out.glob("*.png")), out=out / "answers")
    predicted = [read_mask(str(answer.mask)).array > 0 for answer in answers]
    return float(np.mean([2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in zip(predicted, truths, strict=True)]))


def run_rules(data: Path, run: Path) -> Result:
    """Train 300 steps of small networks, so that a slow machine learns as much as a fast one."""
    training = TrainingOverrides(steps=300, folds=1, settings=SETTINGS)
    result = Pipeline("rules", data=[data], out=run, training=training).run("Segment the lesions")
    assert (result.status, result.integrity) == ("completed", "clean"), result.reason
    return result


@pytest.mark.slow
def test_boxes_from_the_request_to_outlines(tmp_path: Path) -> None:
    data, run = write_boxes(tmp_path / "data", 60), tmp_path / "run"
    result = run_rules(data, run)
    assert result.primary is not None
    assert result.primary.name == "box_iou"
    assert result.primary.value > 0.7
    assert list(result.metrics) == ["box_iou"]
    index = read_index(run / "locked", "segmentation")
    assert all(record.extra["mask_origin"] == "boxes" for record in (*index.train, *index.test))
    for page in ("report.html", "model/README.md"):
        assert "true masks are boxes" in (run / page).read_text(), page
    boxes_as_outlines = np.mean([_dice_of_box(seed) for seed in range(1000, 1024)])
    dice = measure_hidden_dice(run, tmp_path / "new")
    print(f"hidden outlines: Dice {dice:.3f}; of perfect boxes taken as outlines {boxes_as_outlines:.3f}")
    assert dice > 0.87
    assert dice > boxes_as_outlines + 0.05


def _dice_of_box(seed: int) -> float:
    mask = draw_case(seed)[1]
    boxes = np.zeros_like(mask)
    for box in ndimage.find_objects(ndimage.label(mask)[0]):
        boxes[box] = True
    return 2 * mask.sum() / (boxes.sum() + mask.sum())


@pytest.mark.slow
def test_scribbles_from_the_request_to_outlines(tmp_path: Path) -> None:
    data, run = write_scribbles(tmp_path / "data", 60), tmp_path / "run"
    result = run_rules(data, run)
    scores = json.loads((run / "locked/scores.json").read_text())
    assert scores["details"]["ignored_share"] > 0.85
    assert "pixels of masks are void" in (run / "report.html").read_text()
    assert result.primary is not None
    assert result.primary.name == "dice"
    assert measure_hidden_dice(run, tmp_path / "new") > 0.8
