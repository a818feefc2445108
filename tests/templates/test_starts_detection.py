"""Detection from pretrained encoders: boxes, masks, pictures and volumes, planned, trained for two steps, exported and asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starts_kit import assemble, parts, resnet, stunet, vit, write_weights
from template_kit import call

WeightsBuilder = Callable[[], tuple[dict[str, Any], dict[str, Any]]]
STEPS = ("device=cpu", "max_steps=2", "batch=2", "threads=1")


def _make_plan(place: Path, truth: str, folder: Path | str, dims: str = "2", check: bool = True) -> tuple[Path, Any]:
    project = assemble("detection", place / "work")
    call(project, "example/make_example.py", "--cases", "16", "--truth", truth, "--dims", dims, "--size", "32")
    settings = [f"network.pretrained={folder}", *STEPS]
    return project, call(project, "plan.py", "--minutes", "1", "--set", *settings, check=check)


def _write_folder(place: Path, build_weights: WeightsBuilder, entry: str) -> Path:
    tensors, arch = build_weights()
    folder: Path = write_weights(place / "mine", tensors, entry, arch)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "build_weights", "entry", "dims"),
    [
        ("boxes", resnet, "torchvision/resnet18", "2"),
        ("masks", resnet, "torchvision/resnet18", "2"),
        ("boxes", vit, "timm/vit_small_patch16_224.augreg_in21k", "2"),
        ("masks", stunet, "stunet/small", "3"),
        ("boxes", stunet, "stunet/small", "3"),
    ],
)
def test_from_weights_to_answers(
    truth: str, build_weights: WeightsBuilder, entry: str, dims: str, tmp_path: Path
) -> None:
    folder = _write_folder(tmp_path, build_weights, entry)
    project = assemble("detection", tmp_path / "work")
    settings = [f"network.pretrained={folder}", *STEPS]
    code = (
        "import sys; sys.path.insert(0, 'example'); import make_example; from pathlib import Path\n"
        f"make_example.make_example(Path(), {truth!r}, 16, {dims}, 32)\n"
        f"from m3b.training.detection import plan; plan.main(['--minutes', '1', '--set', *{settings!r}])\n"
        "from m3b.training.detection import train; assert train.main([]) == 0\n"
        "import json; from m3b.training.pretrained.trial import CHOICE_FILE; said = json.loads(CHOICE_FILE.read_text())\n"
        "if said['chosen'] == 'scratch':  # of two steps either may be better; the started one is what is asked about\n"
        "    CHOICE_FILE.write_text(json.dumps({**said, 'chosen': 'pretrained'}))\n"
        "    import shutil; shutil.rmtree('Logout/fold0'); assert train.main(['--resume']) == 0\n"
        "from m3b.training.detection import export; export.main([])"
    )
    printed = call(project, "-c", code).stdout
    assert "tensors loaded" in printed
    assert f"with the weights of {entry}" in printed
    plan = json.loads((project / "plan.json").read_text())
    assert plan["network"]["pretrained"] == str(folder)
    assert plan["scratch"]["network"]["name"] == ("centers" if truth == "boxes" else "unet")
    shutil.rmtree(folder)
    config = json.loads((project / "Deliver/config.json").read_text())
    assert config["start"]["chosen"] == "pretrained"
    assert config["plan"]["network"]["name"] == "pretrained"
    assert str(tmp_path) not in json.dumps(config)
    assert (project / "Deliver/m3b_runtime/training/feature_pyramid.py").is_file()
    image = json.loads((project / "Datapath/test.json").read_text())[0]["image_path"]
    call(project, "Deliver/predict.py", image, "-o", "out.json")
    [answer] = json.loads((project / "out.json").read_text())
    assert "error" not in answer
    assert "boxes" in answer
    assert 0 <= answer["anomaly_score"] <= 1
    about = (project / "Deliver/README.md").read_text()
    assert "licence of the weights applies to this model too" in about


@pytest.mark.slow
def test_folds_start_from_what_one_trial_chose(tmp_path: Path) -> None:
    """The comparison with scratch is made once; then each fold, in a process of its own, and the refit start from its verdict."""
    folder = _write_folder(tmp_path, resnet, "torchvision/resnet18")
    project, _ = _make_plan(tmp_path / "folds", "boxes", folder)
    call(project, "plan.py", "--keep", "--set", "folds=2", "refit=true", "processes=2")
    printed = call(project, "train.py").stdout
    assert printed.count("start: from") == 1
    assert "2 folds, 2 at a time" in printed
    assert "refit: all" in printed
    chosen_start = json.loads((project / "Logout/start.json").read_text())["chosen"]
    call(project, "export.py")
    config = json.loads((project / "Deliver/config.json").read_text())
    assert (config["refit"], config["weights"]) == (True, ["model.safetensors"])
    assert config["start"]["chosen"] == chosen_start
    assert config["plan"]["network"]["name"] == {"pretrained": "pretrained", "scratch": "centers"}[chosen_start]
    image = json.loads((project / "Datapath/test.json").read_text())[0]["image_path"]
    call(project, "Deliver/predict.py", image, "-o", "out.json")
    [answer] = json.loads((project / "out.json").read_text())
    assert "boxes" in answer


@pytest.mark.slow
def test_weights_that_do_not_fit_are_refused_in_a_sentence(tmp_path: Path) -> None:
    import torch

    tensors, arch = resnet()
    half = {name: value for name, value in tensors.items() if not name.startswith("layer4")}
    _, done = _make_plan(
        tmp_path / "half", "boxes", write_weights(tmp_path / "part", half, "torchvision/resnet18", arch), check=False
    )
    assert done.returncode == 1
    assert "tensors are missing" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "pickle").mkdir()
    torch.save(tensors, tmp_path / "pickle" / "resnet18.pth")
    _, done = _make_plan(tmp_path / "pickled", "masks", tmp_path / "pickle", check=False)
    assert "m3b models convert" in done.stderr
    _, done = _make_plan(
        tmp_path / "flat", "boxes", _write_folder(tmp_path / "ct", stunet, "stunet/small"), check=False
    )
    assert "is for 3D images" in done.stderr


TWO_STEPS = """
import json, sys, torch
from m3b.training.detection.network import build_model
for plan in json.load(open('plans.json')):
    dims, side = plan["dims"], plan["patch"][0]
    torch.manual_seed(0)
    model = build_model(plan).train()
    boxes = plan['target'] == 'boxes'
    images = torch.randn(2, plan['channels'], *plan['patch'])
    truth = {'labels': torch.zeros(2, 2, *plan['patch'])}
    if boxes:
        truth = {'boxes': torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * 2)}
    steps = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        steps.zero_grad()
        model(images, **truth)['loss'].backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
        steps.step()
    again = build_model(plan, with_loss=False)
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        one, other = (each.eval()(images)['logits'] for each in (model, again))
    assert torch.equal(one, other)
    cells = [-(-side // c) for c in model.cell] if boxes else plan['patch']
    assert list(one.shape) == [2, 2 + 4 * dims if boxes else 2, *cells], one.shape
    print('fine')
"""


def test_networks_on_encoders_learn_and_are_built_anew(tmp_path: Path) -> None:
    """Pictures and volumes, boxes and masks: two steps, and the same answers from a network that is built without its files."""
    from detection_kit import box_plan

    project, plans = assemble("detection", tmp_path / "work"), []
    kinds = [
        (resnet, "torchvision/resnet18", 2),
        (vit, "timm/vit_small_patch16_224.augreg_in21k", 2),
        (stunet, "stunet/small", 3),
    ]
    for at, (build_weights, entry, dims) in enumerate(kinds):
        start = parts("pretrained.starts").find_start(
            str(_write_folder(tmp_path / str(at), build_weights, entry)), "detection", dims
        )
        for target in ("boxes", "masks"):
            network = {**start.network, "width": 8, "cell": [4] * dims}
            loss = (
                {"boxes": 1.0, "class_weights": [1.0, 1.0]}
                if target == "boxes"
                else {"voxel": "focal", "alpha": 0.4, "beta": 0.6}
            )
            plan = box_plan(dims, network=network, target=target, loss=loss, channels=int(start.entry["channels"]))
            plans.append(plan)
    (project / "plans.json").write_text(json.dumps(plans))
    assert call(project, "-c", TWO_STEPS).stdout.split() == ["fine"] * 6


def test_the_registry_names_detection_where_its_template_can_start(tmp_path: Path) -> None:
    starts = parts("pretrained.starts")
    folder = _write_folder(tmp_path, resnet, "torchvision/resnet18")
    assert starts.find_start(str(folder), "detection", 2).entry["name"] == "torchvision/resnet18"
