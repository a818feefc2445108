"""Structures in a row, distinguished by position and number instead of by one class each.

Vertebrae, discs or ribs of one side look alike, and an image may show any part of the row. Separate classes would have to be learnt
from the few voxels of each. Here a row (`plan["chains"]`) has one common class, and for each of its voxels the network predicts two
more values: the distance along the row's axis to the centre of its structure, in pitches (the usual distance between neighbours), and
the number of the structure. Every structure of the row contributes to learning them. A whole image is then decided at once: votes of
the voxels for centres form peaks, a peak is a structure, and the most likely sequence of labels is chosen (Viterbi, 1967), by the
median numbers of the structures and by how often one label follows another in the training masks.

Channels of the network: background, each class outside all rows, each row; then number and middle, which all rows share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import ndimage, signal

NUMBER, MIDDLE = -2, -1
"""Channels of the two values that rows have in addition."""
LOGIT_SLOPE = 8.0
"""Logits per pitch that a voxel loses for a structure whose votes lie elsewhere."""
MAX_MIDDLE_DISTANCE = 2.0
"""Maximum distance in pitches to the centre of a voxel's structure; outputs of an untrained network are unbounded."""
ABSENT_LOGIT = -30.0


def count_channels(plan: Mapping[str, Any]) -> int:
    """Return the number of channels of the network; see the top of this file."""
    return len(channel_names(plan))


def channel_names(plan: Mapping[str, Any]) -> list[str]:
    """Return the names of the channels."""
    rows = [f"{chain['classes'][0]} to {chain['classes'][-1]}" for chain in plan["chains"]]
    return ["background", *classes_outside_rows(plan), *rows, "number", "middle"]


def classes_outside_rows(plan: Mapping[str, Any]) -> list[str]:
    """Return the classes that are in no row, in their order."""
    row_classes = {name for chain in plan["chains"] for name in chain["classes"]}
    return [name for name in plan["classes"] if name not in row_classes]


def explain_channels(plan: Mapping[str, Any]) -> str:
    """Return the meaning of the channels, for users of the graph without this file."""
    axes = ", ".join(
        f"{'hwd'[int(chain['axis'])]} with a pitch of {pitch_of(chain, plan):.3f} voxels" for chain in plan["chains"]
    )
    mean_number, half_range = number_range(plan)
    return (
        "row, background or other class by the largest logit, without the last two channels; in a row, "
        f"number times {half_range:g} plus {mean_number:g} is the structure's number, and middle the distance to its centre "
        f"along the row's axis in pitches ({axes}). The label of a structure is decided in the whole image: `ordered_structures`"
    )


