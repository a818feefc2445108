"""What a training step needs, counted without making it, against what steps on a processor really keep; plans fitted to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from template_kit import load
from torch import nn

fitting, machine, memory, tracing = (load(name) for name in ("gpu_fitting", "machine", "memory", "memory_tracing"))


class Whole(nn.Module):
    """A network with its loss, as the templates have them."""

    def __init__(self, network: nn.Module, loss: Any) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.loss(self.network(pixel_values), labels)}


def unet() -> tuple[nn.Module, Any]:
    network = {"filters": [8, 16, 32], "strides": [[1] * 3, [2] * 3, [2] * 3], "kernels": [[3] * 3] * 3}
    losses = load("losses")
    model = Whole(load("unet").UNet(3, 1, 3, {**network, "deep_supervision": True}),
                  lambda found, mask: losses.deep_supervision_loss(losses.MaskLoss(), found, mask))  # fmt: skip
    return model, lambda n: {"pixel_values": torch.randn(n, 1, 16, 16, 16),
                             "labels": torch.zeros(n, 16, 16, 16, dtype=torch.uint8)}  # fmt: skip


def classifier() -> tuple[nn.Module, Any]:
    block = load("residual_block").ResidualBlock
    layers = nn.Sequential(
        block(2, 3, 16, 2), block(2, 16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4)
    )
    return Whole(layers, nn.functional.cross_entropy), lambda n: {
        "pixel_values": torch.randn(n, 3, 64, 64), "labels": torch.zeros(n, dtype=torch.long)}  # fmt: skip


def transformer() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return Whole(
        nn.Sequential(layer, nn.Linear(32, 8)),
        lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()),
    ), (lambda n: {"pixel_values": torch.randn(n, 40, 32), "labels": torch.zeros(n, 40, dtype=torch.long)})


KINDS = [unet, classifier, transformer]


@pytest.mark.parametrize("half", [None, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_counted_is_what_a_real_step_keeps(kind: Any, half: torch.dtype | None) -> None:
    model, batch_of = kind()
    model.train()
    given = {id(one.untyped_storage()): one for one in model.parameters()}
    batch, kept = batch_of(2), dict[int, Any]()
    given |= {id(one.untyped_storage()): one for one in batch.values()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", half or torch.bfloat16, enabled=bool(half)),
    ):
        model(**batch)["loss"].backward()
    mine = {one.untyped_storage().data_ptr() for one in given.values()}
    real = sum(one.untyped_storage().nbytes() for place, one in kept.items() if place not in mine)
    counted = tracing.trace_pass(model, batch_of(2), half)
    assert counted.saved == pytest.approx(real, rel=0.05)
    assert counted.peak >= counted.saved


def test_the_peak_is_that_of_the_allocator() -> None:
    """torch's own record of a real step on a processor: the count is near (libraries use scratch memory besides)."""
    from torch.profiler import ProfilerActivity, profile

    model, batch_of = unet()
    batch = batch_of(2)
    model.train()(**batch)["loss"].backward()
    model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        model(**batch)["loss"].backward()
    now = peak = 0
    for event in record.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    counted = tracing.trace_pass(model, batch, None).peak
    assert 0.85 * peak <= counted <= 1.35 * peak


def test_a_case_more_costs_what_it_says() -> None:
    model, batch_of = unet()
    found = tracing.trace_step(model.train(), batch_of, None)
    assert found.fixed + 7 * found.per_case == pytest.approx(
        tracing.trace_pass(model, batch_of(7), None).peak, rel=0.03
    )
    assert found.weights == sum(4 * one.numel() for one in model.parameters())
    assert found.operations > 1e6
    assert found.kernels > 50


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_peak_is_that_of_the_gpu() -> None:
    model, batch_of = unet()
    found = tracing.trace_step(model.train(), batch_of, None)
    model, batch = model.cuda(), {key: value.cuda() for key, value in batch_of(8).items()}
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        model(**batch)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    held = torch.cuda.max_memory_allocated()
    assert 0.6 * held <= load("step_cost").peak_bytes(found, 8) <= 2.0 * held


