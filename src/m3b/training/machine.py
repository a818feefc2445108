"""The machine that a plan is made for: the local one, or a remote one (`plan.py --device cuda:80GB --gpus 8`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Plan = dict[str, Any]
GB = 10**9
DEVICE_HELP = "auto, cpu, cuda (a local GPU), or a remote GPU by its memory: cuda:80GB, cuda:16GB:fp16"
GPUS_HELP = "parallel trainings, one a GPU; all local GPUs by default"
_DEVICE_PATTERN = re.compile(r"cuda:(\d+(?:\.\d+)?)GB(?::(bf16|fp16|fp32))?", re.IGNORECASE)

RESERVED_GB = 1.0
"""GB that hold no tensors: the driver's context, libraries, and the workspace in which cuDNN tries its algorithms."""
ALLOCATOR_SLACK = 1.1
"""Allocated memory as a multiple of the tensors: blocks are larger than their contents, and free ones do not always fit."""
FILL_SHARE = 0.92
"""Share of the remaining memory that plans use."""

GPU_CLASSES = (
    (9.0, 30.0, 0.27),
    (17.0, 65.0, 0.32),
    (25.0, 125.0, 0.6),
    (50.0, 150.0, 0.77),
    (100.0, 312.0, 1.9),
    (float("inf"), 800.0, 4.0),
)
"""Maximum GB of a class of GPUs; TFLOP/s in half precision and TB/s of memory in the data sheet of a typical GPU of the class."""
COMPUTE_EFFICIENCY, BANDWIDTH_EFFICIENCY = 0.3, 0.6
"""Shares of these figures that convolutions and all other kernels are assumed to reach. Not measured."""
KERNEL_START_SECONDS = 8e-6
"""Seconds to start a kernel."""
STEP_OVERHEAD = 1.15
"""Factor for augmentation and averaging of weights, in addition to the passes."""
OPTIMISER_PASSES = 10
"""Times that AdamW, clipping and averaging read or write the weights."""


@dataclass(frozen=True)
class Machine:
    """Processors only (`gpus` 0), or GPUs.

    Args:
        gpus: parallel trainings, one a GPU.
        memory: GB (1e9 bytes) of one GPU.
        is_local: plans are made on the machine itself, so that steps can be run and timed.
        half: the native half precision of its GPUs: bf16, fp16, or fp32 without any.
    """

    gpus: int = 0
    memory: float = 0.0
    is_local: bool = True
    half: str = "bf16"

    @property
    def is_remote(self) -> bool:
        """Return whether nothing can be timed, since the machine is not local."""
        return not self.is_local

    @property
    def usable_bytes(self) -> int:
        """Return the bytes that a plan may use on one GPU."""
        return max(0, int(FILL_SHARE * (self.memory - RESERVED_GB) * GB))

    def to_plan(self) -> dict[str, Any]:
        """Return the entry of plan.json."""
        return {"gpus": self.gpus, "memory_gb": self.memory, "here": self.is_local, "half": self.half}

    def describe(self) -> str:
        """Return a description for people."""
        place = "local" if self.is_local else "remote: nothing is measured, seconds are estimated"
        return f"{self.gpus} GPU{'s' if self.gpus > 1 else ''} of {self.memory:g} GB ({place})"

    def estimate_seconds(self, operations: float, moved_bytes: float, kernels: float, half: bool) -> float:
        """Estimate the seconds of floating point operations, bytes moved and kernels started: the longest of the three."""
        flops, bandwidth = next((flops, bandwidth) for max_gb, flops, bandwidth in GPU_CLASSES if self.memory <= max_gb)
        flops = flops if half else flops / (2 if self.half == "bf16" else 8)  # TF32; none on GPUs without bf16
        return max(
            operations / (flops * 1e12 * COMPUTE_EFFICIENCY),
            moved_bytes / (bandwidth * 1e12 * BANDWIDTH_EFFICIENCY),
            kernels * KERNEL_START_SECONDS,
        )


def has_gpu() -> bool:
    """Return whether PyTorch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def machine_of(plan: Mapping[str, Any]) -> Machine:
    """Return the machine that the plan was made for."""
    entry = plan.get("machine")
    if not entry:
        return Machine()
    return Machine(int(entry["gpus"]), float(entry["memory_gb"]), bool(entry["here"]), str(entry["half"]))


def parse_machine(device: str, gpus: int, gpu_here: bool) -> Machine:
    """Return the machine of `--device` and `--gpus`.

    Args:
        device: see `DEVICE_HELP`.
        gpus: 0 for all local GPUs, or one remote GPU.
        gpu_here: PyTorch sees a GPU.

    Raises:
        SystemExit: there is no such machine; the message lists what can be named.
    """
    if match := _DEVICE_PATTERN.fullmatch(device.strip()):
        return Machine(max(1, gpus), float(match[1]), False, (match[2] or "bf16").lower())
    if device not in ("auto", "cpu", "cuda"):
        raise SystemExit(f"--device {device}: must be {DEVICE_HELP}")
    if device == "cuda" and not gpu_here:
        raise SystemExit(
            "--device cuda: PyTorch sees no GPU; name the memory of a remote one to plan for it (cuda:24GB)"
        )
    if device == "cpu" or not gpu_here:
        if gpus:
            raise SystemExit(f"--gpus {gpus}: there is no local GPU; name a remote one: --device cuda:24GB")
        return Machine()
    return local_machine(gpus)


def local_machine(gpus: int = 0) -> Machine:
    """Return the local GPUs; the smallest determines the memory. `gpus` 0 means all of them."""
    import torch

    from m3b.training.time_budget import has_native_bf16

    count = torch.cuda.device_count()
    if gpus > count:
        raise SystemExit(f"--gpus {gpus}: {count} local; name remote ones by their memory: --device cuda:24GB")
    sizes = [torch.cuda.get_device_properties(index).total_memory for index in range(count)]
    return Machine(gpus or count, round(min(sizes) / GB, 1), True, "bf16" if has_native_bf16() else "fp16")