def class_tables(plan: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return channel, number (-1 to 1 over all rows), axis and pitch (voxels) of each class id (0 for background).

    Axis and pitch are -1 and 1 for classes outside all rows.
    """
    ids, single_classes = class_ids(plan), classes_outside_rows(plan)
    size, (mean_number, half_range) = len(ids) + 1, number_range(plan)
    channel, axis = torch.zeros(size, dtype=torch.long), torch.full((size,), -1)
    number, pitch = torch.zeros(size), torch.ones(size)
    for order, name in enumerate(single_classes):
        channel[ids[name]] = order + 1
    for order, chain in enumerate(plan["chains"]):
        for name, value in zip(chain["classes"], chain["numbers"], strict=True):
            channel[ids[name]] = 1 + len(single_classes) + order
            number[ids[name]], axis[ids[name]] = (float(value) - mean_number) / half_range, int(chain["axis"])
            pitch[ids[name]] = pitch_of(chain, plan)
    return channel, number, axis, pitch


def class_ids(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return class -> id in masks, from 1 on."""
    return {name: place for place, name in enumerate(plan["classes"], start=1)}


def number_range(plan: Mapping[str, Any]) -> tuple[float, float]:
    """Return (centre, half range) of the numbers of all rows; the network predicts numbers relative to them."""
    values = [float(value) for chain in plan["chains"] for value in chain["numbers"]]
    return (max(values) + min(values)) / 2, max(0.5, (max(values) - min(values)) / 2)


def pitch_of(chain: Mapping[str, Any], plan: Mapping[str, Any]) -> float:
    """Return the distance from one structure to the next, in voxels of the plan's grid."""
    spacing = plan.get("spacing")
    return float(chain["pitch"]) / (float(spacing[int(chain["axis"])]) if spacing else 1.0)


def middle_distances(
    mask: torch.Tensor,
    axis: torch.Tensor,
    pitch: torch.Tensor,
    scale: Sequence[float],
    axes: Sequence[int] | None = None,
) -> torch.Tensor:
    """Return (B, *shape) distances in pitches from each voxel to the centre of its class in this patch; 0 outside all rows.

    Args:
        mask: (B, *shape) ids; the visible part of a structure counts as the structure.
        axis, pitch: of each id, from `class_tables`.
        scale: voxels of the plan's grid per voxel of the mask, along each axis.
        axes: the values in `axis`; computed if None, which synchronises with a GPU.
    """
    batch, size, dims = mask.shape[0], len(axis), mask.ndim - 1
    distances = torch.zeros(mask.shape, device=mask.device)
    flat_ids = (mask + size * torch.arange(batch, device=mask.device).view(-1, *(1,) * dims)).flatten()
    count = _sum_by_id(flat_ids, torch.ones_like(flat_ids, dtype=torch.float32), batch * size).clamp_min(1)
    for row_axis in sorted({int(value) for value in axis} - {-1}) if axes is None else axes:
        coordinate = torch.arange(mask.shape[row_axis + 1], device=mask.device, dtype=torch.float32)
        view = [-1 if dimension == row_axis + 1 else 1 for dimension in range(dims + 1)]
        coordinate = coordinate.view(view).expand(mask.shape)
        mean = _sum_by_id(flat_ids, coordinate.flatten(), batch * size) / count
        distance = (mean[flat_ids].view(mask.shape) - coordinate) * float(scale[row_axis]) / pitch[mask]
        distances = torch.where(axis[mask] == row_axis, distance, distances)
    return distances


def _sum_by_id(ids: torch.Tensor, values: torch.Tensor, count: int) -> torch.Tensor:
    """Return (count,) sums of the values of each id; bincount is faster on a CPU, but synchronises with a GPU."""
    if ids.device.type == "cpu":
        return torch.bincount(ids, weights=values, minlength=count)
    return values.new_zeros(count).index_add_(0, ids, values)


# --- the decision about a whole image -------------------------------------------------------------------------------


def decide_rows(outputs: torch.Tensor, plan: Mapping[str, Any]) -> torch.Tensor:
    """Convert the channels of the network (C, *shape) to logits of background and each class (K + 1, *shape)."""
    ids, single_classes, (mean_number, half_range) = class_ids(plan), classes_outside_rows(plan), number_range(plan)
    logits = torch.full((len(ids) + 1, *outputs.shape[1:]), ABSENT_LOGIT)
    logits[0] = outputs[0]
    for order, name in enumerate(single_classes, start=1):
        logits[ids[name]] = outputs[order]
    best_channel = outputs[:NUMBER].argmax(0)
    for order, chain in enumerate(plan["chains"], start=1 + len(single_classes)):
        votes = middle_votes(outputs[MIDDLE], int(chain["axis"]), pitch_of(chain, plan))
        is_row = (best_channel == order).numpy()
        numbers = outputs[NUMBER].numpy()[is_row] * half_range + mean_number
        for name, (low, high) in label_intervals(votes.numpy()[is_row], numbers, chain).items():
            vote_distance = (low - votes).clamp_min(0) + (votes - high).clamp_min(0)
            logits[ids[name]] = outputs[order] - LOGIT_SLOPE * vote_distance
    return logits


def middle_votes(field: torch.Tensor, axis: int, pitch: float) -> torch.Tensor:
    """Return (*shape) predicted position of each voxel's structure along the axis in pitches, at most `MAX_MIDDLE_DISTANCE` away."""
    coordinate = torch.arange(field.shape[axis], dtype=torch.float32) / pitch
    view = [-1 if dimension == axis else 1 for dimension in range(field.ndim)]
    return field.clamp(-MAX_MIDDLE_DISTANCE, MAX_MIDDLE_DISTANCE) + coordinate.view(view)


def label_intervals(votes: np.ndarray, numbers: np.ndarray, chain: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return label -> interval of votes (pitches) of its structure, for the voxels of a row.

    Args:
        votes, numbers: (n,) of the voxels of the row.
    """
    spans = find_structures(votes, float(chain["closest"]))
    memberships = [(votes >= low) & (votes < high) for low, high in spans]
    median_numbers = [float(np.median(numbers[members])) for members in memberships]
    result: dict[str, tuple[float, float]] = {}
    for row_index, (low, high) in zip(most_likely_sequence(median_numbers, chain), spans, strict=True):
        name = str(chain["classes"][row_index])
        previous = result.get(name, (low, high))
        result[name] = min(low, previous[0]), max(high, previous[1])
    return result


UNSEEN_TRANSITION_CHANCE = 1e-3
"""Probability of a transition that no training mask has: one structure missing, or one in two pieces."""
NUMBER_SCALE = 0.5
"""Usual error of a structure's median number: the scale of a Cauchy distribution.

Its heavy tails prevent one structure with a wrong number from shifting the labels of all others.
"""
MIN_VOTE_SHARE = 0.1
"""Minimum votes of a structure, relative to the median structure."""
MIN_DIP_SHARE = 0.1
"""Minimum decrease of the votes between two structures, relative to the usual votes of the row."""


def find_structures(votes: np.ndarray, closest: float) -> list[tuple[float, float]]:
    """Return intervals of votes in order, each with one peak, cut at the minima between peaks.

    Args:
        closest: pitches between the two closest neighbours.
    """
    if not len(votes):
        return []
    bins_per_pitch, low = 20, float(votes.min()) - 1
    bins = int((float(votes.max()) + 1 - low) * bins_per_pitch) + 1
    counts = np.bincount(((votes - low) * bins_per_pitch).astype(int), minlength=bins).astype(float)
    smooth = ndimage.gaussian_filter1d(counts, 0.15 * closest * bins_per_pitch)
    usual_votes = float(np.median(smooth[smooth > 0.05 * smooth.max()]))
    peaks, _ = signal.find_peaks(
        smooth, distance=0.5 * closest * bins_per_pitch, prominence=MIN_DIP_SHARE * usual_votes
    )
    cuts = [0, *(a + int(np.argmin(smooth[a:b])) for a, b in pairwise(peaks)), bins]
    mass = [counts[a:b].sum() for a, b in pairwise(cuts)]
    min_mass = MIN_VOTE_SHARE * float(np.median(mass))
    return [
        (low + a / bins_per_pitch, low + b / bins_per_pitch)
        for (a, b), votes_inside in zip(pairwise(cuts), mass, strict=True)
        if votes_inside >= min_mass
    ]


def most_likely_sequence(median_numbers: Sequence[float], chain: Mapping[str, Any]) -> list[int]:
    """Return the most likely row indices of structures with these median numbers, which follow each other along the axis."""
    if not median_numbers:
        return []
    numbers, transition_cost = np.array(chain["numbers"], float), transition_costs(chain)
    cost = np.log1p(((np.array(median_numbers)[:, None] - numbers) / NUMBER_SCALE) ** 2)
    total, predecessors = cost[0], []
    for row in cost[1:]:
        candidate_costs = total[:, None] + transition_cost
        predecessors.append(candidate_costs.argmin(0))
        total = candidate_costs.min(0) + row
    path = [int(total.argmin())]
    for predecessor in reversed(predecessors):
        path.append(int(predecessor[path[-1]]))
    return path[::-1]


def transition_costs(chain: Mapping[str, Any]) -> np.ndarray:
    """Return (n, n) cost of the second following the first, from counts in training masks; backward transitions are excluded."""
    size = len(chain["classes"])
    counts = np.zeros((size, size))
    for first, second, count in chain["follows"]:
        counts[int(first), int(second)] = float(count)
    probability = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    distance = np.arange(size)[None] - np.arange(size)[:, None]
    probability = np.maximum(
        probability, np.where(distance >= 0, UNSEEN_TRANSITION_CHANCE ** np.maximum(1, distance), 0)
    )
    return np.where(distance < 0, 1e6, -np.log(np.maximum(probability, 1e-300)))
