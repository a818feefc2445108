"""The default order in which an epoch shows the cases."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


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
