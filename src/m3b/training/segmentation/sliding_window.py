"""Patches out of arrays, and a network run over a whole image window by window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.training.memory import empty_cache, says_memory

Fill = float | Sequence[float]
"""What lies outside an image: one value, or one a channel."""
SHIFTS = ((0, 0, 0), (1, 2, 3), (2, 3, 1), (3, 1, 2))
"""Voxels by which an image is moved on the network's grid (an axis each) to average its answers: a network that halves its grid
answers otherwise for an image that is moved. Averaging over shifts is cycle spinning (Coifman and Donoho, Translation-invariant
de-noising, 1995)."""


def cut(array: np.ndarray, start: Sequence[int], size: Sequence[int], fill: Fill) -> np.ndarray:
    """The block of the last axes that begins at `start` (which may be negative); outside of the array is `fill`."""
    lead = array.ndim - len(size)
    spans = [(max(0, s), min(have, s + n)) for s, n, have in zip(start, size, array.shape[lead:], strict=True)]
    inside = array[(..., *(slice(low, high) for low, high in spans))]
    if inside.shape[lead:] == tuple(size):
        return np.array(inside)
    outside = np.asarray(fill, array.dtype).reshape(-1, *(1,) * len(size)) if np.ndim(fill) else fill
    block = np.full((*array.shape[:lead], *size), outside, array.dtype)
    block[(..., *(slice(low - s, high - s) for (low, high), s in zip(spans, start, strict=True)))] = inside
    return block


def window_of(shape: Sequence[int], plan: Mapping[str, Any]) -> tuple[int, ...]:
    """The window for an image: its own size (rounded up) on axes little longer than the patch, else the patch's."""
    result = []
    for have, want, step in zip(shape, plan["patch"], steps_of(plan), strict=True):
        whole = -(-have // step) * step
        result.append(max(whole, min(want, 2 * step)) if whole <= 1.35 * want else int(want))
    return tuple(result)


def steps_of(plan: Mapping[str, Any]) -> tuple[int, ...]:
    """What the network divides each axis by."""
    network = plan["network"]
    if network["name"] == "unet":
        return tuple(int(np.prod([s[axis] for s in network["strides"]])) for axis in range(int(plan["dims"])))
    return (32 if network["name"] == "swinunetr" else 8,) * int(plan["dims"])


def importance(window: Sequence[int]) -> torch.Tensor:
    """Gaussian weights with a standard deviation of an eighth of the window, as nnU-Net's (Isensee et al., 2021)."""
    weight = torch.ones(())
    for size in window:
        places = (torch.arange(size) - (size - 1) / 2) / (size / 8)
        weight = weight[..., None] * torch.exp(-0.5 * places.square())
    return weight.clamp_min(1e-3)


def starts(have: int, window: int) -> list[int]:
    """Evenly spread windows that overlap by half and end with the axis."""
    if have <= window:
        return [0]
    count = -(-(have - window) // max(1, window // 2)) + 1
    return [round(k * (have - window) / (count - 1)) for k in range(count)]


@torch.no_grad()
def sliding(
    image: torch.Tensor,
    run: Callable[[torch.Tensor], torch.Tensor],
    window: Sequence[int],
    fill: Fill,
    device: torch.device,
    batch: int = 2,
    mirror: Sequence[int] = (),
) -> torch.Tensor:
    """(C, *shape) to logits (outputs, *shape) on the CPU: windows overlap by half and are weighted by a Gaussian.

    The sum lies on the device, where it fits there beside the network; windows are looked at one by one where `batch` of
    them do not fit.

    `mirror`: spatial axes (0, 1, 2); each set of them is flipped, predicted, flipped back and averaged.
    """
    shape = image.shape[1:]
    room = [max(0, want - have) for have, want in zip(shape, window, strict=True)]
    wide = padded(image, [(free // 2, free - free // 2) for free in room], fill)
    places = list(product(*(starts(have, want) for have, want in zip(wide.shape[1:], window, strict=True))))
    for where, count in ((device, batch), (device, 1), (torch.device("cpu"), 1)):
        try:
            found = _summed(wide, run, window, places, (device, where), count, mirror)
            break
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not says_memory(error) or (where.type == "cpu" and count == 1):
                raise
            empty_cache()
    inside = tuple(slice(free // 2, free // 2 + have) for free, have in zip(room, shape, strict=True))
    return found[(slice(None), *inside)]


def padded(image: torch.Tensor, widths: Sequence[tuple[int, int]], fill: Fill) -> torch.Tensor:
    """(C, *shape) with so many voxels of `fill` before and after each spatial axis."""
    flat = [width for pair in reversed(widths) for width in pair]
    layers = zip(image, np.broadcast_to(fill, len(image)), strict=True)
    return torch.stack([functional.pad(layer, flat, value=float(value)) for layer, value in layers])


def averaged_over_shifts(image: torch.Tensor, run: Callable[[torch.Tensor], torch.Tensor], fill: Fill) -> torch.Tensor:
    """Test-time augmentation: the mean of the logits that `run`, (C, *shape) to (outputs, *shape), gives for the image shifted by each
    of SHIFTS, shifted back."""
    shape, most, total = image.shape[1:], max(map(max, SHIFTS)), torch.zeros(())
    for shift in SHIFTS:
        moves = shift[: len(shape)]
        seen = run(padded(image, [(move, most - move) for move in moves], fill))
        own = seen[(slice(None), *(slice(move, move + n) for move, n in zip(moves, shape, strict=True)))]
        total = total.add_(own) if total.ndim else own.clone()  # one sum: logits of a large volume are gigabytes
    return total.div_(len(SHIFTS))


def _summed(
    wide: torch.Tensor,
    run: Callable[[torch.Tensor], torch.Tensor],
    window: Sequence[int],
    places: Sequence[tuple[int, ...]],
    devices: tuple[torch.device, torch.device],
    batch: int,
    mirror: Sequence[int],
) -> torch.Tensor:
    """(outputs, *shape) on the CPU: the weighted mean of the windows at `places`; the network is on the first device, the
    sum on the second."""
    device, where = devices
    weight, total = importance(window).to(where), None
    norm = torch.zeros(wide.shape[1:], device=where)
    for first in range(0, len(places), batch):
        group = places[first : first + batch]
        blocks = [tuple(slice(s, s + n) for s, n in zip(place, window, strict=True)) for place in group]
        stack = torch.stack([wide[(slice(None), *block)] for block in blocks])
        found = mirrored(stack.to(device, non_blocking=True), run, mirror).float().to(where)
        for block, logits in zip(blocks, found, strict=True):
            if total is None:
                total = torch.zeros(logits.shape[0], *wide.shape[1:], device=where)
            total[(slice(None), *block)] += logits * weight
            norm[block] += weight
    assert total is not None
    return (total / norm).cpu() if where.type == "cpu" else total.div_(norm).cpu()


def mirrored(batch: torch.Tensor, run: Callable[[torch.Tensor], torch.Tensor], axes: Sequence[int]) -> torch.Tensor:
    """Mean of the logits over all sets of mirrored axes."""
    sets = [[axis + 2 for bit, axis in enumerate(axes) if number >> bit & 1] for number in range(2 ** len(axes))]
    results = [run(batch.flip(chosen)).flip(chosen) if chosen else run(batch) for chosen in sets]
    return torch.stack(results).mean(0) if len(results) > 1 else results[0]
