"""What a training step needs, found without making it: bytes that are alive at its peak, operations, bytes that are moved.

The network and its loss run forwards and backwards on tensors that have a shape and no content, so that a step for a card of
80 GB is looked at on any machine in a second or two. What the passes keep is counted storage by storage, as the allocator would.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

Batch = dict[str, Any]
CASES = (2, 4)
"""A step is looked at with so many cases: the difference is what one more costs (one alone has its own ways)."""


@dataclass(frozen=True)
class Trace:
    """A training step: what it costs whatever the batch (`fixed`), and with every case of it (`each`).

    Args:
        weights: bytes of the parameters and buffers.
        fixed, each: bytes alive at the peak besides the weights: what autograd keeps, gradients, what passes by.
        kept: of `each`, the bytes that the forward pass keeps for the backward one.
        operations: floating point operations of convolutions and products, a case.
        moved: bytes that kernels read and write, a case.
        kernels: how many of them a step starts, whatever the batch.
    """

    weights: int
    fixed: int
    each: int
    kept: int
    operations: int
    moved: int
    kernels: int


@dataclass
class PassCost:
    """Of one pass."""

    peak: int = 0
    kept: int = 0
    operations: int = 0
    moved: int = 0
    kernels: int = 0


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that operations made and that are still there; `given` ones are not counted."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()
        self.now, self.count = 0, PassCost()
        self.known: dict[int, Any] = {id(t.untyped_storage()): t.untyped_storage() for t in given}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        new = [tensor for tensor in made if self._add(tensor.untyped_storage())]
        if new or func.__name__.split(".")[0].endswith("_"):
            read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            self.count.moved += sum(tensor.numel() * tensor.element_size() for tensor in (*read, *made))
            self.count.kernels += 1
        if formula := flop_registry.get(getattr(func, "_overloadpacket", None)):
            self.count.operations += int(formula(*args, **kwargs, out_val=out))
        self.count.peak = max(self.count.peak, self.now)
        return out

    def _add(self, storage: Any) -> bool:
        key, size = id(storage), storage.nbytes()
        if key in self.known:
            return False
        self.known[key] = weakref.ref(storage, lambda _: self._gone(key, size))
        self.now += size
        return True

    def _gone(self, key: int, size: int) -> None:
        self.known.pop(key, None)
        self.now -= size


@contextmanager
def kept_bytes(given: list[torch.Tensor], count: PassCost) -> Iterator[None]:
    """Adds the bytes that autograd keeps for the backward pass, storage by storage; `given` (weights) are not counted."""
    seen: dict[int, Any] = {id(t.untyped_storage()): t.untyped_storage() for t in given}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in seen:
            seen[id(storage)] = storage
            count.kept += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield


def look(model: torch.nn.Module, batch: Mapping[str, Any], half: torch.dtype | None, fake: bool = True) -> PassCost:
    """One pass forwards and backwards of `model(**batch)["loss"]` on CPU tensors, with content or (`fake`) without."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    mode = FakeTensorMode() if fake else None
    with mode or nullcontext():
        if mode:
            state = {name: mode.from_tensor(value) for name, value in state.items()}
        else:
            state = {name: value.detach().requires_grad_(value.requires_grad) for name, value in state.items()}
        inputs = {key: mode.from_tensor(value) if mode else value for key, value in batch.items()}
        given = [*state.values(), *(value for value in inputs.values() if isinstance(value, torch.Tensor))]
        with LiveBytes(given) as alive:
            with kept_bytes(given, alive.count), torch.autocast("cpu", half or torch.bfloat16, enabled=bool(half)):
                loss = functional_call(model, state, kwargs=inputs)["loss"]
            loss.backward()
    return alive.count


def trace(model: torch.nn.Module, batch_of: Callable[[int], Batch], half: torch.dtype | None) -> Trace:
    """A training step of the model, which is in training mode, on the CPU.

    Args:
        batch_of: (cases) to what `model(**batch)` takes, on the CPU.
        half: the precision of convolutions and products, None for float32.
    """
    found = []
    for cases in CASES:
        try:
            found.append(look(model, batch_of(cases), half))
        except Exception:  # noqa: BLE001 - a step that depends on values, or a library that takes no empty tensors: a real one then
            found.append(look(model, batch_of(cases), half, fake=False))
    few, more = found
    apart = CASES[1] - CASES[0]
    each = max(0, (more.peak - few.peak) // apart)
    return Trace(
        weights=sum(value.numel() * value.element_size() for value in (*model.parameters(), *model.buffers())),
        fixed=max(0, few.peak - CASES[0] * each),
        each=each,
        kept=max(0, (more.kept - few.kept) // apart),
        operations=max(0, (more.operations - few.operations) // apart),
        moved=max(0, (more.moved - few.moved) // apart),
        kernels=few.kernels,
    )
