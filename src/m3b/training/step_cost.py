"""Cost of a plan's training step: measured here, estimated for a GPU of another machine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from m3b.training.machine import ALLOCATOR_SLACK, OPTIMISER_PASSES, STEP_OVERHEAD, machine_of
from m3b.training.time_budget import min_seconds

if TYPE_CHECKING:
    import torch

Plan = dict[str, Any]
Build = Callable[[Plan], "torch.nn.Module"]
Noise = Callable[[Plan, int], dict[str, Any]]
TRAINER_STEP_SECONDS = 0.001
"""Seconds a step that the training loop takes for itself, and that no rehearsal shows (`benchmarks/trainer_step.py`)."""
WEIGHT_STATES = 4
"""Copies of the weights in addition to themselves: gradients, two moments of AdamW, the running average."""
NOISE_CASES = 2
"""Cases of a forward pass whose activations are counted: batch normalisation needs two."""
USUAL_STRIDE = 16
"""Pixels of a small input for each position of the last feature map, of a network whose strides the plan does not name."""
PEAK_RATIO, PASSES, MOVES, KERNELS_PER_TENSOR = 1.3, 3, 10, 3
"""Peak of a step as a multiple of what the backward pass needs; forward and backward operations as a multiple of the forward ones;
bytes moved for each byte kept, and kernels for each tensor kept (benchmarks/RESULTS.md, "Memory estimates of plans")."""


def gpus_per_step(plan: Mapping[str, Any]) -> int:
    """Return the GPUs that share a step; each of several folds has its own GPU."""
    return 1 if int(plan.get("folds") or 1) > 1 else max(1, int(plan.get("processes") or 1))


def micro_batch(plan: Mapping[str, Any], processes: int | None = None) -> int:
    """Return the cases that one GPU computes together: a step's, divided among the processes (None: the plan's) and the `accumulate`
    parts."""
    share = -(-int(plan["batch"]) // (processes or gpus_per_step(plan)))
    return max(1, -(-share // max(1, int(plan.get("accumulate") or 1))))


@dataclass(frozen=True)
class StepEstimate:
    """Estimated cost of a training step, from its parameters and the activations of a small input.

    Args:
        weights: bytes of the parameters and buffers.
        fixed: bytes of their copies in half precision.
        per_case: bytes of the activations of a case at the peak.
        operations: floating point operations of convolutions and products, a case.
        moved_bytes: bytes that kernels read and write, a case.
        kernels: started by a step, whatever the batch.
    """

    weights: int
    fixed: int
    per_case: int
    operations: int
    moved_bytes: int
    kernels: int

    def peak_bytes(self, cases: int, processes: int = 1) -> int:
        """Return the peak bytes of a training on one GPU, without the reserved ones: weights, states, activations."""
        copies = 1 + WEIGHT_STATES + (1 if processes > 1 else 0)  # the buckets in which gradients are exchanged
        return int(ALLOCATOR_SLACK * (copies * self.weights + self.fixed + cases * self.per_case))


@dataclass(frozen=True)
class ForwardCost:
    """What a forward pass of `NOISE_CASES` keeps for the backward pass, in bytes and tensors, and its operations."""

    weights: int
    kept_bytes: int
    kept_tensors: int
    operations: int


def measure_forward(model: torch.nn.Module, batch: dict[str, Any], half: torch.dtype | None) -> ForwardCost:
    """Run `model(**batch)["loss"]` on the CPU and count the tensors that autograd keeps, besides weights and their copies."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    weights, kept = (*model.parameters(), *model.buffers()), dict[int, Any]()
    weight_shapes = {tuple(sorted(weight.shape)) for weight in weights}  # products keep transposed weights

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tuple(sorted(tensor.shape)) not in weight_shapes:
            kept.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage())
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        FlopCounterMode(display=False) as flops,
        torch.autocast("cpu", half or torch.bfloat16, enabled=bool(half)),
    ):
        loss = model(**batch)["loss"]
    kept_bytes = sum(storage.nbytes() for storage in kept.values())
    del loss
    weight_bytes = sum(weight.numel() * weight.element_size() for weight in weights)
    return ForwardCost(weight_bytes, kept_bytes, len(kept), int(flops.get_total_flops()))


def small_input(plan: Plan, is_doubled: bool) -> Plan:
    """Return the plan with an input of a few pixels that its network takes, one side twice as long if `is_doubled`."""
    key, dims = _input_key(plan), int(plan["dims"])
    strides, sides = plan["network"].get("strides") or [], [int(side) for side in plan[key]]
    total = [math.prod(axis) for axis in zip(*strides, strict=True)] if strides else [USUAL_STRIDE] * dims
    short = [min(side, max(2 * step, USUAL_STRIDE)) for side, step in zip(sides, total, strict=True)]
    if is_doubled:
        longest = max(range(dims), key=lambda axis: sides[axis] / short[axis])
        short[longest] = min(sides[longest], 2 * short[longest])
    return {**plan, key: short}


