"""A frozen pretrained network from the plan to the deliverable: its weights stay, and its features are computed once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from starts_kit import assemble, vit, write_weights
from template_kit import call

import m3b

pytestmark = pytest.mark.slow
COUNTING = """import atexit, runpy, sys, torch
from {package}.pretrained import backbones_2d
counted = [0]
forward = backbones_2d.ViT.forward
def count(self, x):
    counted[0] += len(x)
    return forward(self, x)
backbones_2d.ViT.forward = count
atexit.register(lambda: open('images.txt', 'w').write(str(counted[0])))
sys.argv = {command}
runpy.run_path(sys.argv[0], run_name='__main__')"""


def count_images(project: Path, package: str, *command: str) -> int:
    """Run a script and return how many images its ViT has seen."""
    call(
        project,
        "-c",
        f"import sys; sys.path.insert(0, '../out')\n{COUNTING.format(package=package, command=[*command])}",
    )
    return int((project / "images.txt").read_text())


@pytest.mark.parametrize(
    ("task", "settings"),
    [("diagnosis", ["size=[32,32]", "folds=3", "tta.use=false"]), ("segmentation", ["patch=[32,32]", "folds=3"])],
)
def test_a_frozen_network_is_trained_and_delivered(task: str, settings: list[str], tmp_path: Path) -> None:
    project = assemble(task, tmp_path / "work")
    code = "import sys; sys.path.insert(0, 'example'); import make_example; from pathlib import Path; "
    dims = ", dims=2" if task == "segmentation" else ""
    call(project, "-c", code + f"make_example.make_example(Path(), 24{dims})")
    tensors, arch = vit()
    folder = write_weights(tmp_path / "mine", tensors, "timm/vit_small_patch16_224.augreg_in21k", arch)
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
    images_seen = count_images(project, "m3b.training", "train.py")
    weights = load_file(str(project / "Logout/fold0/best.safetensors"))
    stored = load_file(str(folder / "model.safetensors"))
    frozen_weights = {name: value for name, value in weights.items() if ".body.inner." in name}
    assert frozen_weights
    assert all(torch.equal(value, stored[name.split(".body.inner.")[1]]) for name, value in frozen_weights.items())
    # two versions of each training case, once, and up to four views for validation: of 90 steps and all scorings, few are new
    assert images_seen <= 6 * 24
    call(project, "export.py", "--out", "../out")
    model = project.parent / "out"
    config = json.loads((model / "config.json").read_text())
    assert len(config["weights"]) == 3
    saved_bytes = 1.5 * (folder / "model.safetensors").stat().st_size  # most of two of three backbones
    max_bytes = sum(file.stat().st_size for file in project.glob("Logout/fold*/best.safetensors")) - saved_bytes
    assert sum(file.stat().st_size for file in model.glob("*.safetensors")) < max_bytes
    images = [record["image_path"] for record in json.loads((project / "Datapath/train.json").read_text())[:2]]
    masks = ["--masks", "masks"] if task == "segmentation" else []
    command = ("../out/predict.py", *images, "-o", "answer.json", *masks)
    views = 1 if task == "diagnosis" else 4  # mirrored
    assert count_images(project, "m3b_runtime.training", *command) == views * len(images), "once for all folds"
    answers = json.loads((project / "answer.json").read_text())
    predicted = m3b.load_model(model).predict([project / image for image in images], out=tmp_path / "predicted")
    if task == "diagnosis":
        for answer, prediction in zip(answers, predicted, strict=True):
            assert answer["probabilities"] == pytest.approx(prediction.probabilities)
    exported = m3b.export_model(model, "onnx", tmp_path / "onnx")
    assert exported.largest_difference <= 1e-4