def test_a_step_that_depends_on_values_is_made_for_real() -> None:
    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(8, 8)

        def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
            found = self.line(pixel_values)
            return {"loss": found.square().mean() if float(found.detach().sum()) > -1e9 else found.sum()}

    found = tracing.trace_step(Choosing(), lambda n: {"pixel_values": torch.randn(n, 8)}, None)
    assert found.per_case > 0


@pytest.mark.parametrize(
    ("device", "gpus", "wanted"),
    [
        ("cuda:80GB", 8, machine.Machine(8, 80.0, False, "bf16")),
        ("cuda:16gb:fp16", 0, machine.Machine(1, 16.0, False, "fp16")),
        ("auto", 0, machine.Machine()),
        ("cpu", 0, machine.Machine()),
    ],
)
def test_machines_by_name(device: str, gpus: int, wanted: Any) -> None:
    assert machine.parse_machine(device, gpus, gpu_here=False) == wanted
    plan = {"machine": wanted.to_plan()} if wanted.gpus else {}
    assert machine.machine_of(plan) == wanted


@pytest.mark.parametrize(("device", "gpus"), [("cuda", 0), ("cuda:80", 1), ("gpu", 0), ("auto", 2)])
def test_machines_that_are_not_there_are_refused(device: str, gpus: int) -> None:
    with pytest.raises(SystemExit, match=r"--(device|gpus)"):
        machine.parse_machine(device, gpus, gpu_here=False)


