"""What a training step needs, estimated from a small input, against what steps on a processor really need; plans fitted to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from template_kit import load
from torch import nn

from m3b.resources import copy_template

fitting, machine, memory, step_cost = (load(name) for name in ("gpu_fitting", "machine", "memory", "step_cost"))


class ModelWithLoss(nn.Module):
    """A network with its loss, as the templates have them."""

    def __init__(self, network: nn.Module, loss: Any) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.loss(self.network(pixel_values), labels)}


def unet() -> tuple[nn.Module, Any]:
    network = {"filters": [8, 16, 32], "strides": [[1] * 3, [2] * 3, [2] * 3], "kernels": [[3] * 3] * 3}
    losses = load("losses")
    model = ModelWithLoss(load("unet").UNet(3, 1, 3, {**network, "deep_supervision": True}),
                  lambda output, mask: losses.deep_supervision_loss(losses.MaskLoss(), output, mask))  # fmt: skip
    return model, lambda n: {"pixel_values": torch.randn(n, 1, 16, 16, 16),
                             "labels": torch.zeros(n, 16, 16, 16, dtype=torch.uint8)}  # fmt: skip


def classifier() -> tuple[nn.Module, Any]:
    block = load("residual_block").ResidualBlock
    layers = nn.Sequential(
        block(2, 3, 16, 2), block(2, 16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4)
    )
    return ModelWithLoss(layers, nn.functional.cross_entropy), lambda n: {
        "pixel_values": torch.randn(n, 3, 64, 64), "labels": torch.zeros(n, dtype=torch.long)}  # fmt: skip


def transformer() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return ModelWithLoss(
        nn.Sequential(layer, nn.Linear(32, 8)),
        lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()),
    ), (lambda n: {"pixel_values": torch.randn(n, 40, 32), "labels": torch.zeros(n, 40, dtype=torch.long)})


KINDS = [unet, classifier, transformer]


def allocator_peak(model: nn.Module, batch: dict[str, torch.Tensor]) -> int:
    """Return the peak bytes of both passes by the allocator's own record."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        model(**batch)["loss"].backward()
    now = peak = 0
    for event in record.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def costs_of(kind: Any) -> Any:
    """Return the costs of a network, and a function that makes its noise at the size of a plan."""
    model, batch_of = kind()

    def noise(plan: dict[str, Any], cases: int) -> dict[str, torch.Tensor]:
        batch = batch_of(cases)
        if "voxels" in plan:
            pixels = torch.randn(cases, batch["pixel_values"].shape[1], *plan["size"])
            return {
                "pixel_values": pixels,
                "labels": batch["labels"] if batch["labels"].ndim == 1 else pixels[:, 0].byte() * 0,
            }
        return batch

    return step_cost.StepCosts(noise, lambda _: model)


@pytest.mark.parametrize("kind", [unet, classifier], ids=lambda kind: kind.__name__)
def test_the_estimate_is_near_the_peak_of_a_real_step(kind: Any) -> None:
    """Counted on a small input, for one with many times its pixels."""
    dims, side = (3, 32) if kind is unet else (2, 192)
    costs = costs_of(kind)
    plan = {"size": [side] * dims, "dims": dims, "voxels": True, "network": {}, "precision": "fp32"}
    estimate = costs.estimate(plan)
    peak = allocator_peak(costs.build(plan), costs.noise(plan, 4))
    assert 0.8 * peak <= estimate.weights + 4 * estimate.per_case <= 1.5 * peak
    assert estimate.weights >= sum(4 * weight.numel() for weight in costs.build(plan).parameters())
    assert costs.estimate({**plan, "precision": "bf16"}).per_case < 0.9 * estimate.per_case
    assert estimate.operations > 1e8
    assert estimate.kernels > 10


def test_the_network_is_that_of_the_planned_input() -> None:
    """The stem of a ResNet for small inputs has fifteen times the operations for each pixel of an image of 224 pixels."""
    from m3b.training.diagnosis.network import build_model

    class Classes(nn.Module):
        def __init__(self, plan: dict[str, Any]) -> None:
            super().__init__()
            self.network = build_model(plan, with_loss=False)

        def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.network(pixel_values)["logits"].sum()}

    plan = {"dims": 2, "channels": 3, "size": [224, 224], "classes": ["a", "b"], "network": {"name": "resnet18"}}
    costs = step_cost.StepCosts(lambda plan, cases: {"pixel_values": torch.randn(cases, 3, *plan["size"])}, Classes)
    operations = costs.estimate({**plan, "precision": "fp32"}).operations
    assert operations / (3 * 2 * 1.8e9) == pytest.approx(1, abs=0.1), "as in He et al. (2016), table 1"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_network_that_takes_one_size_is_measured_at_this_size(kind: Any) -> None:
    size = {unet: [16] * 3, classifier: [64] * 2, transformer: [40, 32]}[kind]
    estimate = costs_of(kind).estimate({"size": size, "dims": len(size), "network": {}, "precision": "fp32"})
    model, batch_of = kind()
    peak = allocator_peak(model, batch_of(8))
    assert 0.6 * peak <= estimate.weights + 8 * estimate.per_case <= 1.6 * peak


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_estimate_is_near_the_peak_of_a_trial_step_on_a_gpu() -> None:
    plan = {
        "size": [64] * 3,
        "dims": 3,
        "voxels": True,
        "network": {},
        "precision": "bf16",
        "batch": 4,
        "device": "auto",
    }
    costs = costs_of(unet)
    fitting.apply_machine(plan, machine.local_machine(1))
    assert 0.5 <= costs.estimate(plan).peak_bytes(4) / costs.peak(plan) <= 2.0


