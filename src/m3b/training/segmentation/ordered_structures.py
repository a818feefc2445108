"""Structures in a row, told apart by where they lie and by a number, instead of by a class each.

Vertebrae, discs or ribs of one side look alike, and what an image shows of them may begin anywhere. A class each has to be
learnt from the few voxels of that class. Here a row (`plan["chains"]`) has one class in common, and the network says of each
of its voxels two things more: how far along the row's axis the middle of its structure is, in pitches (the usual way from
one to the next), and the structure's number. All of them teach each of these. A whole image is then decided at once: the
voxels' votes for middles make peaks, a peak is a structure, and the likeliest sequence of labels is taken (Viterbi, 1967),
by the median numbers of the structures and by which label followed which how often in the training masks.

Channels of the network: background, each class that is in no row, each row; then number and middle, which rows share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from m3b.training.segmentation.row_decoding import sequence, structures

NUMBER, MIDDLE = -2, -1
"""Channels of the two fields."""
STEEP = 8.0
"""Logits a pitch by which a voxel loses a structure whose votes lie elsewhere."""
FAR = 2.0
"""Pitches that a voxel's structure may have its middle away; what an untrained network says has no bounds."""
NEVER = -30.0


def outputs_of(plan: Mapping[str, Any]) -> int:
    """Channels of the network: see the top of this file."""
    return len(channels(plan))


def channels(plan: Mapping[str, Any]) -> list[str]:
    """Their names."""
    rows = [f"{chain['classes'][0]} to {chain['classes'][-1]}" for chain in plan["chains"]]
    return ["background", *single(plan), *rows, "number", "middle"]


def single(plan: Mapping[str, Any]) -> list[str]:
    """The classes that are in no row, in their order."""
    together = {name for chain in plan["chains"] for name in chain["classes"]}
    return [name for name in plan["classes"] if name not in together]


def explained(plan: Mapping[str, Any]) -> str:
    """What the channels mean, for whoever has the graph without this file."""
    axes = ", ".join(
        f"{'hwd'[int(chain['axis'])]} with a pitch of {pitch_of(chain, plan):.3f} voxels" for chain in plan["chains"]
    )
    centre, half = numbered(plan)
    return (
        "a row, background or other class is that of the largest logit, the last two channels left out; in a row, "
        f"number times {half:g} plus {centre:g} is the structure's number, and middle the way to its middle along the row's axis in "
        f"pitches ({axes}). Which label a structure gets is decided in the whole image: `ordered_structures`"
    )


