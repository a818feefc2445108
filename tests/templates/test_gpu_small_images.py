"""Plans of classifiers for a GPU: networks that small images and flat volumes go through, and the stem of a ResNet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from template_kit import assemble

NAMES = ("Model", "Utils", "Loss", "Datapath", "plan")


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    forget()
    place = assemble(tmp_path / "work")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place)
    yield place
    forget()


def write_cases(project: Path, shape: tuple[int, ...], cases: int) -> None:
    """A file of each shape, which all cases name."""
    (project / "Datapath").mkdir(exist_ok=True)
    records = []
    for number in range(cases):
        np.save(project / f"{number % 2}.npy", np.random.default_rng(number % 2).integers(0, 255, shape, np.uint8))
        records.append({"image_path": f"{number % 2}.npy", "labels": ["ab"[number % 2]], "patient": f"p{number}"})
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text('{"a": 0, "b": 1}')


@pytest.mark.parametrize("shape", [(28, 28), (20, 60), (64, 64, 24)], ids=str)
def test_many_small_images_get_a_plan_for_a_gpu(project: Path, shape: tuple[int, ...]) -> None:
    write_cases(project, shape, 504)
    import plan as planning

    planning.main(["--device", "cuda:24GB", "--minutes", "60", "--set", "batch=4"])
    plan: dict[str, Any] = json.loads((project / "plan.json").read_text())
    assert plan["network"]["name"] == "resnet18"


def test_a_densenet_for_small_images_is_refused(project: Path) -> None:
    write_cases(project, (28, 28), 60)
    import plan as planning

    with pytest.raises(SystemExit, match="resnet18"):
        planning.main(["--device", "cuda:24GB", "--minutes", "60", "--set", "network.name=densenet121"])


def test_the_stem_of_a_resnet_halves_large_images_twice(project: Path) -> None:
    from Model.network import build_model
    from torch.utils.flop_counter import FlopCounterMode

    plan = {"dims": 2, "channels": 3, "size": [224, 224], "classes": ["a", "b"], "network": {"name": "resnet18"}}
    network = build_model(plan, with_loss=False).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, 3, 224, 224))
    assert counter.get_total_flops() / 2e9 == pytest.approx(1.8, abs=0.1), "as in He et al. (2016), table 1"
