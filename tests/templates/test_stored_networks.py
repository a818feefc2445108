"""The networks of an ensemble with the same frozen backbone: stored once, computed once, with the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_frozen_backbone import _build, _plan

from m3b.training.ensemble import build_ensemble
from m3b.training.stored_networks import SHARED_FILE, copy_weights, load_networks

FOLDS = 3


def _train_folds(task: str, backbone_lr: float, folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """Return a plan and weight files of folds whose heads differ."""
    plan, files = _plan(task, backbone_lr), []
    torch.manual_seed(0)
    backbone = {name: value for name, value in _build(task, plan).state_dict().items() if ".body." in name}
    for fold in range(FOLDS):
        files.append(folder / f"fold{fold}.safetensors")
        save_file({**_build(task, plan).state_dict(), **backbone}, str(files[-1]))
    return plan, files


def _count_calls(network: torch.nn.Module) -> list[int]:
    """Return a list that grows by the size of each batch the inner backbone sees."""
    batches: list[int] = []
    for module in network.modules():
        if type(module).__name__ == "ResNet":
            module.register_forward_pre_hook(lambda _, inputs: batches.append(len(inputs[0])))
    return batches


@pytest.mark.parametrize("task", ["diagnosis", "segmentation"])
def test_a_frozen_backbone_of_all_folds_is_stored_and_computed_once(task: str, tmp_path: Path) -> None:
    plan, files = _train_folds(task, 0, tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    config = json.loads(json.dumps(copy_weights(files, out, plan["network"])))
    assert (len(config["weights"]), config["shared_weights"]) == (FOLDS, SHARED_FILE)
    frozen_names = {name for name in load_file(str(files[0])) if ".body.inner." in name}
    assert frozen_names
    assert frozen_names <= set(load_file(str(out / SHARED_FILE)))
    sizes = [sum(tensor.nbytes for tensor in load_file(str(file)).values()) for file in (files[0], out / SHARED_FILE)]
    stored = sum(tensor.nbytes for file in out.iterdir() for tensor in load_file(str(file)).values())
    assert stored == sizes[1] + FOLDS * (sizes[0] - sizes[1])
    networks = load_networks(out, config, lambda: _build(task, plan))
    separate = [_build(task, plan) for _ in files]
    for network, file in zip(separate, files, strict=True):
        network.load_state_dict(load_file(str(file)))
    ensembles = [build_ensemble(models, "classes") for models in (networks, separate)]
    batches = [_count_calls(ensemble) for ensemble in ensembles]
    images = torch.randn(3, 2, 3, 32, 32)
    with torch.no_grad():
        for batch in (images[0], images[1], images[1].flip(3), images[0], images[2][:1]):
            logits = [ensemble(pixel_values=batch)["logits"] for ensemble in ensembles]
            assert torch.equal(*logits)
    assert [sum(sizes) for sizes in batches] == [9, FOLDS * 9]


def test_folds_whose_backbones_learned_stay_whole(tmp_path: Path) -> None:
    plan, files = _train_folds("diagnosis", 0.1, tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / SHARED_FILE).write_bytes(b"of an earlier export")
    assert list(copy_weights(files, out, plan["network"])) == ["weights"]
    assert sorted(file.name for file in out.iterdir()) == [f"model-{k}-of-{FOLDS}.safetensors" for k in (1, 2, 3)]
    assert (out / "model-1-of-3.safetensors").read_bytes() == files[0].read_bytes()


def test_a_graph_computes_a_shared_backbone_once(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    plan, files = _train_folds("segmentation", 0, tmp_path)
    counts = []
    for network in (plan["network"], {**plan["network"], "backbone_lr": 0.1}):
        out = tmp_path / f"out{len(counts)}"
        out.mkdir()
        models = load_networks(out, copy_weights(files, out, network), lambda: _build("segmentation", plan))
        file = out / "graph.onnx"
        with torch.no_grad():
            torch.onnx.export(build_ensemble(models, "classes"), (torch.randn(1, 3, 32, 32),), str(file), dynamo=False)
        counts.append(sum(node.op_type == "Conv" for node in onnx.load(str(file)).graph.node))
    [backbone] = [module for module in models[0].modules() if type(module).__name__ == "ResNet"]
    convolutions = sum(isinstance(module, torch.nn.Conv2d) for module in backbone.modules())
    assert counts[1] - counts[0] == (FOLDS - 1) * convolutions
