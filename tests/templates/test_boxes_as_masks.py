"""Boxes as masks: how they are learnt from, what of a prediction they measure, and a loss that reaches the outlines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from template_kit import load

IGNORE = 255


def _boxes() -> np.ndarray:
    boxes = np.zeros((24, 24), np.uint8)
    boxes[2:10, 3:11], boxes[12:20, 12:22] = 1, 2
    return boxes


@pytest.mark.parametrize("overlap", [False, True])
def test_only_the_core_of_a_box_is_its_class(overlap: bool) -> None:
    boxes = np.stack([_boxes() == 1, _boxes() == 2]).astype(np.uint8) if overlap else _boxes()
    marked = load("box_masks").mark_boxes(boxes, overlap)
    assert np.array_equal(marked == 0, boxes == 0)
    layers = [(1, marked[0]), (1, marked[1])] if overlap else [(1, marked), (2, marked)]
    for number, layer in layers:
        box = (layer == number) | (layer == IGNORE - number)
        assert 0.15 < (layer == number).sum() / box.sum() < 0.25
        centres = [np.argwhere(part).mean(axis=0) for part in (box, layer == number)]
        assert np.allclose(*centres)


def test_boxes_that_meet_have_no_core() -> None:
    boxes = np.zeros((16, 16), np.uint8)
    boxes[2:8, 2:8] = boxes[5:12, 5:12] = 1
    assert set(np.unique(load("box_masks").mark_boxes(boxes, False))) == {0, IGNORE - 1}


def test_a_prediction_is_compared_by_the_boxes_of_its_components() -> None:
    rows, columns = np.mgrid[:24, :24]
    disc = ((rows - 12) ** 2 + (columns - 12) ** 2 <= 36).astype(np.uint8)
    disc[0, 0] = 2
    truth = np.zeros((24, 24), np.uint8)
    truth[6:19, 6:19] = 1
    filled = load("box_masks").fill_predicted(disc, truth, False)
    assert np.array_equal(filled == 1, truth == 1)
    assert (filled == 2).sum() == 1


def test_slices_of_boxes_need_one_positive_voxel_each() -> None:
    """A diagonal of a box is tight; lines that meet the border of the patch say nothing."""
    tightness = load("segmentation.box_loss").tightness_loss
    boxes = torch.zeros(1, 12, 12, dtype=torch.bool)
    boxes[0, 3:9, 3:9] = True
    probability = torch.full((1, 12, 12), 0.01)
    probability[0, range(3, 9), range(3, 9)] = 0.99
    assert float(tightness(probability.log(), boxes)) == pytest.approx(-np.log(0.99), rel=1e-3)
    probability[0, 5, 5] = 0.5
    expected = -(10 * np.log(0.99) + 2 * np.log(0.5)) / 12
    assert float(tightness(probability.log(), boxes)) == pytest.approx(expected, rel=1e-3)
    cut = torch.zeros(1, 12, 12, dtype=torch.bool)
    cut[0, :4, 3:9] = cut[0, 6:, 3:9] = True
    columns_only = tightness(torch.full((1, 12, 12), 0.5).log(), cut)
    assert float(columns_only) == pytest.approx(np.log(2), rel=1e-4)
    everywhere = torch.ones(1, 12, 12, dtype=torch.bool)
    assert float(tightness(probability.log(), everywhere)) == 0


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("shape", [(24, 24), (8, 8, 8)])
def test_the_loss_of_boxes_is_smaller_for_the_structure_than_for_its_box(shape: tuple[int, ...], overlap: bool) -> None:
    plan: dict[str, Any] = {"classes": ["a"], "boxes": True, "overlap": overlap}
    loss = load("segmentation.loss").build_loss(plan)
    centre = [(side - 1) / 2 for side in shape]
    distance = sum(
        (axis - middle) ** 2 for axis, middle in zip(np.ogrid[tuple(map(slice, shape))], centre, strict=True)
    )
    ball = distance <= (min(shape) / 2 - 1) ** 2
    box = np.zeros(shape, np.uint8)
    box[tuple(slice(1, side - 1) for side in shape)] = 1
    mask = torch.from_numpy(load("box_masks").mark_boxes(box[None] if overlap else box, overlap))[None]

    def measure(positive: np.ndarray) -> float:
        score = torch.from_numpy(np.where(positive, 8.0, -8.0)).float()[None, None]
        logits = score if overlap else torch.cat([-score, score], dim=1) / 2
        return float(loss([logits], mask))

    assert measure(ball) < 0.1
    assert measure(np.zeros(shape, bool)) > 2
    assert measure(np.ones(shape, bool)) > 1
    assert measure(distance <= 4) > measure(ball) + 0.5  # a core alone is not tight


@pytest.mark.parametrize("learns_from_boxes", [False, True])
def test_patches_have_open_voxels_only_if_the_plan_learns_from_boxes(tmp_path: Path, learns_from_boxes: bool) -> None:
    for name, array in (("image", _boxes() * 50), ("mask", _boxes())):
        Image.fromarray(array).save(tmp_path / f"{name}.png")
    plan: dict[str, Any] = {
        "dims": 2,
        "channels": 1,
        "spacing": None,
        "side": None,
        "pixels": False,
        "intensity": {"mode": "unit"},
        "classes": ["a", "b"],
        "labels": {"a": 1, "b": 2},
        "overlap": False,
        "boxes": learns_from_boxes,
        "patch": [24, 24],
        "foreground": 0.3,
        "pad_value": 0.0,
        "workers": 1,
    }
    records = [{"image_path": "image.png", "mask_path": "mask.png", "mask_origin": "boxes"}]
    volumes = load("volume_cache").build_volumes(records, plan, tmp_path / "cache", str(tmp_path))
    patches = load("segmentation.dataset").Patches(volumes, np.array([0]), records, plan)
    values = set(patches[0]["labels"].unique().tolist())
    assert values == ({0, 1, 2, IGNORE - 1, IGNORE - 2} if learns_from_boxes else {0, 1, 2})


def test_boxes_are_not_for_nnunet_nor_mixed_with_outlines() -> None:
    records = [
        {"image_path": "a.png", "mask_path": "b.png", "mask_origin": "boxes"},
        {"image_path": "c.png", "mask_path": "d.png"},
    ]
    with pytest.raises(SystemExit, match=r"1 of 2 masks are boxes"):
        load("segmentation.fingerprint").measure_cases(records, {"x": 1})
    assert load("segmentation.plan").choose_engine({"boxes": True}, 600.0, True)[0] == "trainer"
