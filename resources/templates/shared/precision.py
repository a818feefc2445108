"""Device and precision of a plan on the machine that it runs on: bf16 where it is real, fp16 elsewhere on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def device_of(plan: Mapping[str, Any]) -> torch.device:
    """Where the plan wants the model to be; of several processes each has a GPU of its own."""
    if not torch.cuda.is_available() or plan["device"] == "cpu":
        return torch.device("cpu")
    from .distributed import local_rank

    return torch.device("cuda", local_rank() % torch.cuda.device_count())


def half_of(plan: Mapping[str, Any], device: torch.device) -> torch.dtype | None:
    """What convolutions and products are computed in, None for float32. A GPU without bf16 of its own (it would be
    emulated) takes fp16 instead; a processor has no fp16 worth the name."""
    wanted = str(plan.get("precision") or ("fp32" if device.type == "cpu" else "bf16"))
    if wanted == "fp32":
        return None
    if device.type != "cuda":
        return torch.bfloat16 if wanted == "bf16" else None
    real = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if wanted == "bf16" and real else torch.float16


def autocast(plan: Mapping[str, Any], device: torch.device) -> AbstractContextManager[Any]:
    """The context in which the plan's network computes there."""
    half = half_of(plan, device)
    return torch.autocast(device.type, half) if half else nullcontext()


def laid_out(model: torch.nn.Module, plan: Mapping[str, Any]) -> torch.nn.Module:
    """The model with its weights in the order that the plan wants (`channels_last`); they are saved in the usual one."""
    if plan.get("channels_last"):
        last = torch.channels_last if int(plan["dims"]) == 2 else torch.channels_last_3d
        for weight in model.parameters():
            if weight.ndim == int(plan["dims"]) + 2:  # a network of volumes may hold layers of pictures
                weight.data = weight.data.contiguous(memory_format=last)
        model.register_state_dict_post_hook(_packed)
    return model


def _packed(_: torch.nn.Module, state: dict[str, torch.Tensor], prefix: str, __: Any) -> None:
    state |= {name: value.contiguous() for name, value in state.items() if name.startswith(prefix)}