class StepCosts(load("step_cost").StepCosts):
    """A network whose memory and time go by voxels and width."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def trace(self, plan: dict[str, Any]) -> Any:
        each = int(plan["side"] ** 3 * plan["width"] * 60)
        return tracing.Trace(10**8, 0, each, each // 2, 1000 * each, 10 * each, 500)


def smaller(plan: dict[str, Any]) -> str:
    plan["side"] -= 16
    return f"side {plan['side']}" if plan["side"] > 32 else ""


def larger(plan: dict[str, Any]) -> str:
    plan["side"] += 16
    return f"side {plan['side']}" if plan["side"] <= 192 else ""


def plan_for(gb: float, gpus: int = 1, **more: Any) -> dict[str, Any]:
    plan = {"side": 128, "width": 32, "batch": 2, "least_batch": 1, "lr": 1e-3, "dims": 3, "device": "auto", **more}
    fitting.apply_machine(plan, machine.Machine(gpus, gb, False, "bf16"))
    fitting.share_gpus(plan, 64)
    return plan


def test_plans_follow_the_memory() -> None:
    made = {}
    for gb in (4.0, 8.0, 24.0, 140.0):
        plan, costs = plan_for(gb), StepCosts()
        said = fitting.fit_memory(plan, costs, [fitting.split_step, smaller], [larger, fitting.larger_batch(8)])
        assert costs.peak(plan) <= machine.machine_of(plan).usable_bytes
        made[gb] = plan
        assert "GPU memory" in said[-1]
    assert made[4.0]["accumulate"] == 2, "the same step in parts, before anything else changes"
    assert made[4.0]["side"] <= made[8.0]["side"] < made[24.0]["side"] < made[140.0]["side"]
    assert made[24.0]["batch"] < made[140.0]["batch"]
    assert made[140.0]["lr"] > made[8.0]["lr"], "a larger batch bears a larger rate"


def test_few_minutes_keep_the_plan_small() -> None:
    plan, costs = plan_for(140.0), StepCosts()
    fitting.fit_memory(plan, costs, [smaller], [larger], steps=lambda plan: 100)
    assert plan["side"] == 128


def test_what_cannot_fit_ends_with_what_to_do() -> None:
    with pytest.raises(SystemExit, match="cannot be reduced"):
        fitting.fit_memory(plan_for(1.2), StepCosts(), [fitting.split_step, smaller])


def test_several_gpus_share_a_larger_batch_or_the_folds() -> None:
    plan = plan_for(80.0, gpus=8)
    assert (plan["processes"], plan["batch"], load("step_cost").micro_batch(plan)) == (8, 16, 2)
    assert plan["lr"] == pytest.approx(1e-3 * 8**0.5, rel=1e-3)
    folds = plan_for(80.0, gpus=8, folds=5)
    assert (folds["processes"], folds["batch"], load("step_cost").micro_batch(folds)) == (5, 2, 2)


def test_a_slower_card_takes_longer() -> None:
    seconds = [StepCosts().estimate_seconds(plan_for(gb)) for gb in (8.0, 24.0, 80.0, 140.0)]
    assert seconds == sorted(seconds, reverse=True)
    parts = StepCosts().estimate_seconds({**plan_for(8.0), "accumulate": 2})
    assert parts == pytest.approx(seconds[0], rel=0.2), "the same work, one part after the other"


def test_a_real_step_that_does_not_fit_makes_the_plan_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, limit = plan_for(24.0), 100

    def held(plan: dict[str, Any], costs: Any) -> int:
        if plan["side"] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 7 * 10**9

    monkeypatch.setattr(fitting, "_measure_peak", held)
    said = fitting.probe_memory(plan, StepCosts(), [smaller])
    assert plan["side"] == 96
    assert "did not fit" in said[0]
    assert "of a real step: 7.00 GB" in said[1]
    limit = 0
    with pytest.raises(SystemExit, match="cannot be reduced"):
        fitting.probe_memory(plan, StepCosts(), [smaller])


def test_work_is_done_in_pieces_where_memory_is_little() -> None:
    seen = []

    def run(batch: torch.Tensor) -> torch.Tensor:
        seen.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch * 2

    batch = torch.arange(7.0)
    assert torch.equal(memory.run_in_pieces(run, batch), batch * 2)
    assert max(one for one in seen if one <= 2) == 2
    with pytest.raises(RuntimeError, match="shape"):
        memory.run_in_pieces(lambda _: (_ for _ in ()).throw(RuntimeError("tensors share memory: shape")), batch)


def test_half_precision_is_the_one_that_the_gpu_has(monkeypatch: pytest.MonkeyPatch) -> None:
    precision, gpu, cpu = load("precision"), torch.device("cuda"), torch.device("cpu")
    for real, wanted in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation=True, real=real: including_emulation or real
        )
        assert precision.half_precision({"precision": "bf16"}, gpu) is wanted
    assert precision.half_precision({"precision": "fp16"}, gpu) is torch.float16
    assert precision.half_precision({"precision": "fp16"}, cpu) is None
    assert precision.half_precision({"precision": "bf16"}, cpu) is torch.bfloat16
    assert precision.half_precision({"precision": "fp32"}, gpu) is None
    pace = load("time_budget")
    monkeypatch.setattr(pace, "has_native_bf16", lambda: False)
    plan = {"machine": machine.Machine(1, 16.0, True, "fp16").to_plan()}
    pace.choose_precision(plan, lambda trial: 0.1 if trial["precision"] == "fp16" else 1.0)
    assert plan["precision"] == "fp16"


def test_the_layout_is_the_quicker_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.Machine(1, 24.0, True, "bf16").to_plan()
    for quick in (True, False):
        plan: dict[str, Any] = {"machine": here, "precision": "bf16", "dims": 3, "minutes": 1.0}
        fitting.choose_layout(plan, lambda trial, quick=quick: 1.0 if trial["channels_last"] == quick else 2.0)
        assert plan["channels_last"] is quick
    model = nn.Conv2d(8, 8, 3)
    load("precision").apply_memory_layout(model, {"channels_last": True, "dims": 2})
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.state_dict()["weight"].is_contiguous(), "saved in the usual order"
