"""The order in which an epoch shows the cases: the default, and one for several processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler, Sampler

from m3b.training.distributed import broadcast_items, world_size


class CaseSampler(Sampler[int]):
    """An epoch of `items` items: every case equally often, the rest random cases, in another random order each epoch."""

    def __init__(self, cases: int, items: int, seed: int) -> None:
        self.cases, self.items, self.seed, self.epoch = cases, items, seed, 0

    def __len__(self) -> int:
        return self.items

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, so that a resumed epoch has its order again."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        random = torch.Generator().manual_seed(self.seed + 1_000_003 * self.epoch)
        rounds = torch.arange(self.cases).repeat(self.items // self.cases)
        rest = torch.randperm(self.cases, generator=random)[: self.items % self.cases]
        items = torch.cat([rounds, rest])
        yield from items[torch.randperm(len(items), generator=random)].tolist()


class SharedSampler(Sampler[Any]):
    """The items that a sampler of the first process draws, in all processes: a sampler may take random numbers from anywhere."""

    def __init__(self, sampler: Sampler[Any]) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch of a sampler that has one."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        yield from broadcast_items(list(self.sampler))


def share_order(sampler: Sampler[Any]) -> Sampler[Any]:
    """Return a sampler with the same order in all processes; accelerate seeds a `RandomSampler` alike by itself."""
    return sampler if world_size() < 2 or isinstance(sampler, RandomSampler) else SharedSampler(sampler)
