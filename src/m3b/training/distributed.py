"""Several processes that train one model, one a GPU (torchrun): their ranks and what they agree on.

The first process decides (clock, figures) and writes. Values are exchanged over gloo on the processors, so that no GPU is
synchronised.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

GROUP_TIMEOUT = timedelta(hours=2)
"""Time that the others wait for the first process, which scores alone. A process that dies is noticed at once."""
MIN_CASES_FOR_NORM = 16
"""Cases of a GPU in a step below which batch normalisation takes the cases of all GPUs: the mean of fewer is noise."""


def rank() -> int:
    """Return the rank of this process, 0 for the first or only one."""
    return int(os.environ.get("RANK", 0))


def local_rank() -> int:
    """Return the rank on this machine, which is the number of the GPU."""
    return int(os.environ.get("LOCAL_RANK", 0))


def world_size() -> int:
    """Return the number of processes that train together, 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1))


def is_main() -> bool:
    """Return whether this process writes the files."""
    return rank() == 0


def start_group(on_cpu: bool) -> None:
    """Join the process group; no-op for a single process or if joined."""
    if world_size() < 2:
        return
    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    if on_cpu:
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    else:
        torch.cuda.set_device(local_rank())
    distributed.init_process_group("gloo" if on_cpu else "cpu:gloo,cuda:nccl", timeout=GROUP_TIMEOUT)


def broadcast(values: Sequence[float]) -> list[float]:
    """Return the values of the first process; the others pass as many, which are ignored."""
    if world_size() < 2:
        return list(values)
    import torch
    from torch import distributed

    table = torch.tensor(list(values), dtype=torch.float64)
    distributed.broadcast(table, 0)
    return [float(value) for value in table]


def broadcast_items(items: list[Any]) -> list[Any]:
    """Return the items of the first process, which are numbers or pairs of them."""
    if world_size() < 2:
        return items
    import torch
    from torch import distributed

    shared = [items]
    distributed.broadcast_object_list(shared, 0, device=torch.device("cpu"))
    return shared[0]


def barrier() -> None:
    """Wait until all processes have arrived."""
    broadcast([0.0])


def end_group() -> None:
    """Leave the process group."""
    if world_size() > 1:
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group()


@contextmanager
def main_first() -> Iterator[None]:
    """Run the block in the first process before the others, so that they find the cache filled."""
    if not is_main():
        barrier()
    yield
    if is_main():
        barrier()


def synchronize_norms(model: torch.nn.Module, device: torch.device, cases: int, processes: int) -> torch.nn.Module:
    """Return the network with batch normalisation over the cases of all GPUs if each has few; names of weights stay."""
    from torch.nn import SyncBatchNorm

    if processes < 2 or device.type != "cuda" or cases >= MIN_CASES_FOR_NORM:
        return model
    synchronized: torch.nn.Module = SyncBatchNorm.convert_sync_batchnorm(model)
    return synchronized


def has_unused_parameters(model: torch.nn.Module, batch: Mapping[str, Any]) -> bool:
    """Return whether a step leaves a parameter without gradient, which processes would have to look for in each step.

    Weights, statistics and random numbers stay as they are.
    """
    import torch

    before = {name: value.clone() for name, value in model.named_buffers()}
    with torch.random.fork_rng():
        model(**batch)["loss"].backward()
    unused = any(weight.grad is None for weight in model.parameters() if weight.requires_grad)
    model.zero_grad(set_to_none=True)
    for name, value in model.named_buffers():
        value.copy_(before[name])
    return unused