def test_dry_plans_of_pictures_use_8_24_and_80_gb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    planning = load("m3b.training.segmentation.plan")
    copy_template("segmentation", tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    load("recipe").use_recipe(None)
    records = []
    Path("Datapath").mkdir(exist_ok=True)
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (512, 512), np.uint8)
        Image.fromarray(pixels).save(f"{number}.png")
        Image.fromarray((pixels > 200).astype(np.uint8)).save(f"{number}m.png")
        records.append({"image_path": f"{number}.png", "mask_path": f"{number}m.png", "patient": f"p{number}"})
    Path("Datapath/train.json").write_text(json.dumps(records * 5))
    Path("Datapath/label_dict.json").write_text('{"a": 1}')
    step_features = {}
    for memory in (8, 24, 80):
        planning.main(["--device", f"cuda:{memory}GB", "--minutes", "600", "--set", "engine=trainer"])
        plan = json.loads(Path("plan.json").read_text())
        peak = planning.STEP_COSTS.peak(plan)
        assert peak <= machine.machine_of(plan).usable_bytes
        features = np.prod(plan["patch"]) * plan["network"]["filters"][0]
        step_features[memory] = step_cost.micro_batch(plan) * features
    assert step_features[8] < step_features[24] <= step_features[80]


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("cuda:80GB", 8, machine.Machine(8, 80.0, False, "bf16")),
        ("cuda:16gb:fp16", 0, machine.Machine(1, 16.0, False, "fp16")),
        ("auto", 0, machine.Machine()),
        ("cpu", 0, machine.Machine()),
    ],
)
def test_machines_by_name(device: str, gpus: int, expected: Any) -> None:
    assert machine.parse_machine(device, gpus, gpu_here=False) == expected
    plan = {"machine": expected.to_plan()} if expected.gpus else {}
    assert machine.machine_of(plan) == expected


@pytest.mark.parametrize(("device", "gpus"), [("cuda", 0), ("cuda:80", 1), ("gpu", 0), ("auto", 2)])
def test_machines_that_are_not_there_are_refused(device: str, gpus: int) -> None:
    with pytest.raises(SystemExit, match=r"--(device|gpus)"):
        machine.parse_machine(device, gpus, gpu_here=False)


