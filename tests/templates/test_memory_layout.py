"""Memory layout on processors (`channels_last`): when it is measured, and a training with it, from the plan to predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from segmentation_kit import assemble_segmentation, small_plan
from template_kit import Run, call, load
from torch import nn

fitting = load("gpu_fitting")


def take(last: float, usual: float = 0.88) -> Callable[[Sequence[dict[str, Any]]], list[float]]:
    """A comparison of plans in which steps with channels last take `last` seconds."""
    return lambda plans: [last if plan["channels_last"] else usual for plan in plans]


def test_on_a_processor_the_layout_is_measured_where_the_minutes_repay_it() -> None:
    """Without AVX-512 a step of the 3D U-Net took 0.64 s instead of 0.88 s with channels last."""
    plan: dict[str, Any] = {"precision": "fp32", "dims": 3, "minutes": 25.0}
    fitting.choose_layout(plan, take(0.64))
    assert plan["channels_last"] is True
    plan = {"precision": "fp32", "dims": 3, "minutes": 25.0}
    fitting.choose_layout(plan, take(0.97, 1.0))
    assert plan["channels_last"] is False, "a difference within the noise of the measurement"


@pytest.mark.parametrize("changes", [{"minutes": 2.0}, {"minutes": 25.0, "max_steps": 40}])
def test_on_a_processor_the_layout_is_left_where_measuring_is_no_good(changes: dict[str, Any]) -> None:
    plan: dict[str, Any] = {"precision": "fp32", "dims": 3, **changes}
    fitting.choose_layout(plan, take(0.5))
    assert "channels_last" not in plan


def test_what_was_set_of_precision_and_layout_stays() -> None:
    plan: dict[str, Any] = {"precision": "fp32", "channels_last": False, "dims": 2, "minutes": 25.0}
    fitting.choose_precision_and_layout(plan, {"precision", "channels_last"}, take(0.5))
    assert (plan["precision"], plan["channels_last"]) == ("fp32", False)


def test_layers_of_pictures_in_a_network_of_volumes_keep_their_layout() -> None:
    """`Module.to(memory_format=channels_last_3d)` ends with an error there: "required rank 5 tensor"."""
    model = nn.Sequential(nn.Conv3d(2, 4, 3), nn.Conv2d(2, 4, 3))
    load("precision").apply_memory_layout(model, {"channels_last": True, "dims": 3})
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert model[1].weight.is_contiguous()


@pytest.mark.parametrize("last", ["true", "false"])
def test_a_classifier_with_either_layout_is_delivered(project: Path, run: Run, last: str) -> None:
    run("example/make_example.py", "--cases", "60")
    settings = ("device=cpu", "network.width=8", "max_steps=12", "folds=1", "threads=1", f"channels_last={last}")
    run("plan.py", "--minutes", "5", "--set", *settings)
    assert "done: validation" in run("train.py").stdout
    run("export.py")
    run("Deliver/predict.py", "data/example/case_000.png", "-o", "out.json")
    probabilities = json.loads((project / "out.json").read_text())[0]["probabilities"]
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_a_mask_model_trained_with_channels_last_learns_what_it_learns_without(tmp_path: Path) -> None:
    project, losses = assemble_segmentation(tmp_path / "project"), []
    call(project, "example/make_example.py", "--cases", "12", "--size", "16")
    for last in (False, True):
        small_plan(project, max_steps=6, channels_last=last)
        assert "done: validation" in call(project, "train.py").stdout
        log = (project / "Logout/log.csv").read_text().splitlines()
        losses.append(float(log[-1].split(",")[log[0].split(",").index("train_loss")]))
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.02)
    call(project, "export.py")
    call(project, "Deliver/predict.py", "data/example/case_000.nii.gz", "-o", "out.json")
    assert "error" not in json.loads((project / "out.json").read_text())[0]
