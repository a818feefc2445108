"""The machine that a plan is for: this one, or one that is not here (`plan.py --device cuda:80GB --gpus 8`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Plan = dict[str, Any]
GB = 10**9
DEVICE = "auto, cpu, cuda (a GPU that is here), or a GPU that is not here by its memory: cuda:80GB, cuda:16GB:fp16"
GPUS = "trainings side by side, one a GPU; all that are here by default"
_FORM = re.compile(r"cuda:(\d+(?:\.\d+)?)GB(?::(bf16|fp16|fp32))?", re.IGNORECASE)

RESERVED = 1.0
"""GB that are no tensors: the driver's context, libraries, and what cuDNN tries its ways in."""
SLACK = 1.1
"""Blocks are larger than what lies in them, and freed ones do not always fit what comes next."""
FILL = 0.92
"""So much of what is left is planned with."""

CLASSES = (
    (9.0, 30.0, 0.27),
    (17.0, 65.0, 0.32),
    (25.0, 125.0, 0.6),
    (50.0, 150.0, 0.77),
    (100.0, 312.0, 1.9),
    (float("inf"), 800.0, 4.0),
)
"""GB up to which a card is of a class; TFLOP/s in half precision and TB/s of memory in the data sheet of a usual card of it."""
EFFICIENT, STREAMED = 0.3, 0.6
"""Of these figures, what convolutions and what everything else is taken to reach. Not measured: no GPU was at hand."""
START = 8e-6
"""Seconds that starting a kernel takes."""
BESIDES = 1.15
"""Augmentation and averaging of weights, beside the passes."""
OPTIMISER = 10
"""Times the weights are read or written by AdamW, clipping and averaging."""


@dataclass(frozen=True)
class Machine:
    """Processors alone (`gpus` 0), or GPUs.

    Args:
        gpus: trainings side by side, one a GPU.
        memory: GB (1e9 bytes) of one GPU.
        here: whether it is the machine that this runs on, so that steps can be made and timed.
        half: the half precision that its GPUs compute in themselves: bf16, fp16, or fp32 where there is none.
    """

    gpus: int = 0
    memory: float = 0.0
    here: bool = True
    half: str = "bf16"

    @property
    def dry(self) -> bool:
        """Nothing can be timed on it: it is not here."""
        return not self.here

    @property
    def room(self) -> int:
        """Bytes that a plan may fill on one GPU."""
        return max(0, int(FILL * (self.memory - RESERVED) * GB))

    def entry(self) -> dict[str, Any]:
        """What plan.json keeps of it."""
        return {"gpus": self.gpus, "memory_gb": self.memory, "here": self.here, "half": self.half}

    def told(self) -> str:
        """For people."""
        where = "here" if self.here else "not here: nothing is measured, seconds are estimated"
        return f"{self.gpus} GPU{'s' if self.gpus > 1 else ''} of {self.memory:g} GB ({where})"

    def seconds(self, operations: float, moved: float, kernels: float, half: bool) -> float:
        """Of work with so many floating point operations, bytes moved and kernels started: whatever takes longest."""
        peak, stream = next((peak, stream) for most, peak, stream in CLASSES if self.memory <= most)
        peak = peak if half else peak / (2 if self.half == "bf16" else 8)  # TF32, or none on cards without bf16
        return max(operations / (peak * 1e12 * EFFICIENT), moved / (stream * 1e12 * STREAMED), kernels * START)


def machine_of(plan: Mapping[str, Any]) -> Machine:
    """The one that the plan was made for."""
    entry = plan.get("machine")
    if not entry:
        return Machine()
    return Machine(int(entry["gpus"]), float(entry["memory_gb"]), bool(entry["here"]), str(entry["half"]))


def asked_machine(device: str, gpus: int, gpu_here: bool) -> Machine:
    """What `--device` and `--gpus` name.

    Args:
        device: see `DEVICE`.
        gpus: 0: as many as are here, or one of those that are not.
        gpu_here: whether PyTorch sees a GPU.

    Raises:
        SystemExit: no such machine; says what can be named.
    """
    if found := _FORM.fullmatch(device.strip()):
        return Machine(max(1, gpus), float(found[1]), False, (found[2] or "bf16").lower())
    if device not in ("auto", "cpu", "cuda"):
        raise SystemExit(f"--device {device}: known are {DEVICE}")
    if device == "cuda" and not gpu_here:
        raise SystemExit(
            "--device cuda: PyTorch sees no GPU here; name its memory to plan for one elsewhere (cuda:24GB)"
        )
    if device == "cpu" or not gpu_here:
        if gpus:
            raise SystemExit(f"--gpus {gpus}: there is no GPU here; name one that is elsewhere: --device cuda:24GB")
        return Machine()
    return here(gpus)


def here(gpus: int = 0) -> Machine:
    """The GPUs of this machine, the smallest counts; `gpus` 0 means all of them."""
    import torch

    from m3b.training.time_budget import real_bf16

    count = torch.cuda.device_count()
    if gpus > count:
        raise SystemExit(f"--gpus {gpus}: {count} here; name those elsewhere by their memory: --device cuda:24GB")
    sizes = [torch.cuda.get_device_properties(place).total_memory for place in range(count)]
    return Machine(gpus or count, round(min(sizes) / GB, 1), True, "bf16" if real_bf16() else "fp16")
