"""`--set network.pretrained=` in the diagnosis template: from the plan over the trial against scratch to the deliverable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starts_kit import assemble, densenet, nnunet, parts, resnet, write_weights
from template_kit import call

pytestmark = pytest.mark.slow
STEPS = ("device=cpu", "max_steps=2", "batch=8", "folds=1", "size=[64,64]")


def _project(place: Path, cases: int = 24) -> Path:
    project = assemble("diagnosis", place / "work")
    code = "import sys; sys.path.insert(0, 'example'); import make_example; from pathlib import Path; "
    call(project, "-c", code + f"make_example.make_example(Path(), {cases})")
    return project


def test_a_named_start_is_compared_with_scratch_and_delivered_with_its_licence(tmp_path: Path) -> None:
    project = _project(tmp_path)
    tensors, arch = densenet()
    write_weights(project.parent / "pretrained" / "torchxrayvision" / "densenet121-res224-all", tensors,
        "torchxrayvision/densenet121-res224-all", arch)  # fmt: skip
    printed = call(
        project, "plan.py", "--set", "network.pretrained=torchxrayvision/densenet121-res224-all", *STEPS
    ).stdout
    assert "weights start from torchxrayvision/densenet121-res224-all (licence: Apache-2.0)" in printed
    assert "89 tensors loaded, 0 " in printed
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["channels"], plan["intensity"]["mean"], plan["intensity"]["std"]) == (1, [0.5], [0.25])
    assert plan["scratch"]["network"]["name"] == "small_cnn"
    printed = call(project, "train.py").stdout
    assert "with the weights of torchxrayvision/densenet121-res224-all" in printed
    verdict = json.loads((project / "Logout/start.json").read_text())
    assert verdict["chosen"] == ("pretrained" if verdict["pretrained"] >= verdict["scratch"] else "scratch")
    # both sides of the trial can be delivered, and neither needs the weights' folder
    for side in ("pretrained", "scratch"):
        (project / "Logout/start.json").write_text(json.dumps({**verdict, "chosen": side}))
        if side != verdict["chosen"]:
            for old in (project / "Logout").glob("fold*/*"):
                old.unlink()
            call(project, "train.py", "--resume")
        (project.parent / "pretrained").rename(project.parent / "gone")
        call(project, "export.py", "--out", f"../out-{side}")
        deliver = project.parent / f"out-{side}"
        answer = json.loads(call(project, f"../out-{side}/predict.py", "data/example/case_000.png").stdout)[0]
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
        config = json.loads((deliver / "config.json").read_text())
        assert config["start"]["chosen"] == side
        assert str(tmp_path) not in (deliver / "config.json").read_text()
        about = (deliver / "README.md").read_text()
        assert "after a short training of each" in about
        assert ("Apache-2.0" in about) == (side == "pretrained")
        assert config["plan"]["network"]["name"] == ("pretrained" if side == "pretrained" else "small_cnn")
        (project.parent / "gone").rename(project.parent / "pretrained")


def test_what_was_trained_before_learns_slowly_and_all_of_it_was_taken(tmp_path: Path) -> None:
    project = _project(tmp_path)
    tensors, arch = resnet()
    folder = write_weights(
        tmp_path / "mine", {**tensors, "fc.weight": tensors["bn1.weight"].clone()}, "torchvision/resnet18", arch
    )
    call(project, "plan.py", "--set", f"network.pretrained={folder}", "network.backbone_lr=0.05", *STEPS)
    code = """import json, torch
