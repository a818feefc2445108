"""A frozen pretrained network from the plan to the deliverable: its weights stay, and its features are computed once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from starts_kit import assemble, put, vit
from template_kit import call

pytestmark = pytest.mark.slow
COUNTING = """import atexit, runpy, sys, torch
from m3b.training.pretrained import backbones_2d
counted = [0]
forward = backbones_2d.ViT.forward
def count(self, x):
    counted[0] += len(x)
    return forward(self, x)
backbones_2d.ViT.forward = count
atexit.register(lambda: open('images.txt', 'w').write(str(counted[0])))
sys.argv = ['train.py']
runpy.run_path('train.py', run_name='__main__')"""


@pytest.mark.parametrize(
    ("task", "settings"),
    [("diagnosis", ["size=[32,32]", "folds=3", "tta.use=false"]), ("segmentation", ["patch=[32,32]", "folds=1"])],
)
def test_a_frozen_network_is_trained_and_delivered(task: str, settings: list[str], tmp_path: Path) -> None:
    project = assemble(task, tmp_path / "work")
    code = "import sys; sys.path.insert(0, 'example'); import make_example; from pathlib import Path; "
    dims = ", dims=2" if task == "segmentation" else ""
    call(project, "-c", code + f"make_example.make_example(Path(), 24{dims})")
    tensors, arch = vit()
    folder = put(tmp_path / "mine", tensors, "timm/vit_small_patch16_224.augreg_in21k", arch)
    call(
        project,
        "plan.py",
        "--set",
        f"network.pretrained={folder}",
        "network.backbone_lr=0",
        "network.feature_views=2",
        "network.trial=0",
        "device=cpu",
        "batch=4",
        "max_steps=30",
        "precision=fp32",
        *settings,
    )
    plan = json.loads((project / "plan.json").read_text())
    assert plan["network"]["feature_views"] == 2
    call(project, "-c", COUNTING)
    weights = load_file(str(project / "Logout/fold0/best.safetensors"))
    stored = load_file(str(folder / "model.safetensors"))
    kept = {name: value for name, value in weights.items() if ".body.inner." in name}
    assert kept
    assert all(torch.equal(value, stored[name.split(".body.inner.")[1]]) for name, value in kept.items())
    # two versions of each training case, once; of 30 steps and all scorings, few images are new ones
    assert int((project / "images.txt").read_text()) < 4 * 24
    call(project, "export.py", "--out", "../out")
    image = json.loads((project / "Datapath/train.json").read_text())[0]["image_path"]
    masks = ["--masks", "masks"] if task == "segmentation" else []
    call(project, "../out/predict.py", image, "-o", "answer.json", *masks)
    [answer] = json.loads((project / "answer.json").read_text())
    assert "error" not in answer
