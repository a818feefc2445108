"""Plan, train, export, predict: the four commands of the segmentation template, for real, on tiny data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from segmentation_kit import assemble_segmentation, small_plan
from template_kit import NO_MEMORY, call, load, train_until_killed


@pytest.fixture
def organs(tmp_path: Path) -> Path:
    return assemble_segmentation(tmp_path / "work")


def _test_records(project: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((project / "Datapath/test.json").read_text())
    return records


def _example(project: Path, *options: str) -> None:
    call(project, "example/make_example.py", "--cases", "12", "--size", "16", *options)


def test_3d_from_data_to_masks_in_a_clean_process(organs: Path, tmp_path: Path) -> None:
    import nibabel as nib

    _example(organs)
    small_plan(organs)
    call(organs, "train.py")
    assert "plan.json differs" not in call(organs, "export.py").stdout
    plan = json.loads((organs / "plan.json").read_text())
    (organs / "plan.json").write_text(json.dumps({**plan, "refine": {"ball": ["largest"]}}))
    assert "differs from the plan of this training in refine" in call(organs, "export.py").stdout
    metrics = json.loads((organs / "Logout/metrics.json").read_text())
    assert set(metrics) >= {"validation", "epochs", "seconds"}
    assert metrics["validation"]["dice"] > 0.1
    rows = json.loads((organs / "Logout/valid_predictions.json").read_text())
    assert {"image", "patient"} <= set(rows[0])
    moved = tmp_path / "elsewhere"
    (organs / "Deliver").rename(moved)
    assert {file.suffix for file in moved.glob("*.*")} == {".json", ".md", ".py", ".safetensors", ".txt"}
    paths = [record["image_path"] for record in _test_records(organs)]
    (organs / "list.json").write_text(json.dumps([*paths, "data/example/gone.nii.gz"]))
    out = tmp_path / "out"
    out.mkdir()
    done = call(organs, str(moved / "predict.py"), "--list", "list.json", "-o", str(out / "o.json"), check=False)
    assert done.returncode == 1, done.stderr
    results = json.loads((out / "o.json").read_text())
    assert [result["image"] for result in results[:-1]] == paths
    assert "gone.nii.gz" in results[-1]["error"]
    for result in results[:-1]:
        image, mask = nib.load(organs / result["image"]), nib.load(out / result["mask"])
        assert mask.shape == image.shape
        assert np.allclose(mask.affine, image.affine)
        values = np.asarray(mask.dataobj)
        assert set(np.unique(values)) <= {0, 2, 5}  # the numbers of label_dict.json
        assert result["volumes_ml"]["ball"] == pytest.approx((values == 5).sum() * 1.8e-3, abs=1e-3)


@pytest.mark.slow
def test_2d_pictures_with_a_file_a_class_get_a_file_a_class(organs: Path) -> None:
    _example(organs, "--dims", "2", "--objects")
    plan = small_plan(organs)
    assert (plan["dims"], plan["overlap"], plan["labels"]) == (2, False, None)
    call(organs, "train.py")
    call(organs, "export.py")
    path = _test_records(organs)[0]["image_path"]
    result = json.loads(call(organs, "Deliver/predict.py", path).stdout)[0]
    assert set(result["masks"]) == {"box", "ball"}
    masks = {
        name: load("m3b.dataset.formats").read_labels(str(organs / file)).array
        for name, file in result["masks"].items()
    }
    assert {mask.shape for mask in masks.values()} == {
        load("m3b.dataset.formats").read_image(path, organs).array.shape[1:]
    }
    assert result["volumes_ml"] == {"box": None, "ball": None}
    paths = [record["image_path"] for record in _test_records(organs)]
    (organs / "list.json").write_text(json.dumps([paths[0], "data/example/gone.png", *paths[1:]]))
    answers = []
    for threads in (1, 3):  # several pictures at the same time
        code = f"import torch, sys; sys.path.insert(0, 'Deliver'); torch.set_num_threads({threads}); import predict; "
        options = ["--list", "list.json", "-o", "out.json", "--masks", f"masks{threads}"]
        call(organs, "-c", f"{code}sys.exit(predict.main({options}))", check=False)
        answers.append(json.loads((organs / "out.json").read_text()))
    assert [answer["image"] for answer in answers[1]] == [paths[0], "data/example/gone.png", *paths[1:]]
    assert [number for number, answer in enumerate(answers[1]) if "error" in answer] == [1]
    for first_answer, second_answer in zip(*answers, strict=True):
        for name, file in first_answer.get("masks", {}).items():
            first, second = (np.asarray(Image.open(organs / place)) for place in (file, second_answer["masks"][name]))
            assert np.mean(first == second) > 0.99


@pytest.mark.slow
def test_a_killed_training_goes_on_with_the_same_schedule(organs: Path) -> None:
    _example(organs)
    small_plan(organs, max_steps=60)
    train_until_killed(organs)
    printed = call(organs, "train.py", "--resume").stdout
    assert "going on from checkpoint" in printed
    metrics = json.loads((organs / "Logout/metrics.json").read_text())
    assert metrics["steps"] == 60
    rows = (organs / "Logout/log.csv").read_text().splitlines()
    rate = rows[0].split(",").index("lr")
    assert float(rows[-1].split(",")[rate]) < 1e-3  # annealed from 0.01


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_clearly(organs: Path) -> None:
    _example(organs)
    small_plan(organs, lr=1e38, clip=1e38, ema=0, max_steps=1)
    done = call(organs, "train.py", check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the loss is" in done.stdout


@pytest.mark.slow
def test_out_of_memory_makes_the_patch_smaller_then_ends(organs: Path) -> None:
    _example(organs)
    small_plan(organs, batch=2)
    recipe = organs / "recipe.py"
    recipe.write_text(recipe.read_text() + NO_MEMORY)
    done = call(organs, "train.py", check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "going on with batch 1" in done.stdout
    assert "going on with a smaller input, [12, 12, 12]" in done.stdout


@pytest.mark.slow
def test_nnunet_without_time_for_a_step_delivers_nothing(organs: Path) -> None:
    pytest.importorskip("nnunetv2")
    _example(organs)
    call(organs, "plan.py", "--minutes", "5", "--set", "engine=nnunet", "device=cpu")
    done = call(organs, "train.py", "--minutes", "0.001", check=False)
    assert done.returncode == 1
    assert "too little time to train" in done.stderr
    assert not list(organs.glob("Logout/model0/*.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("dims", ["2", "3"])
def test_nnunet_goes_through_and_its_export_needs_no_nnunet(organs: Path, dims: str) -> None:
    pytest.importorskip("nnunetv2")
    _example(organs, "--dims", dims)
    call(organs, "plan.py", "--minutes", "5", "--set", "engine=nnunet", "device=cpu")
    plan = json.loads((organs / "plan.json").read_text())
    (organs / "plan.json").write_text(json.dumps({**plan, "max_steps": 2, "threads": 1}))
    call(organs, "train.py")
    call(organs, "export.py")
    block = "import sys; sys.modules['nnunetv2'] = None; sys.argv = ['p', *sys.argv[1:]]; "
    block += "sys.path.insert(0, 'Deliver'); import predict; sys.exit(predict.main())"
    path = _test_records(organs)[0]["image_path"]
    result = json.loads(call(organs, "-c", block, path).stdout)[0]
    mask = load("m3b.dataset.formats").read_labels(str(organs / result["mask"])).array
    assert mask.shape == load("m3b.dataset.formats").read_image(path, organs).array.shape[1:]
    assert set(np.unique(mask)) <= {0, 2, 5}


def test_records_without_a_mask_are_refused_by_name(organs: Path) -> None:
    _example(organs)
    file = organs / "Datapath/train.json"
    records = json.loads(file.read_text())
    records[3]["mask_path"] = None
    file.write_text(json.dumps(records))
    done = call(organs, "plan.py", check=False)
    assert done.returncode != 0
    assert records[3]["image_path"] in done.stderr
