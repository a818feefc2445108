"""Cost of a training step without running it: bytes alive at its peak, operations, bytes moved.

Network and loss run forwards and backwards on tensors with a shape and no content, so that a step for a GPU of 80 GB is traced on any
machine in a second or two. Saved tensors are counted storage by storage, as the allocator would.
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
TRACED_BATCHES = (2, 4)
"""Batch sizes that are traced; the difference is the cost of one more case (a single case may take other code paths)."""


@dataclass(frozen=True)
class Trace:
    """Cost of a training step: independent of the batch (`fixed`), and for each case (`per_case`).

    Args:
        weights: bytes of the parameters and buffers.
        fixed, per_case: bytes alive at the peak besides the weights: saved tensors, gradients, temporaries.
        saved: of `per_case`, the bytes that the forward pass saves for the backward pass.
        operations: floating point operations of convolutions and products, a case.
        moved_bytes: bytes that kernels read and write, a case.
        kernels: started by a step, whatever the batch.
    """

    weights: int
    fixed: int
    per_case: int
    saved: int
    operations: int
    moved_bytes: int
    kernels: int


@dataclass
class PassCost:
    """Cost of one forward and backward pass."""

    peak: int = 0
    saved: int = 0
    operations: int = 0
    moved_bytes: int = 0
    kernels: int = 0


class LiveBytes(TorchDispatchMode):
    """Bytes of the live storages that operations allocated, without those of the given tensors."""

    def __init__(self, inputs_and_weights: list[torch.Tensor]) -> None:
        super().__init__()
        self.live_bytes, self.cost = 0, PassCost()
        self.storages: dict[int, Any] = {id(t.untyped_storage()): t.untyped_storage() for t in inputs_and_weights}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        new = [tensor for tensor in outputs if self._add(tensor.untyped_storage())]
        if new or func.__name__.split(".")[0].endswith("_"):
            inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            self.cost.moved_bytes += sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, *outputs))
            self.cost.kernels += 1
        if formula := flop_registry.get(getattr(func, "_overloadpacket", None)):
            self.cost.operations += int(formula(*args, **kwargs, out_val=out))
        self.cost.peak = max(self.cost.peak, self.live_bytes)
        return out

    def _add(self, storage: Any) -> bool:
        key, size = id(storage), storage.nbytes()
        if key in self.storages:
            return False
        self.storages[key] = weakref.ref(storage, lambda _: self._release(key, size))
        self.live_bytes += size
        return True

    def _release(self, key: int, size: int) -> None:
        self.storages.pop(key, None)
        self.live_bytes -= size


@contextmanager
def count_saved_bytes(inputs_and_weights: list[torch.Tensor], count: PassCost) -> Iterator[None]:
    """Add the bytes that autograd saves for the backward pass, storage by storage, without those of the given tensors (weights)."""
    counted: dict[int, Any] = {id(t.untyped_storage()): t.untyped_storage() for t in inputs_and_weights}

    def save_hook(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in counted:
            counted[id(storage)] = storage
            count.saved += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save_hook, lambda tensor: tensor):
        yield


def trace_pass(
    model: torch.nn.Module, batch: Mapping[str, Any], half: torch.dtype | None, fake: bool = True
) -> PassCost:
    """Trace `model(**batch)["loss"]` forwards and backwards on CPU tensors, without content if `fake`."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    mode = FakeTensorMode() if fake else None
    with mode or nullcontext():
        if mode:
            state = {name: mode.from_tensor(value) for name, value in state.items()}
        else:
            state = {name: value.detach().requires_grad_(value.requires_grad) for name, value in state.items()}
        inputs = {key: mode.from_tensor(value) if mode else value for key, value in batch.items()}
        inputs_and_weights = [*state.values(), *(value for value in inputs.values() if isinstance(value, torch.Tensor))]
        with LiveBytes(inputs_and_weights) as alive:
            with (
                count_saved_bytes(inputs_and_weights, alive.cost),
                torch.autocast("cpu", half or torch.bfloat16, enabled=bool(half)),
            ):
                loss = functional_call(model, state, kwargs=inputs)["loss"]
            loss.backward()
    cost: PassCost = alive.cost
    return cost


def trace_step(model: torch.nn.Module, batch_of: Callable[[int], Batch], half: torch.dtype | None) -> Trace:
    """Trace a training step of a model in training mode on the CPU.

    Args:
        batch_of: (cases) to the arguments of the model, on the CPU.
        half: the precision of convolutions and products, None for float32.
    """
    costs = []
    for cases in TRACED_BATCHES:
        try:
            costs.append(trace_pass(model, batch_of(cases), half))
        except Exception:  # noqa: BLE001 - steps that depend on values, and libraries that reject empty tensors, need real ones
            costs.append(trace_pass(model, batch_of(cases), half, fake=False))
    small, large = costs
    added_cases = TRACED_BATCHES[1] - TRACED_BATCHES[0]
    per_case = max(0, (large.peak - small.peak) // added_cases)
    return Trace(
        weights=sum(value.numel() * value.element_size() for value in (*model.parameters(), *model.buffers())),
        fixed=max(0, small.peak - TRACED_BATCHES[0] * per_case),
        per_case=per_case,
        saved=max(0, (large.saved - small.saved) // added_cases),
        operations=max(0, (large.operations - small.operations) // added_cases),
        moved_bytes=max(0, (large.moved_bytes - small.moved_bytes) // added_cases),
        kernels=small.kernels,
    )