from safetensors.torch import load_file
from m3b.training.diagnosis.network import build_model
from m3b.training.pretrained.backbones import describe_weights
plan = json.load(open('plan.json'))
model = build_model(plan)
body = model.backbone.body
stored = load_file(plan['network']['pretrained'] + '/model.safetensors')
assert all(torch.equal(value, stored[name]) for name, value in body.state_dict().items() if 'tracked' not in name)
print(describe_weights(body)); print([(len(params), rate) for params, rate in model.groups(plan)])
print(len(list(model.parameters())))"""
    lines = call(project, "-c", code).stdout.splitlines()
    assert lines[0].startswith("72 tensors loaded, 1 ")
    slow, fast = json.loads(lines[1].replace("(", "[").replace(")", "]"))
    assert (slow[1], fast[1]) == (0.05, 1.0)
    assert slow[0] + fast[0] == int(lines[2])
    assert fast[0] == 4


def _refusal_message(folder: Path | str, task: str = "diagnosis", dims: int = 2) -> str:
    starts, backbones = parts("pretrained.starts"), parts("pretrained.backbones")
    with pytest.raises(starts.StartError) as caught:
        backbones.build_backbone(starts.find_start(str(folder), task, dims).network, dims, 3)
    return str(caught.value)


def test_wrong_partial_and_pickled_files_are_refused_with_what_to_do(tmp_path: Path) -> None:
    import torch

    tensors, arch = resnet()
    half = {name: value for name, value in tensors.items() if not name.startswith("layer4")}
    message = _refusal_message(write_weights(tmp_path / "half", half, "torchvision/resnet18", arch))
    assert "tensors are missing (layer4.0" in message
    assert "fetch it again" in message
    wrong = densenet()[0]
    assert "tensors are missing" in _refusal_message(
        write_weights(tmp_path / "wrong", wrong, "torchvision/resnet18", arch)
    )
    extra_blocks = {name.replace("layer4.0", f"layer4.{k}"): v for name, v in tensors.items() for k in (1, 2)}
    larger = write_weights(tmp_path / "larger", {**tensors, **extra_blocks}, "torchvision/resnet18", arch)
    assert "of a larger network" in _refusal_message(larger)
    wide = write_weights(
        tmp_path / "wide", {**tensors, "layer4.0.conv2.weight": torch.zeros(9, 64, 3, 3)}, "torchvision/resnet18", arch
    )
    assert "[9, 64, 3, 3], this network has [64, 64, 3, 3]" in _refusal_message(wide)
    cut = write_weights(tmp_path / "cut", tensors, "torchvision/resnet18", arch) / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    assert "damaged, cut off" in _refusal_message(cut.parent)
    (tmp_path / "pickle").mkdir()
    torch.save(tensors, tmp_path / "pickle" / "resnet18.pth")
    convert = f"m3b models convert {tmp_path}/pickle/resnet18.pth -o FOLDER"
    assert convert in _refusal_message(tmp_path / "pickle")
    assert convert in _refusal_message(tmp_path / "pickle" / "resnet18.pth")
    assert "did you mean" in _refusal_message("torchvision/resnet19")
    assert "m3b models fetch torchvision/resnet50 --from FOLDER" in _refusal_message("torchvision/resnet50")
    assert "is for report" in _refusal_message(write_weights(tmp_path / "words", tensors, "medgemma/4b-it"))
    ct = write_weights(tmp_path / "ct", tensors, "stunet/small", {"filters": [4], "depths": [1]})
    assert "is for 3D images" in _refusal_message(ct)
    write_weights(tmp_path / "odd", {"x": torch.zeros(2)}, "").joinpath("m3b-start.json").unlink()
    assert "no known family" in _refusal_message(tmp_path / "odd")
    part = {name: value for name, value in nnunet().items() if not name.startswith("decoder.transpconvs.0")}
    assert "no complete plain U-Net" in _refusal_message(
        write_weights(tmp_path / "nn", part, "totalsegmentator/total-3mm"), dims=3
    )


def test_plan_refuses_in_a_sentence(tmp_path: Path) -> None:
    project = _project(tmp_path, 12)
    tensors, arch = resnet()
    half = {name: value for name, value in tensors.items() if not name.startswith("layer4")}
    folder = write_weights(tmp_path / "half", half, "torchvision/resnet18", arch)
    done = call(project, "plan.py", "--set", f"network.pretrained={folder}", *STEPS, check=False)
    assert done.returncode == 1
    assert f"--set network.pretrained={folder}: " in done.stderr
    assert "tensors are missing" in done.stderr
    assert "Traceback" not in done.stderr
    settings = parts("plan_settings")
    with pytest.raises(SystemExit, match="make a new plan"):
        settings.apply_override({"network": {}}, "network.pretrained=rad-dino")


def test_a_folder_that_only_looks_like_a_family_is_not_given_its_name(tmp_path: Path) -> None:
    project = _project(tmp_path, 12)
    tensors, arch = resnet()
    folder = write_weights(tmp_path / "mine", tensors, "", arch, licence="CC0-1.0", name="my-own")
    call(project, "plan.py", "--set", f"network.pretrained={folder}", *STEPS)
    origin = json.loads((project / "plan.json").read_text())["network"]["origin"]
    assert origin["name"] == "my-own"
    assert origin["licence"] == "CC0-1.0"
    assert origin["source"] == "a folder of the user's"
