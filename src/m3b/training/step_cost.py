"""What steps of a template's plans need and take: counted without content (`memory_tracing`), or timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from m3b.training.machine import BESIDES, OPTIMISER, SLACK, machine_of
from m3b.training.time_budget import quickest

if TYPE_CHECKING:
    import torch

    from m3b.training.memory_tracing import Trace

Plan = dict[str, Any]
Build = Callable[[Plan], "torch.nn.Module"]
Noise = Callable[[Plan, int], dict[str, Any]]
SPARE = 0.001
"""Seconds a step that the training loop takes for itself, and that no rehearsal shows (`benchmarks/trainer_step.py`)."""
STATES = 4
"""Copies of the weights besides themselves: gradients, two moments of AdamW, the running average."""


def gpus_per_step(plan: Mapping[str, Any]) -> int:
    """GPUs that share a step; of several folds each has a GPU of its own."""
    return 1 if int(plan.get("folds") or 1) > 1 else max(1, int(plan.get("processes") or 1))


def micro_batch(plan: Mapping[str, Any], processes: int | None = None) -> int:
    """Cases that one GPU looks at together: a step's, shared out among the processes (those of the plan if None) and made in
    `accumulate` parts."""
    share = -(-int(plan["batch"]) // (processes or gpus_per_step(plan)))
    return max(1, -(-share // max(1, int(plan.get("accumulate") or 1))))


def peak_bytes(found: Trace, cases: int, processes: int = 1) -> int:
    """Bytes that a training holds at its peak on one GPU, the reserved ones apart: weights, states, what the passes keep."""
    copies = 1 + STATES + (1 if processes > 1 else 0)  # the buckets in which gradients are exchanged
    return int(SLACK * (copies * found.weights + found.fixed + cases * found.each))


class StepCosts:
    """Traces of a template's plans; one that differs only in what does not matter is looked at once."""

    def __init__(self, noise: Noise, build: Build | None = None) -> None:
        self.noise, self.build = noise, build or _network

    def trace(self, plan: Plan) -> Trace:
        """Of a step of the plan's network, by the case."""
        left_out = (
            "batch",
            "accumulate",
            "processes",
            "machine",
            "minutes",
            "lr",
            "epoch_patches",
            "patches",
            "workers",
            "folds",
            "parts",
            "refit",
            "cross_validation",
            "why_folds",
        )
        return self._traced(
            json.dumps({k: v for k, v in plan.items() if k not in left_out}, sort_keys=True, default=str)
        )

    @lru_cache(maxsize=64)  # noqa: B019 - one object lives as long as plan.py
    def _traced(self, key: str) -> Trace:
        import torch

        from m3b.training.memory_tracing import trace

        plan = {**json.loads(key), "device": "cpu"}
        half = torch.bfloat16 if plan.get("precision") in ("bf16", "fp16") else None  # both have two bytes
        plan["precision"] = "bf16" if half else "fp32"
        return trace(self.build(plan).train(), lambda cases: self.noise(plan, cases), half)

    def peak(self, plan: Plan) -> int:
        """Bytes on one GPU, see `peak_bytes`."""
        return peak_bytes(self.trace(plan), micro_batch(plan), gpus_per_step(plan))

    def seconds(self, plan: Plan) -> float:
        """Of a step, estimated for a machine that is not here; loading is taken to happen meanwhile."""
        found, cases, parts = self.trace(plan), micro_batch(plan), int(plan.get("accumulate") or 1)
        work = machine_of(plan).seconds(
            parts * cases * found.operations,
            parts * cases * found.moved,
            parts * found.kernels,
            plan.get("precision") != "fp32",
        )
        return BESIDES * work + machine_of(plan).seconds(0.0, OPTIMISER * found.weights, 0.0, True)


def _network(plan: Plan) -> torch.nn.Module:
    """The recipe's own; imported when it is asked for."""
    from m3b.training.recipe import get_recipe

    return get_recipe().build_model(plan)


def step_seconds(plan: Plan, costs: StepCosts) -> float:
    """Seconds of the quickest of a few training steps on noise, estimated where the machine is not here; infinite where
    memory does not suffice or the precision is not known there."""
    from m3b.training.threads import use_threads

    if machine_of(plan).dry:
        return costs.seconds(plan)
    use_threads(plan)
    return quickest(_step_of(plan, costs))


def step_seconds_beside(plan: Plan, costs: StepCosts, several: int) -> float:
    """The same while so many networks make their steps at the same time, each with an equal share of the processor's cores."""
    import torch

    from m3b.training.entry import cores

    def timed(step: Callable[[], object]) -> float:
        torch.set_num_threads(max(1, cores() // several))
        return quickest(step, tries=6, seconds=2.0)

    steps = [_step_of(plan, costs) for _ in range(several)]
    with ThreadPoolExecutor(several) as pool:  # PyTorch computes without Python's lock
        return max(pool.map(timed, steps))


def _step_of(plan: Plan, costs: StepCosts) -> Callable[[], None]:
    """Both passes and the optimiser, on noise."""
    import torch

    from m3b.training.optimizers import optimizer_of
    from m3b.training.precision import autocast, device_of, laid_out

    device, parts = device_of(plan), int(plan.get("accumulate") or 1)
    model = laid_out(costs.build(plan).to(device).train(), plan)
    batch = {key: value.to(device) for key, value in costs.noise(plan, micro_batch(plan)).items()}
    optimizer = optimizer_of(model, plan, 1e-6, 0.0)

    def step() -> None:
        for _ in range(parts):
            with autocast(plan, device):
                loss = model(**batch)["loss"]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step
