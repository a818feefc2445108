"""`network.pretrained=FOLDER` with a model that m3b delivered: body from there, another head for other classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from template_kit import call

from m3b.resources import copy_template
from m3b.training.diagnosis.network import build_network
from m3b.training.pretrained.delivered import adopt_network, load_delivered
from m3b.training.pretrained.weight_files import StartError

SETTINGS = ("--minutes", "0.2", "--set", "device=cpu", "max_steps=2", "batch=4")
EXAMPLES = {"diagnosis": ("--cases", "24"), "segmentation": (), "detection": ("--cases", "16")}
SMALLER = {"diagnosis": ("network.width=8",), "detection": ("network.width=8",)}


def make_project(folder: Path, task: str) -> Path:
    copy_template(task, folder)
    call(folder, "example/make_example.py", *EXAMPLES[task])
    return folder


def change_classes(project: Path, task: str) -> None:
    """A third class of images; without the last class of masks or boxes."""
    names_file, cases_file = project / "Datapath/label_dict.json", project / "Datapath/train.json"
    names, cases = json.loads(names_file.read_text()), json.loads(cases_file.read_text())
    if task == "diagnosis":
        names["blob"] = len(names)
        for case in cases[::3]:
            case["labels"] = ["blob"]
    else:
        dropped = list(names)[-1]
        del names[dropped]
        for case in cases:
            case["labels"] = [name for name in case.get("labels") or [] if name != dropped]
            if case.get("boxes"):
                case["boxes"] = [box for box in case["boxes"] if box["label"] != dropped]
    names_file.write_text(json.dumps(names))
    cases_file.write_text(json.dumps(cases))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["diagnosis", "segmentation", "detection"])
def test_a_training_starts_from_a_delivered_model_of_other_classes(tmp_path: Path, task: str) -> None:
    first = make_project(tmp_path / "first", task)
    call(first, "plan.py", *SETTINGS, "folds=1", *SMALLER.get(task, ()))
    call(first, "train.py")
    call(first, "export.py")
    second = make_project(tmp_path / "second", task)
    change_classes(second, task)
    (first / "Deliver").rename(second / "given")
    output = call(second, "plan.py", *SETTINGS, "folds=1", "network.pretrained=given").stdout
    assert f"the {task} model" in output
    assert "tensors loaded" in output
    plan = json.loads((second / "plan.json").read_text())
    delivered = json.loads((second / "given/config.json").read_text())["plan"]
    assert {"network", "scratch"} <= plan.keys()
    assert {key: plan["network"].get(key) for key in delivered["network"]} == delivered["network"]
    assert len(plan["classes"]) != len(delivered["classes"])
    (second / "plan.json").write_text(json.dumps({**plan, "lr": 0.0, "network": {**plan["network"], "trial": 0.0}}))
    call(second, "train.py")
    weights = json.loads((second / "given/config.json").read_text())["weights"]
    before = load_file(str(second / "given" / weights[0]))
    now = load_file(str(second / "Logout/fold0/best.safetensors"))
    trained = [name for name in now if "running_" not in name and "num_batches" not in name]
    matching_names = [name for name in trained if name in before and now[name].shape == before[name].shape]
    assert len(matching_names) > 0.6 * len(trained)
    assert all(
        torch.allclose(now[name], before[name])
        for name in matching_names
        if "heads" not in name and "head." not in name
    )
    call(second, "export.py")
    text = (second / "Deliver/config.json").read_text()
    assert "delivered" not in json.loads(text)["plan"]["network"]
    assert str(tmp_path) not in text
    image = json.loads((second / "Datapath/train.json").read_text())[0]["image_path"]
    (second / "given").rename(tmp_path / "away")
    done = call(second, "Deliver/predict.py", image, "-o", "answers/out.json")
    assert done.returncode == 0


DELIVERED: dict[str, Any] = {
    "task": "diagnosis", "classes": ["a", "b"], "dims": 2, "channels": 1, "network": {"name": "small_cnn"},
    "size": [64, 64], "intensity": {"mode": "unit", "mean": 0.3}, "weights": ["model.safetensors"], "start": {},
}  # fmt: skip


def test_the_body_is_loaded_and_a_head_of_other_classes_is_new(tmp_path: Path) -> None:
    torch.manual_seed(0)
    earlier = build_network({**DELIVERED, "network": {"name": "small_cnn", "width": 4}})
    save_file(
        {f"backbone.{name}": value for name, value in earlier.state_dict().items()}, tmp_path / "model.safetensors"
    )
    plan = {**DELIVERED, "network": {"name": "small_cnn", "width": 4}}
    (tmp_path / "config.json").write_text(
        json.dumps({"task": "diagnosis", "weights": ["model.safetensors"], "plan": plan})
    )
    new_plan = {**plan, "classes": ["a", "b", "c"], "channels": 3}
    network = build_network(new_plan)
    loaded = load_delivered(network, tmp_path)
    assert (loaded.adapted, loaded.skipped) == (1, 2), "the first layer gets three channels, the head three classes"
    now, before = network.state_dict(), earlier.state_dict()
    matching_names = [name for name in before if now[name].shape == before[name].shape]
    assert len(matching_names) == len(before) - 3
    assert all(torch.equal(now[name], before[name]) for name in matching_names)
    with pytest.raises(StartError, match="tensors fit the network"):
        load_delivered(build_network({**new_plan, "network": {"name": "small_cnn", "width": 8}}), tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dims": 3}, "is for 2D images"),
        ({"task": "segmentation"}, "segmentation model cannot start"),
        ({"task": "report"}, "report model cannot start"),
        ({"target": "boxes"}, "another kind of network"),
    ],
)
def test_models_that_are_no_start(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    plan = {"task": "grading", "dims": 2, "channels": 1, "size": [48, 48], "intensity": {"mode": "unit"}, "network": {}}
    with pytest.raises(StartError, match=words):
        adopt_network({**plan, **changes}, tmp_path, DELIVERED)
    adopt_network(plan, tmp_path, DELIVERED)
    assert plan["size"] == [64, 64]
    assert plan["intensity"] == DELIVERED["intensity"]
