"""Cost of a plan's training step: measured here, estimated for a GPU of another machine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from m3b.training.machine import ALLOCATOR_SLACK, OPTIMISER_PASSES, STEP_OVERHEAD, machine_of
from m3b.training.time_budget import min_seconds, time_call

if TYPE_CHECKING:
    import torch

Plan = dict[str, Any]
Build = Callable[[Plan], "torch.nn.Module"]
Noise = Callable[[Plan, int], dict[str, Any]]
TRAINER_STEP_SECONDS = 0.001
"""Seconds a step that the training loop takes for itself, and that no rehearsal shows (`benchmarks/trainer_step.py`)."""
WEIGHT_STATES = 4
"""Copies of the weights in addition to themselves: gradients, two moments of AdamW, the running average."""
COMPARED_STEPS, COMPARED_SECONDS = 3, 1.5
"""Maximum steps of each plan that are timed to compare plans, and seconds after which no further ones start."""
NOISE_CASES = 2
"""Cases of a forward pass whose activations are counted: batch normalisation needs two."""
USUAL_STRIDE = 16
"""Pixels of a small input for each position of the last feature map, of a network whose strides the plan does not name."""
PEAK_RATIO, PASSES, MOVES, KERNELS_PER_TENSOR = 1.3, 3, 10, 6
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


def measure_forward(model: torch.nn.Module, batch: dict[str, Any], half: torch.dtype | None) -> tuple[int, int, int]:
    """Return bytes and number of the tensors that autograd keeps of `model(**batch)["loss"]` on the CPU, besides weights and their
    copies, and floating point operations."""
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
    return kept_bytes, len(kept), int(flops.get_total_flops())


def list_small_inputs(plan: Plan) -> list[list[int]]:
    """Return sides of an input of a few pixels, and the same with one side twice as long; fewer if the input has no more pixels."""
    sides, strides = [int(side) for side in plan[_input_key(plan)]], plan["network"].get("strides")
    total = [math.prod(axis) for axis in zip(*strides, strict=True)] if strides else [USUAL_STRIDE] * len(sides)
    short = [min(side, max(2 * step, USUAL_STRIDE)) for side, step in zip(sides, total, strict=True)]
    longest = max(range(len(sides)), key=lambda axis: sides[axis] / short[axis])
    doubled = [
        min(side, 2 * part) if axis == longest else part
        for axis, (side, part) in enumerate(zip(sides, short, strict=True))
    ]
    return [short] if doubled == short else [short, doubled]


def _input_key(plan: Plan) -> str:
    return "patch" if "patch" in plan else "size"


class StepCosts:
    """Memory and time of the steps of a task's plans; plans that differ only in irrelevant settings are measured once."""

    def __init__(self, noise: Noise, build: Build | None = None) -> None:
        self.noise, self.build = noise, build or _network
        self.measured: dict[tuple[str, int, int], float] = {}

    def known_seconds(self, plan: Plan, measure: Callable[[Plan], float]) -> float:
        """Return the seconds of a step like the plan's that was measured before; else those that `measure` returns."""
        seconds = self.measured.get(_step_key(plan))
        return measure(plan) if seconds is None else seconds

    def measure_seconds(self, plan: Plan) -> float:
        """Return the seconds of the fastest of a few training steps on noise."""
        return self._keep(plan, min_seconds(_make_step(plan, self)))

    def compare_seconds(self, plans: Sequence[Plan]) -> list[float]:
        """Return the seconds of the fastest of a few steps of each plan, which run in turns; infinite if they are not possible."""
        steps = [_make_step(plan, self) for plan in plans]
        rounds = [[_time_or_infinity(step) for step in steps]]  # a warm-up
        while len(rounds) <= COMPARED_STEPS and (len(rounds) < 2 or sum(map(sum, rounds[1:])) < COMPARED_SECONDS):
            rounds.append([_time_or_infinity(step) for step in steps])
        fastest = [min(times) for times in zip(*rounds[1:], strict=True)]
        return [self._keep(plan, seconds) for plan, seconds in zip(plans, fastest, strict=True)]

    def _keep(self, plan: Plan, seconds: float) -> float:
        if math.isfinite(seconds):
            self.measured[_step_key(plan)] = min(seconds, self.measured.get(_step_key(plan), math.inf))
        return seconds

    def estimate(self, plan: Plan) -> StepEstimate:
        """Estimate the cost of a step from forward passes of small inputs through the plan's network."""
        return self._estimate(_network_key(plan))

    @lru_cache(maxsize=64)  # noqa: B019 - one object lives as long as plan.py
    def _estimate(self, key: str) -> StepEstimate:
        import torch

        plan = {**json.loads(key), "device": "cpu"}
        half = torch.bfloat16 if plan.get("precision") in ("bf16", "fp16") else None  # both have two bytes
        plan["precision"] = "bf16" if half else "fp32"
        model, sides_key = self.build(plan).train(), _input_key(plan)

        def measure(sides: list[int]) -> tuple[int, int, int]:
            return measure_forward(model, self.noise({**plan, sides_key: sides}, NOISE_CASES), half)

        inputs = list_small_inputs(plan)
        try:
            costs = [measure(sides) for sides in inputs]
        except Exception:  # noqa: BLE001 - networks with inputs of one size
            inputs = [plan[sides_key]]
            costs = [measure(inputs[0])]
        pixels, first, last = (math.prod(sides) for sides in (plan[sides_key], inputs[0], inputs[-1]))
        growth = (pixels - first) / (last - first) if last > first else 0.0
        kept, _, operations = (
            (small + growth * (large - small)) / NOISE_CASES for small, large in zip(costs[0], costs[-1], strict=True)
        )
        weights = sum(weight.numel() * weight.element_size() for weight in (*model.parameters(), *model.buffers()))
        return StepEstimate(
            weights=weights,
            fixed=weights // 2 if half else 0,
            per_case=int(PEAK_RATIO * kept),
            operations=int(PASSES * operations),
            moved_bytes=int(MOVES * kept),
            kernels=KERNELS_PER_TENSOR * costs[0][1],
        )

    def peak(self, plan: Plan) -> float:
        """Return the bytes on one GPU: of a trial step on a local GPU, infinite if it does not fit; else an estimate."""
        if machine_of(plan).gpus and not machine_of(plan).is_remote:
            return self._measured_peak(_to_json(plan))
        return self.estimate(plan).peak_bytes(micro_batch(plan), gpus_per_step(plan))

    @lru_cache(maxsize=64)  # noqa: B019
    def _measured_peak(self, key: str) -> float:
        import torch

        from m3b.training.memory import is_out_of_memory

        plan = json.loads(key)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            step = _make_step(plan, self)
            for _ in range(2):  # AdamW creates its moments in the first step
                step()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return math.inf
        buckets = self.estimate(plan).weights if gpus_per_step(plan) > 1 else 0  # in which gradients are exchanged
        return float(ALLOCATOR_SLACK * (torch.cuda.max_memory_allocated() + buckets))

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


