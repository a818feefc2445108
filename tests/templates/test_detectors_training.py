"""Detectors of libraries from plan.py to the deliverable: same boxes in a clean process, weights of torchvision, folds, resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from detectors_kit import ask, put_detector
from starts_kit import assemble

STEPS = ("device=cpu", "max_steps=3", "batch=2", "threads=1")
OWN_BOXES = """
import json, sys, torch
from pathlib import Path
sys.path.insert(0, "Deliver")
import predict
[one] = predict.predict([sys.argv[1]])
Path("within.json").write_text(json.dumps(one["boxes"]))
"""


def _make_project(tmp_path: Path, dims: str = "2") -> Path:
    project = assemble("detection", tmp_path / "work")
    ask(project, "example/make_example.py", "--cases", "12", "--truth", "boxes", "--dims", dims, "--size", "32")
    return project


def _deliver(project: Path, name: str) -> dict[str, object]:
    """Exports, moves the deliverable away from the project, and asks it there."""
    ask(project, "export.py")
    image = (project / json.loads((project / "Datapath/test.json").read_text())[1]["image_path"]).resolve()
    ask(project, "-c", OWN_BOXES, str(image))
    away = project.parent / "away"
    shutil.move(project / "Deliver", away)
    ask(away, "predict.py", str(image), "-o", "out.json")
    [answer] = json.loads((away / "out.json").read_text())
    assert answer["boxes"] == json.loads((project / "within.json").read_text())
    assert "error" not in answer
    assert f"\n{name}==" in (away / "requirements.txt").read_text()
    assert f"of {'MONAI' if name == 'monai' else 'torchvision'} (" in (away / "README.md").read_text()
    assert not (away / "parts.py").exists()  # `m3b export` says that it cannot make a graph of it
    config: dict[str, object] = json.loads((away / "config.json").read_text())
    return config


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "weights"), [("fcos", "fcos"), ("retinanet", "retinanet"), ("fcos", "resnet")])
def test_from_weights_of_torchvision_to_answers(kind: str, weights: str, tmp_path: Path) -> None:
    project = _make_project(tmp_path)
    folder = put_detector(project, weights, tmp_path / "weights")
    if weights == "resnet":  # four blocks: its own sizes are said beside it
        arch = {"block": "basic", "depths": [1, 1, 1, 1], "width": 64}
        (folder / "m3b-start.json").write_text(json.dumps({"entry": "torchvision/resnet18", "arch": arch}))
    detector_settings = [f"network.detector={kind}", "network.width=64"] if weights == "resnet" else []
    settings = [f"network.pretrained={folder}", "network.trial=0", 'augment.flip=["w"]', *detector_settings, *STEPS]
    printed = ask(project, "plan.py", "--minutes", "1", "--set", *settings).stdout
    assert "tensors loaded" in printed
    plan = json.loads((project / "plan.json").read_text())
    assert plan["network"]["detector"] == kind  # of a whole detector without being named
    assert plan["scratch"]["network"]["name"] == kind
    ask(project, "train.py")
    shutil.rmtree(folder)
    config = _deliver(project, "torchvision")
    assert str(tmp_path) not in json.dumps(config)
    assert config["start"]["chosen"] == "pretrained"  # type: ignore[index]


@pytest.mark.slow
def test_weights_of_another_detector_cut_or_pickled_are_refused(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    project = _make_project(tmp_path)
    folder = put_detector(project, "retinanet", tmp_path / "weights")

    def refusal_message(*settings: str) -> str:
        done = ask(project, "plan.py", "--minutes", "1", "--set", *settings, *STEPS, check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "belong to retinanet" in refusal_message("network.detector=fcos", f"network.pretrained={folder}")
    tensors = load_file(str(folder / "model.safetensors"))
    lacking = {name: value for name, value in tensors.items() if name != "head.regression_head.conv.2.weight"}
    save_file(lacking, str(folder / "model.safetensors"))
    assert "1 of " in (message := refusal_message(f"network.pretrained={folder}"))
    assert "tensors are missing (parts.net.head" in message or "tensors are missing (head" in message
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000])
    assert "damaged, cut off" in refusal_message("network.detector=retinanet", f"network.pretrained={folder}")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "retinanet.pth")
    assert "m3b models convert" in refusal_message("network.detector=retinanet", f"network.pretrained={folder}")


@pytest.mark.slow
def test_monais_retinanet_in_volumes(tmp_path: Path) -> None:
    project = _make_project(tmp_path, "3")
    ask(project, "plan.py", "--minutes", "1", "--set", "network.detector=retinanet3d", 'augment.flip=["h"]', *STEPS)
    ask(project, "train.py")
    config = _deliver(project, "monai")
    assert config["plan"]["network"]["detector"] == "retinanet3d"  # type: ignore[index]


@pytest.mark.slow
def test_folds_of_a_librarys_detector_answer_together(tmp_path: Path) -> None:
    """Two networks on folds, a training that is cut off and goes on, and a deliverable of both."""
    project = _make_project(tmp_path)
    settings = ["network.detector=retinanet", "network.width=64", "folds=2", *STEPS]
    ask(project, "plan.py", "--minutes", "1", "--set", *settings)
    ask(project, "train.py")
    shutil.rmtree(project / "Logout/fold1")
    assert "2 folds" in ask(project, "train.py", "--resume").stdout or (project / "Logout/fold1/done.json").exists()
    config = _deliver(project, "torchvision")
    assert len(config["weights"]) == 2  # type: ignore[arg-type]