class StepCosts(step_cost.StepCosts):
    """A network whose memory and time go by voxels and width."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def estimate(self, plan: dict[str, Any]) -> Any:
        case_bytes = int(plan["side"] ** 3 * plan["width"] * 60)
        return step_cost.StepEstimate(10**8, 0, case_bytes, 1000 * case_bytes, 10 * case_bytes, 500)


def smaller(plan: dict[str, Any]) -> str:
    plan["side"] -= 16
    return f"side {plan['side']}" if plan["side"] > 32 else ""


def larger(plan: dict[str, Any]) -> str:
    plan["side"] += 16
    return f"side {plan['side']}" if plan["side"] <= 192 else ""


def plan_for(gb: float, gpus: int = 1, **overrides: Any) -> dict[str, Any]:
    plan = {
        "side": 128,
        "width": 32,
        "batch": 2,
        "least_batch": 1,
        "lr": 1e-3,
        "dims": 3,
        "device": "auto",
        **overrides,
    }
    fitting.apply_machine(plan, machine.Machine(gpus, gb, False, "bf16"))
    fitting.share_gpus(plan, 64)
    return plan


def test_plans_follow_the_memory() -> None:
    plans = {}
    for gb in (4.0, 8.0, 24.0, 140.0):
        plan, costs = plan_for(gb), StepCosts()
        messages = fitting.fit_memory(plan, costs, [fitting.split_step, smaller], [larger, fitting.larger_batch(8)])
        assert costs.peak(plan) <= machine.machine_of(plan).usable_bytes
        plans[gb] = plan
        assert "GPU memory" in messages[-1]
    assert plans[4.0]["accumulate"] == 2, "the same step in parts, before anything else changes"
    assert plans[4.0]["side"] <= plans[8.0]["side"] < plans[24.0]["side"] < plans[140.0]["side"]
    assert plans[24.0]["batch"] < plans[140.0]["batch"]
    assert plans[140.0]["lr"] > plans[8.0]["lr"], "a larger batch bears a larger rate"


def test_few_minutes_keep_the_plan_small() -> None:
    plan, costs = plan_for(140.0), StepCosts()
    fitting.fit_memory(plan, costs, [smaller], [larger], steps=lambda plan: 100)
    assert plan["side"] == 128


def test_what_cannot_fit_ends_with_what_to_do() -> None:
    with pytest.raises(SystemExit, match="cannot be reduced"):
        fitting.fit_memory(plan_for(1.2), StepCosts(), [fitting.split_step, smaller])


def test_several_gpus_share_a_larger_batch_or_the_folds() -> None:
    plan = plan_for(80.0, gpus=8)
    assert (plan["processes"], plan["batch"], step_cost.micro_batch(plan)) == (8, 16, 2)
    assert plan["lr"] == pytest.approx(1e-3 * 8**0.5, rel=1e-3)
    folds = plan_for(80.0, gpus=8, folds=5)
    assert (folds["processes"], folds["batch"], step_cost.micro_batch(folds)) == (5, 2, 2)


def test_a_slower_card_takes_longer() -> None:
    seconds = [StepCosts().estimate_seconds(plan_for(gb)) for gb in (8.0, 24.0, 80.0, 140.0)]
    assert seconds == sorted(seconds, reverse=True)
    parts = StepCosts().estimate_seconds({**plan_for(8.0), "accumulate": 2})
    assert parts == pytest.approx(seconds[0], rel=0.2), "the same work, one part after the other"


def test_a_trial_step_that_does_not_fit_makes_the_plan_of_a_local_gpu_smaller() -> None:
    class LocalCosts(StepCosts):
        limit = 100

        def peak(self, plan: dict[str, Any]) -> float:
            return float("inf") if plan["side"] > self.limit else 7e9

    plan = plan_for(24.0)
    plan["machine"]["here"], costs = True, LocalCosts()
    messages = fitting.fit_memory(plan, costs, [smaller])
    assert plan["side"] == 96
    assert "7.00 of" in messages[-1]
    costs.limit = 0
    with pytest.raises(SystemExit, match="cannot be reduced"):
        fitting.fit_memory(plan, costs, [smaller])


def test_memory_of_a_local_gpu_is_that_of_a_trial_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory is a peak without end; the counters of the GPU are the only parts that a processor lacks."""

    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(8, 8)

        def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
            if len(pixel_values) > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return {"loss": self.line(pixel_values).square().mean()}

    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5 * 10**9)
    costs = step_cost.StepCosts(lambda plan, cases: {"pixel_values": torch.randn(cases, 8)}, lambda _: Line())
    plan = {"batch": 8, "least_batch": 1, "dims": 2, "device": "cpu", "precision": "fp32", "network": {}}
    plan["machine"] = machine.Machine(1, 24.0, True, "bf16").to_plan()
    assert fitting.fit_memory(plan, costs, [fitting.split_step])[0].startswith("reduced to fit")
    assert (plan["accumulate"], costs.peak(plan)) == (2, pytest.approx(5.5e9))


def test_work_is_done_in_pieces_where_memory_is_little() -> None:
    batch_sizes = []

    def run(batch: torch.Tensor) -> torch.Tensor:
        batch_sizes.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch * 2

    batch = torch.arange(7.0)
    assert torch.equal(memory.run_in_pieces(run, batch), batch * 2)
    assert max(size for size in batch_sizes if size <= 2) == 2
    with pytest.raises(RuntimeError, match="shape"):
        memory.run_in_pieces(lambda _: (_ for _ in ()).throw(RuntimeError("tensors share memory: shape")), batch)


def test_half_precision_is_the_one_that_the_gpu_has(monkeypatch: pytest.MonkeyPatch) -> None:
    precision, gpu, cpu = load("precision"), torch.device("cuda"), torch.device("cpu")
    for real, expected_dtype in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation=True, real=real: including_emulation or real
        )
        assert precision.half_precision({"precision": "bf16"}, gpu) is expected_dtype
    assert precision.half_precision({"precision": "fp16"}, gpu) is torch.float16
    assert precision.half_precision({"precision": "fp16"}, cpu) is None
    assert precision.half_precision({"precision": "bf16"}, cpu) is torch.bfloat16
    assert precision.half_precision({"precision": "fp32"}, gpu) is None
    pace = load("time_budget")
    monkeypatch.setattr(pace, "has_native_bf16", lambda: False)
    plan = {"machine": machine.Machine(1, 16.0, True, "fp16").to_plan()}
    pace.choose_precision(plan, lambda plans: [0.1 if p["precision"] == "fp16" else 1.0 for p in plans])
    assert plan["precision"] == "fp16"


def test_the_layout_is_the_quicker_one(monkeypatch: pytest.MonkeyPatch) -> None:
    local_gpu = machine.Machine(1, 24.0, True, "bf16").to_plan()
    for quick in (True, False):
        plan: dict[str, Any] = {"machine": local_gpu, "precision": "bf16", "dims": 3, "minutes": 1.0}
        fitting.choose_layout(plan, lambda plans, quick=quick: [1.0 + (p["channels_last"] != quick) for p in plans])
        assert plan["channels_last"] is quick
    model = nn.Conv2d(8, 8, 3)
    load("precision").apply_memory_layout(model, {"channels_last": True, "dims": 2})
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.state_dict()["weight"].is_contiguous(), "saved in the usual order"
