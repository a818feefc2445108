"""Device and precision of a plan on the current machine: bf16 if native, else fp16 on GPUs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch

MIN_MINUTES_TO_COMPILE = 30.0
"""Shorter trainings are not compiled: that takes minutes, and gains a few steps in a hundred."""


def device_of(plan: Mapping[str, Any]) -> torch.device:
    """Return the device of the plan's model; each of several processes has its own GPU."""
    if not torch.cuda.is_available() or plan["device"] == "cpu":
        return torch.device("cpu")
    from m3b.training.distributed import local_rank

    return torch.device("cuda", local_rank() % torch.cuda.device_count())


def half_precision(plan: Mapping[str, Any], device: torch.device) -> torch.dtype | None:
    """Return the type of convolutions and products, None for float32. A GPU that would emulate bf16 uses fp16; processors have no
    useful fp16."""
    precision = str(plan.get("precision") or ("fp32" if device.type == "cpu" else "bf16"))
    if precision == "fp32":
        return None
    if device.type != "cuda":
        return torch.bfloat16 if precision == "bf16" else None
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if precision == "bf16" and has_bf16 else torch.float16


def autocast(plan: Mapping[str, Any], device: torch.device) -> AbstractContextManager[Any]:
    """Return the context in which the plan's network computes on the device."""
    half = half_precision(plan, device)
    return torch.autocast(device.type, half) if half else nullcontext()


def apply_memory_layout(model: torch.nn.Module, plan: Mapping[str, Any]) -> torch.nn.Module:
    """Set the memory layout of the plan (`channels_last`) for the weights; they are saved in the usual one."""
    compute_small_maps_in_float32()
    if plan.get("channels_last"):
        memory_format = torch.channels_last if int(plan["dims"]) == 2 else torch.channels_last_3d
        for weight in model.parameters():
            if weight.ndim == int(plan["dims"]) + 2:  # a 3D network may have 2D layers
                weight.data = weight.data.contiguous(memory_format=memory_format)
        model.register_state_dict_post_hook(_pack_state)
    return model


def compute_small_maps_in_float32() -> None:
    """Let convolutions on a processor compute in float32 if the kernel is longer than the map, whatever autocast says.

    In bfloat16, gradients of their weights are wrong or not a number (PyTorch 2.13, a processor with AVX-512 BF16), such as for
    3 x 3 x 3 kernels on 2 x 2 x 2 voxels, and for 3 x 3 kernels of stride 2 on one pixel (tests/templates/test_small_maps.py).
    """
    for kind in (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d):
        if kind._conv_forward.__name__ != "_forward_small_maps":
            kind._conv_forward = _guard(kind._conv_forward)


def _guard(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def _forward_small_maps(
        self: Any, maps: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        sizes = zip(maps.shape[-len(self.kernel_size) :], self.kernel_size, strict=True)
        if maps.device.type != "cpu" or all(size >= kernel for size, kernel in sizes):
            return forward(self, maps, weight, bias)
        with torch.autocast("cpu", enabled=False):
            return forward(self, maps.to(weight.dtype), weight, bias)

    return _forward_small_maps


def _pack_state(_: torch.nn.Module, state: dict[str, torch.Tensor], prefix: str, __: Any) -> None:
    state |= {name: value.contiguous() for name, value in state.items() if name.startswith(prefix)}


def set_gpu_math(plan: Mapping[str, Any]) -> None:
    """Let cuDNN search its fastest algorithms, and products of float32 use TF32; no search if a training has to repeat exactly."""
    if device_of(plan).type != "cuda":
        return
    torch.backends.cudnn.benchmark = not plan.get("max_steps")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


@contextmanager
def keep_cudnn_algorithms() -> Iterator[None]:
    """Keep cuDNN from searching its algorithms anew for each of many image shapes."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def compile_in_place(model: torch.nn.Module, plan: Mapping[str, Any], seconds: float) -> bool:
    """Compile the network if the plan says so, and return whether; what cannot be compiled runs as it is.

    `compile` in plan.json: true, false, "auto" (on a GPU, for trainings of half an hour and more, if there is a compiler),
    or the name of a backend of torch.compile.
    """
    mode = plan.get("compile", False)
    if mode == "auto":
        mode = device_of(plan).type == "cuda" and seconds >= 60 * MIN_MINUTES_TO_COMPILE and can_compile()
    if not mode:
        return False
    import torch._dynamo

    torch._dynamo.config.suppress_errors = True
    model.compile(backend="inductor" if mode is True else str(mode), dynamic=False)
    return True


def can_compile() -> bool:
    """Return whether there is what torch.compile needs for a GPU: Triton, and a C compiler for its launchers."""
    return bool(find_spec("triton")) and any(map(shutil.which, ("cc", "gcc", "clang")))
