"""Too little memory: how it is recognised, and work that is done again in smaller pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def says_memory(error: BaseException) -> bool:
    """Whether an error is about memory, in the words of torch's CPU and GPU allocators and of cuDNN and cuBLAS; others name
    memory too ("tensors share memory")."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("out of memory", "allocate memory", "not enough memory", "alloc_failed", "workspace allocation failed")
    return isinstance(error, RuntimeError) and any(one in str(error).lower() for one in words)


def empty_cache() -> None:
    """Blocks that PyTorch holds without use go back to the GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def in_pieces(run: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
    """`run(batch)`, (B, ...) to (B, ...); where memory does not suffice, of its halves, down to one case at a time."""
    try:
        return run(batch)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not says_memory(error) or len(batch) < 2:
            raise
    empty_cache()
    half = len(batch) // 2
    return torch.cat([in_pieces(run, batch[:half]), in_pieces(run, batch[half:])])


def fits(device: torch.device, size: int) -> bool:
    """Whether so many bytes, beside a network at work, fit into a GPU: into half of what is free there. Processors swap."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return size < free / 2
