"""Volumes and clips by a 2D network on slices: its parts, when it is planned, how it is weighed against a 3D network, its delivery."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import ndimage
from starts_kit import vit, write_weights
from template_kit import Run

import m3b
from m3b.training.diagnosis.encoder_choice import (
    apply_chosen_encoder,
    check_encoder,
    choose_encoder,
    choose_weight,
    weigh_encoders,
)
from m3b.training.diagnosis.gpu_fit import make_noise_batch
from m3b.training.diagnosis.network import build_model
from m3b.training.diagnosis.recipe import DiagnosisRecipe
from m3b.training.diagnosis.saliency import compute_saliency
from m3b.training.diagnosis.targets import get_target
from m3b.training.recipe import use_recipe
from m3b.training.slice_encoder import stack_neighbours

SIZE = (32, 32, 8)
TASKS: dict[str, dict[str, Any]] = {
    "diagnosis": {"classes": ["well", "sick"]},
    "grading": {"classes": ["0", "1", "2"]},
    "regression": {"classes": ["age"], "number": {"centre": 0.0, "scale": 1.0}},
    "survival": {"classes": ["months"], "edges": [1.0, 2.0, 3.0]},
}


def make_plan(encoder: str, task: str = "diagnosis", **changes: Any) -> dict[str, Any]:
    network = {"name": "small_cnn", "width": 4, "dropout": 0.0, "encoder": encoder}
    plan = {"task": task, "multi_label": False, "dims": 3, "channels": 1, "size": list(SIZE), "network": network,
            "class_weights": [1.0] * 3, "label_smoothing": 0.0, **TASKS[task]}  # fmt: skip
    plan["class_weights"] = plan["class_weights"][: len(plan["classes"])]
    return {**plan, **changes}


def build(plan: dict[str, Any], seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return build_model(plan)


def make_facts(**changes: Any) -> dict[str, Any]:
    return {"cases": 2000, "spacing": [1.0, 1.0, 1.5], "frames": None, "views": 1, **changes}


# --- network ---------------------------------------------------------------------------------------------------------


def test_each_slice_is_seen_with_its_neighbours() -> None:
    volumes = torch.arange(4.0).expand(1, 1, 2, 2, 4)
    assert stack_neighbours(volumes)[0, :, :, 0, 0].tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 3]]
    channels = torch.stack([volumes[0, 0], 10 + volumes[0, 0]])[None]
    assert stack_neighbours(channels)[0, 1, :, 0, 0].tolist() == [0, 10, 1, 11, 2, 12]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("encoder", ["slices", "both"])
def test_every_target_and_covariates_are_served(task: str, encoder: str) -> None:
    rules = [{"name": "age", "kind": "number", "centre": 50.0, "scale": 10.0, "unknown": 0}]
    for changes in ({}, {"covariates": rules}):
        plan = make_plan(encoder, task, **changes)
        model, batch = build(plan), make_noise_batch(plan, 3)
        model.train()(**batch)["loss"].backward()
        outputs = len(plan.get("edges") or plan["classes"])
        assert all(parameter.grad is not None for parameter in model.parameters())
        assert model.eval()(**batch)["logits"].shape == (3, outputs)


def test_both_learn_alone_and_answer_by_their_weight() -> None:
    plan = make_plan("both")
    model, batch = build(plan), make_noise_batch(plan, 4)
    model.eval()
    logits = {}
    for weight in (0.0, 0.25, 1.0):
        model.slice_weight = weight
        logits[weight] = model(**batch)["logits"]
    assert not torch.allclose(logits[0.0], logits[1.0])
    assert torch.allclose(logits[0.25], 0.75 * logits[0.0] + 0.25 * logits[1.0], atol=1e-6)
    for module in model.modules():
        module.training = False
    model.training = True
    losses = [float(model.loss(logits[weight].detach(), batch["labels"])) for weight in (0.0, 1.0)]
    assert float(model(**batch)["loss"].detach()) == pytest.approx(sum(losses) / 2, abs=1e-5)


def test_a_finding_in_one_slice_moves_the_attention() -> None:
    model = build(make_plan("slices", size=[16, 16, 8]))
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    for step in range(60):
        volumes, labels, _ = draw_slices(12, step)
        optimizer.zero_grad()
        model(volumes, labels)["loss"].backward()
        optimizer.step()
    volumes, labels, places = draw_slices(60, 1000)
    attentions: list[torch.Tensor] = []
    model.eval().backbone.head.attention.register_forward_hook(lambda _m, _i, output: attentions.append(output[..., 0]))
    with torch.no_grad():
        logits = model(volumes)["logits"]
    assert float((logits.argmax(1) == labels.argmax(1)).float().mean()) > 0.9
    sick = labels[:, 1] > 0
    nearest = (attentions[0][sick].argmax(1) - places[sick]).abs() <= 1
    assert float(nearest.float().mean()) > 0.8


def draw_slices(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return noise, with a bright spot in one slice of the sick; the labels; and the slices."""
    random = np.random.default_rng(seed)
    volumes = random.normal(0, 1, (count, 1, 16, 16, 8)).astype(np.float32)
    labels, places = np.arange(count) % 2, random.integers(0, 8, count)
    for volume, label, place in zip(volumes, labels, places, strict=True):
        row, column = random.integers(1, 10, 2)
        volume[0, row : row + 5, column : column + 5, place] += 2.5 * label
    return torch.from_numpy(volumes), torch.from_numpy(np.eye(2, dtype=np.float32)[labels]), torch.from_numpy(places)


