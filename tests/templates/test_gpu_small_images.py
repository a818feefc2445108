"""Plans of classifiers for a GPU: networks that small images and flat volumes go through, and the stem of a ResNet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from template_kit import assemble, build_loop

NAMES = ("plan", "recipe")


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    forget()
    place = assemble(tmp_path / "work")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place)
    yield place
    forget()


def write_cases(project: Path, shape: tuple[int, ...], cases: int) -> None:
    """A file of each shape, which all cases name."""
    (project / "Datapath").mkdir(exist_ok=True)
    records = []
    for number in range(cases):
        np.save(project / f"{number % 2}.npy", np.random.default_rng(number % 2).integers(0, 255, shape, np.uint8))
        records.append({"image_path": f"{number % 2}.npy", "labels": ["ab"[number % 2]], "patient": f"p{number}"})
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text('{"a": 0, "b": 1}')


@pytest.mark.parametrize("shape", [(28, 28), (64, 64, 24)], ids=str)
def test_many_small_images_go_through_the_network_of_their_plan(project: Path, shape: tuple[int, ...]) -> None:
    """A DenseNet ended with "output size is too small"."""
    write_cases(project, shape, 504)
    from m3b.training.diagnosis import plan as planning
    from m3b.training.diagnosis.fingerprint import fingerprint
    from m3b.training.diagnosis.network import build_model

    records = json.loads((project / "Datapath/train.json").read_text())
    plan: dict[str, Any] = planning.make_plan(fingerprint(records, {"a": 0, "b": 1}), 60, has_gpu=True)
    assert plan["network"]["name"] == "resnet18"
    with torch.no_grad():
        output = build_model(plan, with_loss=False).eval()(torch.zeros(1, plan["channels"], *plan["size"]))
    assert output["logits"].shape == (1, 2)


@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
def test_the_input_has_as_many_frames_as_the_clips_have(project: Path, gpu: bool) -> None:
    """Clips of 8 frames became inputs of 16."""
    from PIL import Image

    from m3b.training.diagnosis import plan as planning
    from m3b.training.diagnosis.fingerprint import fingerprint
    from m3b.training.diagnosis.network import build_model

    records = []
    for number in range(8):
        pixels = np.random.default_rng(number).integers(0, 255, (8, 48, 48), np.uint8)
        first, *later_frames = (Image.fromarray(frame) for frame in pixels)
        first.save(project / f"{number}.gif", save_all=True, append_images=later_frames)
        records.append({"image_path": f"{number}.gif#frames=8", "labels": ["ab"[number % 2]], "patient": f"p{number}"})
    plan: dict[str, Any] = planning.make_plan(fingerprint(records, {"a": 0, "b": 1}), 60, has_gpu=gpu)
    assert (plan["frames"], plan["size"], plan["channels"]) == (8, [48, 48, 8], 1)
    with torch.no_grad():
        output = build_model(plan, with_loss=False).eval()(torch.zeros(1, plan["channels"], *plan["size"]))
    assert output["logits"].shape == (1, 2)


def test_a_densenet_for_small_images_is_refused(project: Path) -> None:
    write_cases(project, (28, 28), 60)
    from m3b.training.diagnosis import plan as planning

    with pytest.raises(SystemExit, match="resnet18"):
        planning.main(["--device", "cuda:24GB", "--minutes", "60", "--set", "network.name=densenet121"])


def test_the_stem_of_a_resnet_halves_large_images_twice(project: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    from m3b.training.diagnosis.network import build_model

    plan = {"dims": 2, "channels": 3, "size": [224, 224], "classes": ["a", "b"], "network": {"name": "resnet18"}}
    network = build_model(plan, with_loss=False).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, 3, 224, 224))
    assert counter.get_total_flops() / 2e9 == pytest.approx(1.8, abs=0.1), "as in He et al. (2016), table 1"


def test_an_epoch_on_a_gpu_leaves_out_its_smaller_last_batch(project: Path) -> None:
    """cuDNN looked for its quickest ways anew for it: five seconds in the first epoch of a network of volumes."""
    from m3b.training.loop import drops_last_batch

    assert drops_last_batch(810, 16, 1, on_gpu=True)
    assert not drops_last_batch(810, 16, 1, on_gpu=False)
    assert not drops_last_batch(40, 16, 1, on_gpu=True), "too much of such an epoch would be left out"
    assert not drops_last_batch(810, 16, 16, on_gpu=True)
    assert drops_last_batch(17, 16, 1, on_gpu=False), "batch normalisation needs two cases"


def test_the_running_average_copies_no_counters(project: Path) -> None:
    """The counter of each batch normalisation was copied in every step: 121 copies, a DenseNet's."""
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    loop = build_loop(network, project, ema=0.5)
    first = loop.average[0].weight.clone()
    with torch.no_grad():
        network[0].weight += 1
    loop.clock.step = 10
    loop.update_average()
    floats = [value for value in network.state_dict().values() if value.is_floating_point()]
    assert len(loop.averaged) == len(floats)
    assert all(value.is_floating_point() for value in loop.averaged)
    assert torch.allclose(loop.average[0].weight, first + 0.5)


def test_trainings_of_one_process_may_differ_in_precision(project: Path) -> None:
    values = torch.ones(2, 1, 8, 8)
    for precision, half in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp32", torch.float32)):
        network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Conv2d(2, 2, 3))
        loop = build_loop(network, project, precision=precision)
        dtypes = []
        network[0].register_forward_hook(lambda _, inputs, output, dtypes=dtypes: dtypes.append(output.dtype))
        assert loop.model(values).dtype == torch.float32
        assert dtypes == [half]


@pytest.mark.parametrize("shape", [(2, 1, 9, 12), (1, 2, 6, 7, 8)], ids=str)
def test_masks_are_blurred_without_a_convolution(
    project: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    from scipy import ndimage

    from m3b.training import augment_masks

    monkeypatch.setattr(augment_masks.functional, "conv1d", None)
    monkeypatch.setattr(torch, "rand", lambda *_: torch.tensor(0.0))
    image = torch.randn(shape)
    torch.manual_seed(3)
    blurred = augment_masks.AugmentMasks({"blur": 0.8})._blur(image)
    torch.manual_seed(3)
    sigma = float(torch.empty(()).uniform_(0.3, 0.8))
    axes = tuple(range(2, image.ndim))
    expected = ndimage.gaussian_filter(image.numpy(), sigma, mode="nearest", radius=2, axes=axes)
    assert blurred.numpy() == pytest.approx(expected, abs=1e-5)