def _network_key(plan: Plan) -> str:
    """Return what the cost of a case in a step depends on, as JSON."""
    irrelevant = "batch accumulate processes machine minutes lr epoch_patches patches folds parts refit why_folds"
    return _to_json({key: value for key, value in plan.items() if key not in irrelevant.split()})


def _step_key(plan: Plan) -> tuple[str, int, int]:
    """Return what the cost of a step on this machine depends on."""
    return _network_key(plan), micro_batch(plan), int(plan.get("accumulate") or 1)


def _network(plan: Plan) -> torch.nn.Module:
    """Build the recipe's network; imported on demand."""
    from m3b.training.recipe import get_recipe

    return get_recipe().build_model(plan)


def step_seconds(plan: Plan, costs: StepCosts) -> float:
    """Return the seconds of the fastest of a few training steps on noise, estimated for a remote machine; infinite if memory does not
    suffice or the precision is not supported."""
    return costs.estimate_seconds(plan) if machine_of(plan).is_remote else costs.measure_seconds(plan)


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


def _time_or_infinity(step: Callable[[], object]) -> float:
    try:
        return time_call(step)
    except RuntimeError:  # not every processor supports bf16, and memory may not suffice
        return math.inf


def _make_step(plan: Plan, costs: StepCosts) -> Callable[[], None]:
    """Return a function that runs a trial step on noise."""
    from m3b.training.precision import device_of
    from m3b.training.trial_step import make_trial_step

    batch = costs.noise(plan, micro_batch(plan))
    return make_trial_step(costs.build(plan).to(device_of(plan)).train(), plan, lambda: batch)