def test_saliency_of_slices_is_by_occlusion() -> None:
    plan = make_plan("slices", size=[16, 16, 8])
    model = build(plan).eval()
    config = {"plan": plan, "multi_label": False}
    image = draw_slices(2, 0)[0][1:]

    def compute_logits(images: torch.Tensor, models: Any) -> torch.Tensor:
        return torch.as_tensor(models[0](images)["logits"])

    assert compute_saliency([model], compute_logits, image, config, 1).method == "occlusion"


# --- plan --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "minutes", "encoder"),
    [
        (make_facts(), 20, "volume"),
        (make_facts(cases=60), 20, "volume"),
        (make_facts(cases=60), 2, "volume"),
        (make_facts(cases=60, views=2), 20, "volume"),
        (make_facts(frames=8, spacing=None), 20, "both"),
        (make_facts(spacing=[0.7, 0.7, 5.0]), 20, "both"),
    ],
)
def test_both_are_planned_for_clips_and_thick_slices(facts: dict[str, Any], minutes: float, encoder: str) -> None:
    assert choose_encoder(facts, minutes) == encoder


@pytest.mark.parametrize(
    "plan",
    [
        make_plan("slices", dims=2, size=[32, 32]),
        make_plan("both", views=2),
        {**make_plan("both"), "network": {"encoder": "both", "config": {"builder": "resnet", "dims": 2}}},
        {**make_plan("slices"), "network": {"encoder": "slices", "config": {"builder": "stunet", "dims": 3}}},
        {**make_plan("slices"), "network": {"encoder": "slices", "config": {"model_type": "vit"}}},
    ],
)
def test_what_an_encoder_does_not_serve_is_refused(plan: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match=r"network\.encoder="):
        check_encoder(plan)


# --- weight --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signals", "weights"),
    [((0.0, 2.0), {0.75, 1.0}), ((2.0, 0.0), {0.0, 0.25}), ((1.0, 1.0), {0.25, 0.5, 0.75})],
)
def test_validation_chooses_the_weight(signals: tuple[float, float], weights: set[float]) -> None:
    random, plan = np.random.default_rng(0), make_plan("both")
    truth = random.integers(0, 2, 60)
    parts = [signal * (2 * truth - 1) + random.normal(size=60) for signal in signals]
    logits = tuple(np.stack([-part, part], axis=1).astype(np.float32) for part in parts)
    choice = choose_weight(get_target(plan), logits, np.eye(2, dtype=np.float32)[truth], np.zeros(60, int))
    assert choice["weight"] in weights
    assert choice["loss_delivered"] <= min(choice["loss_volume"], choice["loss_slices"])


