"""Prediction of a whole image window by window, with overlap, mirroring and shifts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.training.memory import empty_cache, is_out_of_memory

FillValue = float | Sequence[float]
"""Value outside of an image: one value, or one per channel."""
SHIFTS = ((0, 0, 0), (1, 2, 3), (2, 3, 1), (3, 1, 2))
"""Voxels by which an image is shifted on the network's grid (along each axis) to average its predictions.

A network that halves its grid is not shift-invariant. Averaging over shifts is cycle spinning (Coifman and Donoho,
Translation-invariant de-noising, 1995).
"""


def choose_window(shape: Sequence[int], plan: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the window for an image: its own size (rounded up) on axes little longer than the patch, else that of the patch."""
    result = []
    for length, side, step in zip(shape, plan["patch"], total_strides(plan), strict=True):
        rounded = -(-length // step) * step
        result.append(max(rounded, min(side, 2 * step)) if rounded <= 1.35 * side else int(side))
    return tuple(result)


def total_strides(plan: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the total stride of the network along each axis."""
    network = plan["network"]
    if network["name"] == "unet":
        return tuple(int(np.prod([s[axis] for s in network["strides"]])) for axis in range(int(plan["dims"])))
    return (32 if network["name"] == "swinunetr" else 8,) * int(plan["dims"])


def gaussian_weights(window: Sequence[int]) -> torch.Tensor:
    """Return Gaussian weights with a standard deviation of an eighth of the window, as nnU-Net (Isensee et al., 2021)."""
    weight = torch.ones(())
    for size in window:
        distances = (torch.arange(size) - (size - 1) / 2) / (size / 8)
        weight = weight[..., None] * torch.exp(-0.5 * distances.square())
    return weight.clamp_min(1e-3)


def window_starts(length: int, window: int) -> list[int]:
    """Return evenly spread starts of windows that overlap by half; the last one ends with the axis."""
    if length <= window:
        return [0]
    count = -(-(length - window) // max(1, window // 2)) + 1
    return [round(index * (length - window) / (count - 1)) for index in range(count)]


@torch.no_grad()
def predict_windows(
    image: torch.Tensor,
    run: Callable[[torch.Tensor], torch.Tensor],
    window: Sequence[int],
    fill: FillValue,
    device: torch.device,
    batch: int = 2,
    mirror: Sequence[int] = (),
) -> torch.Tensor:
    """Return logits (outputs, *shape) on the CPU of (C, *shape): windows overlap by half and are weighted by a Gaussian.

    The sum is stored on the device if it fits there next to the network; if `batch` windows do not fit, they are predicted one by one.

    Args:
        mirror: spatial axes (0, 1, 2); for each subset of them, the window is flipped, predicted, flipped back and averaged.
    """
    shape = image.shape[1:]
    missing = [max(0, side - length) for length, side in zip(shape, window, strict=True)]
    padded = pad(image, [(margin // 2, margin - margin // 2) for margin in missing], fill)
    starts = list(
        product(*(window_starts(length, side) for length, side in zip(padded.shape[1:], window, strict=True)))
    )
    for sum_device, count in ((device, batch), (device, 1), (torch.device("cpu"), 1)):
        try:
            averaged = _average_windows(padded, run, window, starts, (device, sum_device), count, mirror)
            break
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or (sum_device.type == "cpu" and count == 1):
                raise
            empty_cache()
    crop = tuple(slice(margin // 2, margin // 2 + length) for margin, length in zip(missing, shape, strict=True))
    return averaged[(slice(None), *crop)]


def pad(image: torch.Tensor, widths: Sequence[tuple[int, int]], fill: FillValue) -> torch.Tensor:
    """Pad (C, *shape) with voxels of `fill` before and after each spatial axis."""
    flat_widths = [width for pair in reversed(widths) for width in pair]
    channels = zip(image, np.broadcast_to(fill, len(image)), strict=True)
    return torch.stack([functional.pad(layer, flat_widths, value=float(value)) for layer, value in channels])


def average_over_shifts(
    image: torch.Tensor, run: Callable[[torch.Tensor], torch.Tensor], fill: FillValue
) -> torch.Tensor:
    """Return the mean of the logits that `run` predicts for the image shifted by each of SHIFTS, shifted back (test-time
    augmentation).
    """
    shape, max_shift, total = image.shape[1:], max(map(max, SHIFTS)), torch.zeros(())
    for shift in SHIFTS:
        offsets = shift[: len(shape)]
        shifted = run(pad(image, [(offset, max_shift - offset) for offset in offsets], fill))
        crop = (slice(offset, offset + n) for offset, n in zip(offsets, shape, strict=True))
        restored = shifted[(slice(None), *crop)]  # summed in place: logits of a large volume are gigabytes
        total = total.add_(restored) if total.ndim else restored.clone()
    return total.div_(len(SHIFTS))


def _average_windows(
    padded: torch.Tensor,
    run: Callable[[torch.Tensor], torch.Tensor],
    window: Sequence[int],
    starts: Sequence[tuple[int, ...]],
    devices: tuple[torch.device, torch.device],
    batch: int,
    mirror: Sequence[int],
) -> torch.Tensor:
    """Return (outputs, *shape) on the CPU: the weighted mean of the windows at `starts`.

    Args:
        devices: device of the network, and of the sum.
    """
    device, sum_device = devices
    weight, total = gaussian_weights(window).to(sum_device), None
    norm = torch.zeros(padded.shape[1:], device=sum_device)
    for first in range(0, len(starts), batch):
        window_group = starts[first : first + batch]
        blocks = [tuple(slice(s, s + n) for s, n in zip(place, window, strict=True)) for place in window_group]
        stack = torch.stack([padded[(slice(None), *block)] for block in blocks])
        predicted = average_mirrored(stack.to(device, non_blocking=True), run, mirror).float().to(sum_device)
        for block, logits in zip(blocks, predicted, strict=True):
            if total is None:
                total = torch.zeros(logits.shape[0], *padded.shape[1:], device=sum_device)
            total[(slice(None), *block)] += logits * weight
            norm[block] += weight
    assert total is not None
    return total.div_(norm).cpu()  # in place: logits of a large volume are gigabytes


def average_mirrored(
    batch: torch.Tensor, run: Callable[[torch.Tensor], torch.Tensor], axes: Sequence[int]
) -> torch.Tensor:
    """Return the mean of the logits over all subsets of mirrored axes."""
    subsets = [[axis + 2 for bit, axis in enumerate(axes) if number >> bit & 1] for number in range(2 ** len(axes))]
    results = [run(batch.flip(flips)).flip(flips) if flips else run(batch) for flips in subsets]
    return torch.stack(results).mean(0) if len(results) > 1 else results[0]
