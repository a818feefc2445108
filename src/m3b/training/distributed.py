"""Several processes that train one model, one a GPU (torchrun): who they are, and what they agree on.

The first process has the say: its clock, its figures and its decisions are everybody's, and it alone writes. What is agreed
on goes over the processors (gloo), so that no GPU is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

WAIT = timedelta(hours=2)
"""The others wait so long for the first one, which scores alone. A process that dies is noticed at once."""


def rank() -> int:
    """The number of this process, 0 for the first or only one."""
    return int(os.environ.get("RANK", 0))


def local_rank() -> int:
    """Its number on this machine, which is that of its GPU."""
    return int(os.environ.get("LOCAL_RANK", 0))


def world_size() -> int:
    """How many train together, 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1))


def is_main() -> bool:
    """Whether this is the process that writes."""
    return rank() == 0


def start_group(on_cpu: bool) -> None:
    """Meet the other processes; nothing happens where there are none, or for the second time."""
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
    distributed.init_process_group("gloo" if on_cpu else "cpu:gloo,cuda:nccl", timeout=WAIT)


def broadcast(values: Sequence[float]) -> list[float]:
    """The first process's values, for all; the others give as many of their own, which are lost."""
    if world_size() < 2:
        return list(values)
    import torch
    from torch import distributed

    table = torch.tensor(list(values), dtype=torch.float64)
    distributed.broadcast(table, 0)
    return [float(value) for value in table]


def barrier() -> None:
    """Nobody goes on before all have come so far."""
    broadcast([0.0])


def end_group() -> None:
    """The end of working together."""
    if world_size() > 1:
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group()


@contextmanager
def main_first() -> Iterator[None]:
    """The first process does what is inside before the others do: it fills the cache, they find it filled."""
    if not is_main():
        barrier()
    yield
    if is_main():
        barrier()