def tables(plan: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each place in a mask (0 for background): its channel, its number (-1 to 1 over all rows), its row's axis and pitch
    in voxels; the last two are -1 and 1 where a class is in no row."""
    places, alone = places_of(plan), single(plan)
    size, (centre, half) = len(places) + 1, numbered(plan)
    channel, axis = torch.zeros(size, dtype=torch.long), torch.full((size,), -1)
    number, pitch = torch.zeros(size), torch.ones(size)
    for order, name in enumerate(alone):
        channel[places[name]] = order + 1
    for order, chain in enumerate(plan["chains"]):
        for name, value in zip(chain["classes"], chain["numbers"], strict=True):
            channel[places[name]] = 1 + len(alone) + order
            number[places[name]], axis[places[name]] = (float(value) - centre) / half, int(chain["axis"])
            pitch[places[name]] = pitch_of(chain, plan)
    return channel, number, axis, pitch


def places_of(plan: Mapping[str, Any]) -> dict[str, int]:
    """Class to its place in masks, from 1 on."""
    return {name: place for place, name in enumerate(plan["classes"], start=1)}


def numbered(plan: Mapping[str, Any]) -> tuple[float, float]:
    """(centre, half of the range) of the numbers of all rows: the network gives numbers in these terms."""
    values = [float(value) for chain in plan["chains"] for value in chain["numbers"]]
    return (max(values) + min(values)) / 2, max(0.5, (max(values) - min(values)) / 2)


def pitch_of(chain: Mapping[str, Any], plan: Mapping[str, Any]) -> float:
    """From one structure to the next, in voxels of the plan's grid."""
    spacing = plan.get("spacing")
    return float(chain["pitch"]) / (float(spacing[int(chain["axis"])]) if spacing else 1.0)


def middles(
    mask: torch.Tensor,
    axis: torch.Tensor,
    pitch: torch.Tensor,
    scale: Sequence[float],
    axes: Sequence[int] | None = None,
) -> torch.Tensor:
    """(B, *shape) pitches from each voxel to the middle of what is marked alike in this patch; 0 where no row is.

    Args:
        mask: (B, *shape) places; the part of a structure that the patch shows counts as the structure.
        axis, pitch: of each place, from `tables`.
        scale: voxels of the plan's grid a voxel of the mask, an axis.
        axes: those that occur in `axis`; looked up if None, which waits for a GPU.
    """
    batch, size, dims = mask.shape[0], len(axis), mask.ndim - 1
    found = torch.zeros(mask.shape, device=mask.device)
    flat = (mask + size * torch.arange(batch, device=mask.device).view(-1, *(1,) * dims)).flatten()
    count = _sums(flat, torch.ones_like(flat, dtype=torch.float32), batch * size).clamp_min(1)
    for along in sorted({int(a) for a in axis} - {-1}) if axes is None else axes:
        line = torch.arange(mask.shape[along + 1], device=mask.device, dtype=torch.float32)
        line = line.view(*(-1 if k == along + 1 else 1 for k in range(dims + 1))).expand(mask.shape)
        mean = _sums(flat, line.flatten(), batch * size) / count
        apart = (mean[flat].view(mask.shape) - line) * float(scale[along]) / pitch[mask]
        found = torch.where(axis[mask] == along, apart, found)
    return found


def _sums(places: torch.Tensor, values: torch.Tensor, count: int) -> torch.Tensor:
    """(count,) sums of the values at each place; bincount is quicker, but a GPU has to be waited for."""
    if places.device.type == "cpu":
        return torch.bincount(places, weights=values, minlength=count)
    return values.new_zeros(count).index_add_(0, places, values)


# --- the decision about a whole image -------------------------------------------------------------------------------


def unfold(found: torch.Tensor, plan: Mapping[str, Any]) -> torch.Tensor:
    """Channels of the network (C, *shape), as they come, to logits of background and each class (K + 1, *shape)."""
    places, alone, (centre, half) = places_of(plan), single(plan), numbered(plan)
    logits = torch.full((len(places) + 1, *found.shape[1:]), NEVER)
    logits[0] = found[0]
    for order, name in enumerate(alone, start=1):
        logits[places[name]] = found[order]
    best = found[:NUMBER].argmax(0)
    for order, chain in enumerate(plan["chains"], start=1 + len(alone)):
        votes = middle_votes(found[MIDDLE], int(chain["axis"]), pitch_of(chain, plan))
        inside = (best == order).numpy()
        numbers = found[NUMBER].numpy()[inside] * half + centre
        for name, (low, high) in decided(votes.numpy()[inside], numbers, chain).items():
            out = (low - votes).clamp_min(0) + (votes - high).clamp_min(0)
            logits[places[name]] = found[order] - STEEP * out
    return logits


def middle_votes(field: torch.Tensor, axis: int, pitch: float) -> torch.Tensor:
    """(*shape) where along the axis each voxel takes its structure's middle to be, in pitches; no further than `FAR`."""
    line = torch.arange(field.shape[axis], dtype=torch.float32) / pitch
    return field.clamp(-FAR, FAR) + line.view(*(-1 if k == axis else 1 for k in range(field.ndim)))


def decided(votes: np.ndarray, numbers: np.ndarray, chain: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Label to the interval of votes (pitches) that is this structure, for the voxels of a row.

    Args:
        votes, numbers: (n,) of the voxels that are the row's.
    """
    spans = structures(votes, float(chain["closest"]))
    inside = [(votes >= low) & (votes < high) for low, high in spans]
    seen = [float(np.median(numbers[part])) for part in inside]
    result: dict[str, tuple[float, float]] = {}
    for place, (low, high) in zip(sequence(seen, chain), spans, strict=True):
        name = str(chain["classes"][place])
        before = result.get(name, (low, high))
        result[name] = min(low, before[0]), max(high, before[1])
    return result
