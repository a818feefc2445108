"""Gradients of convolutions in bfloat16 on a processor, also where the kernel is longer than the map."""

from __future__ import annotations

import pytest
import torch
from template_kit import load

KERNELS = {2: (3, 7), 3: (3,)}
SIZES = {2: ((1, 1), (2, 2), (2, 8), (8, 8)), 3: ((1, 1, 1), (2, 2, 2), (2, 2, 8), (2, 4, 4), (4, 4, 4))}


@pytest.fixture(autouse=True)
def _unguarded_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d):
        monkeypatch.setattr(kind, "_conv_forward", kind._conv_forward)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("dims", "kernel", "size"),
    [(dims, kernel, size) for dims in (2, 3) for kernel in KERNELS[dims] for size in SIZES[dims]],
)
def test_gradients_of_weights_are_near_those_in_float32(
    dims: int, kernel: int, size: tuple[int, ...], stride: int
) -> None:
    torch.manual_seed(0)
    precision = load("precision")
    kind = torch.nn.Conv2d if dims == 2 else torch.nn.Conv3d
    convolution = kind(64, 64, kernel, stride=stride, padding=kernel // 2, bias=False)
    precision.apply_memory_layout(convolution, {"dims": dims})
    for _ in range(5):
        maps = torch.randn(2, 64, *size)
        unwritten = [torch.full((convolution.weight.numel() * share,), float("nan")) for share in (1, 2)]
        del unwritten  # memory that a kernel might take without writing to it
        with torch.autocast("cpu", torch.bfloat16):
            answer = convolution(maps)
        direction = torch.randn_like(answer)
        (half,) = torch.autograd.grad(answer, convolution.weight, direction)
        (exact,) = torch.autograd.grad(convolution(maps), convolution.weight, direction.float())
        assert float((half - exact).abs().max() / exact.abs().max()) < 0.05


def test_the_guard_is_put_on_once() -> None:
    precision = load("precision")
    precision.compute_small_maps_in_float32()
    forward = torch.nn.Conv2d._conv_forward
    precision.compute_small_maps_in_float32()
    assert torch.nn.Conv2d._conv_forward is forward