class WrappingRecipe(DiagnosisRecipe):
    """A recipe with another input channel, and a layer behind the networks of the plan."""

    added_channels = 1

    def derive_channels(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.cat([pixels, pixels.square()], dim=1)

    def build_network(self, plan: Mapping[str, Any], load: bool = True) -> torch.nn.Module:
        return torch.nn.Sequential(super().build_network(plan, load), torch.nn.Linear(2, 2))


@pytest.mark.parametrize("part", [0, 1])
def test_one_encoder_is_delivered_without_the_other(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    use_recipe(WrappingRecipe())
    (tmp_path / "Logout/fold0").mkdir(parents=True)
    plan, truth = make_plan("both", folds=1), np.arange(40) % 2
    model, batch = build(plan).eval(), make_noise_batch(plan, 4)
    save_file(model.state_dict(), "Logout/fold0/best.safetensors")
    logits = np.random.default_rng(0).normal(size=(2, 40, 2)).astype(np.float32)
    logits[part, :, 1] += 9 * (2 * truth - 1)
    labels = np.eye(2, dtype=np.float32)[truth]
    (result,), choice = weigh_encoders(plan, [{"logits": logits, "seen": logits, "labels": labels}])
    assert choice["weight"] == part
    assert np.array_equal(result["logits"], logits[part])
    delivered = build(apply_chosen_encoder(plan, choice), seed=1).eval()
    delivered.load_state_dict(load_file("Logout/fold0/delivered.safetensors"))
    model.slice_weight = float(part)
    assert torch.allclose(delivered(**batch)["logits"], model(**batch)["logits"], atol=1e-6)


# --- whole ---------------------------------------------------------------------------------------------------------------


def write_volumes(project: Path, count: int) -> None:
    """Write volumes of thick slices: the sick have a lesion in one slice, the well as much brightness over four slices."""
    random, (rows, columns, slices) = np.random.default_rng(0), SIZE
    grid, paths = np.mgrid[:rows, :columns], []
    (project / "data").mkdir(exist_ok=True)
    for case in range(count):
        volume = ndimage.gaussian_filter(random.normal(0, 1, SIZE), (1.5, 1.5, 0))
        volume, place = volume / volume.std(), int(random.integers(2, slices - 2))
        row, column = random.integers(8, 20, 2)
        spot = np.hypot(grid[0] - row, grid[1] - column) < 5
        for position in range(slices):
            spread = 0.25 * (abs(position - place + 0.5) < 2)
            volume[..., position][spot] += 4 * (float(position == place) if case % 2 else spread)
        image = nibabel.Nifti1Image((1000 + 100 * volume).astype(np.float32), np.diag([1.0, 1.0, 5.0, 1.0]))
        paths.append(f"data/{case:03d}.nii.gz")
        nibabel.save(image, project / paths[-1])
    write_index(project, paths)


def write_clips(project: Path, count: int) -> None:
    """Write clips of eight frames with a spot, which moves in the sick alone."""
    av = pytest.importorskip("av")
    random, grid, paths = np.random.default_rng(0), np.mgrid[: SIZE[0], : SIZE[1]], []
    (project / "data").mkdir(exist_ok=True)
    for case in range(count):
        row, column = random.integers(8, 20, 2)
        paths.append(f"data/{case:03d}.mp4#frames={SIZE[2]}")
        with av.open(str(project / f"data/{case:03d}.mp4"), "w") as out:
            stream = out.add_stream("mpeg4", rate=10)
            stream.height, stream.width, stream.pix_fmt = *SIZE[:2], "yuv420p"
            for position in range(SIZE[2]):
                image = random.integers(40, 80, SIZE[:2], np.uint8)
                image[np.hypot(grid[0] - row, grid[1] - column - (position if case % 2 else 0)) < 5] = 180
                colour = np.repeat(image[..., None], 3, axis=-1)
                out.mux(stream.encode(av.VideoFrame.from_ndarray(colour, format="rgb24")))
            out.mux(stream.encode())
    write_index(project, paths)


def write_index(project: Path, paths: list[str]) -> None:
    records = [
        {"image_path": path, "labels": [("well", "sick")[case % 2]], "patient": f"p{case}"}
        for case, path in enumerate(paths)
    ]
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text(json.dumps({"well": 0, "sick": 1}))


SETTINGS = ("device=cpu", "network.pretrained=none", "network.width=8", "precision=fp32", "size=[32,32,8]", "lr=0.003",
            "cross_validation=false", "validation_share=0.3")  # fmt: skip


def deliver(project: Path, run: Run, *settings: str) -> dict[str, Any]:
    """Plan, train and export; return config.json."""
    run("plan.py", "--set", *SETTINGS, *settings)
    run("train.py")
    run("export.py")
    config: dict[str, Any] = json.loads((project / "Deliver/config.json").read_text())
    return config


def check_answers(project: Path, run: Run, config: dict[str, Any]) -> None:
    """Assert that the deliverable answers as on validation."""
    stored = np.load(project / "Logout/valid_logits.npz")["logits"] / config["temperature"] + config["bias"]
    cases = [case["image"] for case in json.loads((project / "Logout/valid_predictions.json").read_text())]
    answers = json.loads(run("Deliver/predict.py", *cases, check=False).stdout)
    expected = torch.softmax(torch.from_numpy(stored).double(), 1).numpy()
    assert np.array([list(answer["probabilities"].values()) for answer in answers]) == pytest.approx(expected, abs=2e-3)


def check_exports(project: Path) -> None:
    for kind in ("onnx", "monai-bundle"):
        assert m3b.export_model(project / "Deliver", kind, project / kind).largest_difference <= 1e-3


def test_a_short_training_of_both_answers_as_on_validation(project: Path, run: Run) -> None:
    write_volumes(project, 24)
    config = deliver(project, run, "network.encoder=both", "max_steps=2", "folds=1", "tta.use=true")
    metrics, network = json.loads((project / "Logout/metrics.json").read_text()), config["plan"]["network"]
    assert config["plan"]["encoders"] == metrics["encoders"]
    assert network["slice_weight"] == metrics["encoders"]["weight"]
    assert network["encoder"] == {0.0: "volume", 1.0: "slices"}.get(network["slice_weight"], "both")
    assert metrics["encoders"]["description"] in (project / "Deliver/README.md").read_text()
    assert (project / "Deliver/familiar.safetensors").is_file()
    check_answers(project, run, config)
    plan = json.loads((project / "plan.json").read_text())
    (project / "plan.json").write_text(json.dumps({**plan, "views": 2}))
    assert run("plan.py", "--time-only", check=False).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("write_cases", [write_volumes, write_clips])
def test_one_slice_or_neighbouring_frames_tell_the_class(
    write_cases: Callable[[Path, int], None], project: Path, run: Run
) -> None:
    write_cases(project, 40)
    settings = ("network.encoder=both", "max_steps=150", "folds=2", "tta.use=false")
    config = deliver(project, run, *settings)
    choice = config["plan"]["encoders"]
    assert choice["slices"] > 0.9
    assert choice["loss_delivered"] <= min(choice["loss_volume"], choice["loss_slices"])
    check_answers(project, run, config)
    check_exports(project)


@pytest.mark.slow
def test_pretrained_2d_weights_serve_slices(project: Path, run: Run, tmp_path: Path) -> None:
    write_volumes(project, 24)
    tensors, arch = vit()
    folder = write_weights(tmp_path / "weights", tensors, "timm/vit_small_patch16_224.augreg_in21k", arch)
    run("plan.py", "--set", f"network.pretrained={folder}", "network.encoder=slices", "network.trial=0",
        "network.backbone_lr=0", "network.feature_views=1", "device=cpu", "max_steps=4", "folds=2", "precision=fp32",
        "cross_validation=false", "tta.use=false")  # fmt: skip
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["channels"], plan["network"]["encoder"]) == (1, "slices")
    run("train.py")
    run("export.py")
    config = json.loads((project / "Deliver/config.json").read_text())
    assert str(tmp_path) not in json.dumps(config["plan"])
    check_answers(project, run, config)
    check_exports(project)
