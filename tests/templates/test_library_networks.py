"""Networks of timm and torchvision by name, from plan.py to a deliverable that predicts without a hub."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from detectors_kit import ask
from starts_kit import assemble

BUILD = """
import json, sys, torch
from m3b.training.diagnosis.network import build_network
answers = []
for name, channels, side, dims in json.loads(sys.argv[1]):
    plan = {"network": {"name": name, "dropout": 0.5}, "dims": dims, "channels": channels, "size": [side] * dims}
    plan["classes"] = ["a", "b", "c"]
    try:
        answers.append(list(build_network(plan)(torch.zeros(2, channels, *plan["size"])).shape))
    except SystemExit:
        answers.append("refused")
print(json.dumps(answers))
"""


def test_networks_take_channels_and_sizes_of_the_plan_and_others_are_refused(tmp_path: Path) -> None:
    built = [
        ("timm:resnet10t", 1, 32, 2), ("timm:vit_tiny_patch16_224", 2, 48, 2), ("torchvision:resnet18", 1, 32, 2),
        ("torchvision:vit_b_32", 3, 64, 2), ("torchvision:mobilenet_v3_small", 4, 32, 2),
    ]  # fmt: skip
    refused = [
        ("timm:resnet10", 1, 32, 2), ("timm:hf-hub:timm/resnet18.a1_in1k", 3, 32, 2), ("torchvision:inception_v3", 3, 299, 2),
        ("torchvision:fcn_resnet50", 3, 64, 2), ("keras:resnet18", 3, 32, 2), ("torchvision:vit_b_32", 3, 50, 2),
        ("torchvision:resnet18", 1, 32, 3),
    ]  # fmt: skip
    answers = json.loads(ask(tmp_path, "-c", BUILD, json.dumps([*built, *refused])).stdout)
    assert answers == [[2, 3]] * len(built) + ["refused"] * len(refused)


@pytest.mark.slow
def test_a_deliverable_holds_the_network_of_the_library_and_predicts_without_the_project(tmp_path: Path) -> None:
    project = assemble("diagnosis", tmp_path / "work")
    ask(project, "example/make_example.py", "--cases", "24", "--size", "32")
    settings = ["network.name=timm:resnet10t", "folds=1", "max_steps=3", "batch=4", "threads=1", "tta.use=false"]
    ask(project, "plan.py", "--minutes", "1", "--set", *settings)
    ask(project, "train.py")
    ask(project, "export.py")
    test = json.loads((project / "Datapath/test.json").read_text())
    image, away = (project / test[0]["image_path"]).resolve(), tmp_path / "away"
    shutil.move(project / "Deliver", away)
    ask(away, "predict.py", str(image), "-o", "out.json")
    [answer] = json.loads((away / "out.json").read_text())
    config = json.loads((away / "config.json").read_text())
    assert set(answer["probabilities"]) == set(config["classes"])
    assert config["plan"]["network"]["name"] == "timm:resnet10t"
    requirements = (away / "requirements.txt").read_text()
    assert "\ntimm==" in requirements
    assert "\ntorchvision==" in requirements
    assert "m3b." not in (away / "m3b_runtime/training/diagnosis/library_networks.py").read_text()


def test_other_deliverables_do_not_need_the_libraries(tmp_path: Path) -> None:
    from m3b.training.deliverable import copy_code

    (tmp_path / "predict.py").write_text("from m3b.training.diagnosis.network import build_network\n")
    copy_code(tmp_path / "out", {"name": "small_cnn"}, {"predict.py": tmp_path / "predict.py"})
    assert not (tmp_path / "out/m3b_runtime/training/diagnosis/library_networks.py").exists()