def _input_key(plan: Plan) -> str:
    return "patch" if "patch" in plan else "size"


class StepCosts:
    """Memory and time of the steps of a task's plans; what is equal for several plans is computed once."""

    def __init__(self, noise: Noise, build: Build | None = None) -> None:
        self.noise, self.build = noise, build or _network

    def estimate(self, plan: Plan) -> StepEstimate:
        """Estimate the cost of a step from two forward passes of small inputs: what grows with the pixels, and what does not."""
        key, pixels = _input_key(plan), math.prod(int(side) for side in plan[_input_key(plan)])
        try:
            small, doubled = (self._forward(small_input(plan, is_doubled)) for is_doubled in (False, True))
            first, second = (math.prod(small_input(plan, is_doubled)[key]) for is_doubled in (False, True))
        except Exception:  # noqa: BLE001 - networks with inputs of one size
            small = doubled = self._forward(plan)
            first = second = pixels
        ratio = (pixels - first) / (second - first) if second > first else 0.0
        kept = (small.kept_bytes + ratio * (doubled.kept_bytes - small.kept_bytes)) / NOISE_CASES
        operations = (small.operations + ratio * (doubled.operations - small.operations)) / NOISE_CASES
        return StepEstimate(
            weights=small.weights,
            fixed=0 if plan.get("precision") == "fp32" else small.weights // 2,
            per_case=int(PEAK_RATIO * kept),
            operations=int(PASSES * operations),
            moved_bytes=int(MOVES * kept),
            kernels=KERNELS_PER_TENSOR * small.kept_tensors,
        )

    def _forward(self, plan: Plan) -> ForwardCost:
        irrelevant = (
            "batch",
            "accumulate",
            "processes",
            "machine",
            "minutes",
            "lr",
            "epoch_patches",
            "patches",
            "folds",
        )
        return self._measured_forward(_to_json({key: value for key, value in plan.items() if key not in irrelevant}))

    @lru_cache(maxsize=64)  # noqa: B019 - one object lives as long as plan.py
    def _measured_forward(self, key: str) -> ForwardCost:
        import torch

        plan = {**json.loads(key), "device": "cpu"}
        half = torch.bfloat16 if plan.get("precision") in ("bf16", "fp16") else None  # both have two bytes
        plan["precision"] = "bf16" if half else "fp32"
        return measure_forward(self.build(plan).train(), self.noise(plan, NOISE_CASES), half)

    def peak(self, plan: Plan) -> float:
        """Return the bytes on one GPU: of a trial step on a local GPU, infinite if it does not fit; else an estimate."""
        if machine_of(plan).gpus and not machine_of(plan).is_remote:
            return self._measured_peak(_to_json(plan))
        return self.estimate(plan).peak_bytes(micro_batch(plan), gpus_per_step(plan))

    @lru_cache(maxsize=64)  # noqa: B019
    def _measured_peak(self, key: str) -> float:
        import torch

        from m3b.training.memory import is_out_of_memory
        from m3b.training.precision import device_of
        from m3b.training.trial_step import make_trial_step

        plan = json.loads(key)
        batch = self.noise(plan, micro_batch(plan))
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            model = self.build(plan).to(device_of(plan)).train()
            step = make_trial_step(model, plan, lambda: batch)
            for _ in range(2):  # AdamW creates its moments in the first step
                step()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return math.inf
        buckets = sum(4 * weight.numel() for weight in model.parameters()) if gpus_per_step(plan) > 1 else 0
        return ALLOCATOR_SLACK * (torch.cuda.max_memory_allocated() + buckets)

    def estimate_seconds(self, plan: Plan) -> float:
        """Estimate the seconds of a step on a remote machine; loading is assumed to overlap."""
        estimate, cases, accumulate = self.estimate(plan), micro_batch(plan), int(plan.get("accumulate") or 1)
        work = machine_of(plan).estimate_seconds(
            accumulate * cases * estimate.operations,
            accumulate * cases * estimate.moved_bytes,
            accumulate * estimate.kernels,
            plan.get("precision") != "fp32",
        )
        return STEP_OVERHEAD * work + machine_of(plan).estimate_seconds(
            0.0, OPTIMISER_PASSES * estimate.weights, 0.0, True
        )


def _to_json(plan: Plan) -> str:
    return json.dumps(plan, sort_keys=True, default=str)


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
