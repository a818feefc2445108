"""Out of memory: how it is recognised, and work that is repeated in smaller pieces."""

from __future__ import annotations

from collections.abc import Callable

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is about too little memory, by the messages of torch's allocators, cuDNN and cuBLAS; other errors
    mention memory too ("tensors share memory")."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("out of memory", "allocate memory", "not enough memory", "alloc_failed", "workspace allocation failed")
    return isinstance(error, RuntimeError) and any(phrase in str(error).lower() for phrase in words)


def empty_cache() -> None:
    """Return unused blocks of PyTorch to the GPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_in_pieces(run: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
    """Return `run(batch)`, (B, ...) to (B, ...); if memory does not suffice, of its halves, down to single cases."""
    try:
        return run(batch)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error) or len(batch) < 2:
            raise
    empty_cache()
    half = len(batch) // 2
    return torch.cat([run_in_pieces(run, batch[:half]), run_in_pieces(run, batch[half:])])


def fits_on_gpu(device: torch.device, size: int) -> bool:
    """Return whether so many bytes fit into half of the free memory of a GPU, beside a network; processors swap."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return size < int(free) / 2
