"""What is decided about detectors of libraries, and their networks: losses, boxes, weights of torchvision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detection_kit import assemble_detection, forget, load_project_module
from detectors_kit import ask, put_detector
from starts_kit import assemble

FACTS: dict[str, Any] = {"target": "boxes", "dims": 2, "spacing": None, "shapes": np.array([[200, 100]])}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = assemble_detection(tmp_path_factory.mktemp("detectors") / "project")
    forget()
    yield place
    forget()


def _plan(name: str, dims: int = 2, **overrides: Any) -> dict[str, Any]:
    network = {"name": "centers", "width": 16, "strides": [[2, 2, 1][:dims]] * 4, "detector": name}
    return {"target": "boxes", "dims": dims, "longest": None, "spacing": None, "network": network, **overrides}


def test_only_detectors_that_fit_the_images_are_taken(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = load_project_module(project, "m3b.training.detection.detector_plan")
    monkeypatch.setattr(plans.importlib.util, "find_spec", lambda name: None if name == "torchvision" else object())
    assert plans.resolve_detector(["lr=1"], FACTS) == ["lr=1"]
    for detector, facts, message in (
        ("yolo", FACTS, "known are own, fcos, retinanet, retinanet3d"),
        ("fcos", {**FACTS, "dims": 3}, "these images are 3D; use own, retinanet3d"),
        ("retinanet3d", FACTS, "these images are 2D; use own, fcos, retinanet"),
        ("fcos", {**FACTS, "target": "masks"}, "these cases have masks"),
        ("fcos", FACTS, r"needs torchvision: pip install 'm3b\[detectors\]'"),
    ):
        with pytest.raises(SystemExit, match=message):
            plans.resolve_detector([f"network.detector={detector}"], facts)


def test_anchors_follow_the_boxes_on_the_grid(project: Path) -> None:
    plans = load_project_module(project, "m3b.training.detection.detector_plan")
    small = {**FACTS, "sides": np.full((50, 2), 16.0)}
    plan = _plan("retinanet", longest=100)  # half of the images' 200
    plans.use_detector(small, plan, False)
    assert plan["network"]["anchors"] == [8, 16, 32, 64, 128]
    assert (plan["network"]["backbone"], plan["network"]["width"], plan["compile"]) == ("resnet18", 64, False)
    plan = _plan("retinanet")
    plans.use_detector({**FACTS, "sides": np.full((50, 2), 90.0)}, plan, True)
    assert plan["network"]["anchors"][0] == 32
    assert plan["network"]["backbone"] == "resnet50"
    volumes = {
        "spacing": [1.0, 1.0, 4.0],
        "shapes": np.array([[64, 64, 16]]),
        "sides": np.tile([8.0, 8.0, 2.0], (9, 1)),
    }
    plan = _plan("retinanet3d", 3, spacing=[2.0, 2.0, 4.0])
    plans.use_detector({**FACTS, **volumes, "dims": 3}, plan, False)
    assert plan["network"]["anchors"] == [[4, 4, 2]] * 3
    assert plan["network"]["first"] == [2, 2, 1]
    with pytest.raises(SystemExit, match="class_weights"):
        plans.use_detector(small, _plan("fcos", loss={"class_weights": [1.0, 2.0]}), False)


def test_suppression_without_compiled_operators_is_the_templates_own(project: Path) -> None:
    import torch

    boxes, ops = (
        load_project_module(project, "m3b.training.detection.boxes"),
        load_project_module(project, "m3b.training.torchvision_ops"),
    )
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 40, (200, 2))
    table, scores = np.hstack([low, low + rng.uniform(3, 20, (200, 2))]), rng.permutation(200) / 200
    kept_rows = ops.suppress_boxes(torch.tensor(table), torch.tensor(scores), 0.45).numpy()
    expected_rows = boxes.suppress_overlaps(table, scores, np.zeros(200, int), max_boxes=200, overlap=0.45)
    assert kept_rows.tolist() == expected_rows.tolist()
    assert len(kept_rows) < 150
    assert ops.suppress_boxes(torch.zeros(0, 4), torch.zeros(0), 0.5).tolist() == []


def test_views_of_an_image_are_merged_box_by_box(project: Path) -> None:
    boxes = load_project_module(project, "m3b.training.detection.boxes")
    first = (np.array([[10.0, 10, 20, 20], [50, 50, 60, 60]]), np.array([0.8, 0.4]), np.array([0, 1]))
    mirrored = boxes.flip_boxes(np.array([[10.0, 80, 20, 90]]), (100, 100), [1])
    assert mirrored.tolist() == [[10, 10, 20, 20]]
    merged = boxes.fuse_boxes([first, (mirrored + np.array([0, 2, 0, 2]), np.array([0.4]), np.array([0]))])
    assert merged[0][0] == pytest.approx([10, 10 + 2 / 3, 20, 20 + 2 / 3])
    assert merged[1] == pytest.approx([0.6, 0.2])
    assert merged[2].tolist() == [0, 1]
    unmerged = boxes.fuse_boxes([first, (first[0], first[1], np.array([1, 0]))])
    assert len(unmerged[1]) == 4  # boxes of other classes are others


def test_files_that_are_no_whole_detector_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import save_file

    monkeypatch.syspath_prepend(str(assemble("detection", tmp_path / "work")))
    forget()
    try:
        from m3b.training.pretrained.detector_files import read_detector_arch
        from m3b.training.pretrained.starts import find_start
        from m3b.training.pretrained.weight_files import StartError

        stem = {"backbone.body.conv1.weight": torch.zeros(64, 3, 7, 7)}
        layers = {f"backbone.body.layer{k}.{n}.conv2.weight": torch.zeros(1) for k in (1, 2, 3, 4) for n in range(k)}
        neck_and_head = {
            "backbone.fpn.layer_blocks.0.0.weight": torch.zeros(32, 32, 3, 3),
            "head.regression_head.bbox_ctrness.weight": torch.zeros(1, 32, 3, 3),
        }
        for name, tensors, message in (
            ("half", {**stem, **layers, **neck_and_head} | {"backbone.body.layer2.9.conv2.weight": torch.zeros(1)}, ""),
            (
                "cut",
                {key: value for key, value in {**stem, **layers, **neck_and_head}.items() if "layer4" not in key},
                "layer4 is",
            ),
            ("stem", {**layers, **neck_and_head}, "first convolution is missing"),
            ("flat", {**stem, **layers}, "no complete detector"),
        ):
            (tmp_path / name).mkdir()
            file = tmp_path / name / "model.safetensors"
            save_file(tensors, str(file))
            if message:
                with pytest.raises(StartError, match=message):
                    read_detector_arch([file])
            else:
                assert read_detector_arch([file]) == {
                    "block": "basic",
                    "depths": [1, 10, 3, 4],
                    "width": 32,
                    "normed": False,
                    "above": 0,
                }
        assert find_start(str(tmp_path / "half"), "detection", 2).entry["builder"] == "fcos"
        with pytest.raises(StartError, match="is for detection"):
            find_start(str(tmp_path / "half"), "diagnosis", 2)
    finally:
        forget()


LEARN = """
import json, sys, torch
torch.manual_seed(0)
from m3b.training.detection.inference import find_boxes
from m3b.training.detection.network import build_model
from m3b.training.pretrained.starts import find_start

