"""Cost of a plan's training step: traced without content (`memory_tracing`), or timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from m3b.training.machine import ALLOCATOR_SLACK, OPTIMISER_PASSES, STEP_OVERHEAD, machine_of
from m3b.training.time_budget import min_seconds

if TYPE_CHECKING:
    import torch

    from m3b.training.memory_tracing import Trace

Plan = dict[str, Any]
Build = Callable[[Plan], "torch.nn.Module"]
Noise = Callable[[Plan, int], dict[str, Any]]
TRAINER_STEP_SECONDS = 0.001
"""Seconds a step that the training loop takes for itself, and that no rehearsal shows (`benchmarks/trainer_step.py`)."""
WEIGHT_STATES = 4
"""Copies of the weights in addition to themselves: gradients, two moments of AdamW, the running average."""


def gpus_per_step(plan: Mapping[str, Any]) -> int:
    """Return the GPUs that share a step; each of several folds has its own GPU."""
    return 1 if int(plan.get("folds") or 1) > 1 else max(1, int(plan.get("processes") or 1))


def micro_batch(plan: Mapping[str, Any], processes: int | None = None) -> int:
    """Return the cases that one GPU computes together: a step's, divided among the processes (None: the plan's) and the `accumulate`
    parts."""
    share = -(-int(plan["batch"]) // (processes or gpus_per_step(plan)))
    return max(1, -(-share // max(1, int(plan.get("accumulate") or 1))))


def peak_bytes(trace: Trace, cases: int, processes: int = 1) -> int:
    """Return the peak bytes of a training on one GPU, without the reserved ones: weights, states, tensors of the passes."""
    copies = 1 + WEIGHT_STATES + (1 if processes > 1 else 0)  # the buckets in which gradients are exchanged
    return int(ALLOCATOR_SLACK * (copies * trace.weights + trace.fixed + cases * trace.per_case))


class StepCosts:
    """Traces of a task's plans; plans that differ only in irrelevant settings are traced once."""

    def __init__(self, noise: Noise, build: Build | None = None) -> None:
        self.noise, self.build = noise, build or _network

    def trace(self, plan: Plan) -> Trace:
        """Trace a step of the plan's network."""
        irrelevant = (
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
            json.dumps({k: v for k, v in plan.items() if k not in irrelevant}, sort_keys=True, default=str)
        )

    @lru_cache(maxsize=64)  # noqa: B019 - one object lives as long as plan.py
    def _traced(self, key: str) -> Trace:
        import torch

        from m3b.training.memory_tracing import trace_step

        plan = {**json.loads(key), "device": "cpu"}
        half = torch.bfloat16 if plan.get("precision") in ("bf16", "fp16") else None  # both have two bytes
        plan["precision"] = "bf16" if half else "fp32"
        return trace_step(self.build(plan).train(), lambda cases: self.noise(plan, cases), half)

    def peak(self, plan: Plan) -> int:
        """Return the bytes on one GPU, see `peak_bytes`."""
        return peak_bytes(self.trace(plan), micro_batch(plan), gpus_per_step(plan))

    def estimate_seconds(self, plan: Plan) -> float:
        """Estimate the seconds of a step on a remote machine; loading is assumed to overlap."""
        trace, cases, accumulate = self.trace(plan), micro_batch(plan), int(plan.get("accumulate") or 1)
        work = machine_of(plan).estimate_seconds(
            accumulate * cases * trace.operations,
            accumulate * cases * trace.moved_bytes,
            accumulate * trace.kernels,
            plan.get("precision") != "fp32",
        )
        return STEP_OVERHEAD * work + machine_of(plan).estimate_seconds(
            0.0, OPTIMISER_PASSES * trace.weights, 0.0, True
        )


def _network(plan: Plan) -> torch.nn.Module:
    """Build the recipe's network; imported on demand."""
    from m3b.training.recipe import get_recipe

    return get_recipe().build_model(plan)


def step_seconds(plan: Plan, costs: StepCosts) -> float:
    """Return the seconds of the fastest of a few training steps on noise, estimated for a remote machine; infinite if memory does not
    suffice or the precision is not supported."""
    from m3b.training.threads import use_threads

    if machine_of(plan).is_remote:
        return costs.estimate_seconds(plan)
    use_threads(plan)
    return min_seconds(_make_step(plan, costs))


def parallel_step_seconds(plan: Plan, costs: StepCosts, networks: int) -> float:
    """Return the seconds of a step while `parallel` networks compute at the same time, each with an equal share of the cores."""
    import torch

    from m3b.training.entry import count_cores

    def time_step(step: Callable[[], object]) -> float:
        torch.set_num_threads(max(1, count_cores() // networks))
        return min_seconds(step, tries=6, seconds=2.0)

    steps = [_make_step(plan, costs) for _ in range(networks)]
    with ThreadPoolExecutor(networks) as pool:  # PyTorch computes without Python's lock
        return max(pool.map(time_step, steps))


def _make_step(plan: Plan, costs: StepCosts) -> Callable[[], None]:
    """Return a function that runs both passes and the optimiser on noise."""
    import torch

    from m3b.training.optimizers import optimizer_of
    from m3b.training.precision import apply_memory_layout, autocast, device_of

    device, accumulate = device_of(plan), int(plan.get("accumulate") or 1)
    model = apply_memory_layout(costs.build(plan).to(device).train(), plan)
    batch = {key: value.to(device) for key, value in costs.noise(plan, micro_batch(plan)).items()}
    optimizer = optimizer_of(model, plan, 1e-6, 0.0)

    def step() -> None:
        for _ in range(accumulate):
            with autocast(plan, device):
                loss = model(**batch)["loss"]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step