kind, folder = sys.argv[1:3]
plan = {"task": "detection", "target": "boxes", "classes": ["a", "b"], "dims": 2, "channels": 1, "patch": [64, 64]}
network = {"name": kind, "detector": kind, "backbone": "resnet18", "width": 64, "anchors": [8, 16, 32, 64, 128]}
plan["network"] = {**find_start(folder, "detection", 2).network, **network}
model = build_model(plan).train()
print(model.taken)
image = torch.randn(1, 48, 60) * 0.1
image[0, 8:28, 10:40] += 2
pixels = torch.zeros(2, 1, 64, 64)
pixels[0, :, 8:56, 2:62] = image  # as a window of an image that is smaller than it
truth = torch.full((2, 2, 6), -1.0)
truth[0, 0] = torch.tensor([16, 12, 36, 42, 1, 1.0])
truth[0, 1] = torch.tensor([0, 0, 64, 64, 0, 0.0])  # cut in two: not asked for
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
losses = []
for _ in range(30):
    loss = model(pixel_values=pixels, boxes=truth)["loss"]
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # as in training
    optimizer.step()
    losses.append(float(loss.detach()))
empty = model(pixel_values=pixels, boxes=torch.full((2, 1, 6), -1.0))
optimizer.zero_grad()
empty["loss"].backward()
everywhere = all(value.grad is not None for value in model.parameters())
model.eval()
answers = {}
for mirror in ([], ["h", "w"]):
    boxes, scores, labels = find_boxes(model, image.numpy(), {**plan, "mirror": mirror}, torch.device("cpu"))
    answers["".join(mirror)] = [boxes[0].tolist(), float(scores[0]), int(labels[0]), len(boxes)]
broken = model(pixel_values=pixels * float("nan"), boxes=truth)["loss"]
print(json.dumps([losses, everywhere, answers, bool(broken.isnan())]))
"""


@pytest.mark.parametrize("kind", ["fcos", pytest.param("retinanet", marks=pytest.mark.slow)])
def test_a_detector_of_torchvision_learns_a_batch_by_heart_from_its_own_weights(kind: str, tmp_path: Path) -> None:
    project = assemble("detection", tmp_path / "work")
    folder = put_detector(project, kind, tmp_path / "weights")
    lines = ask(project, "-c", LEARN, kind, str(folder)).stdout.splitlines()
    assert (
        "1 of them adapted in shape, 14 skipped" in lines[0]
    )  # grey for colour; the classes are others, and counters are left
    losses, everywhere, answers, stopped = json.loads(lines[-1])
    assert losses[-1] < 0.6 * losses[0]
    assert everywhere
    assert stopped
    box, score, _, _ = answers[""]
    assert np.abs(np.array(box) - [8, 10, 28, 40]).max() < 8
    assert score > 0.05
    for (
        _,
        _,
        label,
        count,
    ) in answers.values():  # mirrored, it has never seen the object: that it is one of the class stays
        assert label == 1
        assert 1 <= count <= 100
