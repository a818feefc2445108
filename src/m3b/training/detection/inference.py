"""A whole image through the model, in overlapping windows where it is larger than the patches of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.training.detection.boxes import flipped, fused, suppress
from m3b.training.detection.center_detector import decode
from m3b.training.detection.detectors import is_library
from m3b.training.memory import fits, in_pieces
from m3b.training.preprocess import surrounded

OVERLAP = 0.25
Found = tuple[np.ndarray, np.ndarray, np.ndarray]


def starts(have: int, want: int, overlap: float = OVERLAP) -> list[int]:
    """Lower ends of windows of `want` that cover `have`, evenly spread, overlapping by at least that share."""
    if have <= want:
        return [0]
    count = int(np.ceil((have - want) / max(1.0, want * (1 - overlap)))) + 1
    return [round(k * (have - want) / (count - 1)) for k in range(count)]


def window_count(array: np.ndarray, patch: Sequence[int]) -> int:
    """About how many windows the model looks at in (C, *image)."""
    sides = [place.stop - place.start for place in inner(array)]
    return int(np.prod([len(starts(have, want)) for have, want in zip(sides, patch, strict=True)]))


def inner(array: np.ndarray) -> tuple[slice, ...]:
    """The part of (C, *image) that is not empty border (the value of its corner): windows elsewhere find nothing."""
    different = (array != array.reshape(len(array), -1)[:, 0].reshape(-1, *(1,) * (array.ndim - 1))).any(axis=0)
    places = []
    for axis, length in enumerate(different.shape):
        line = np.flatnonzero(different.any(axis=tuple(a for a in range(different.ndim) if a != axis)))
        places.append(
            slice(max(0, int(line[0]) - 2), min(length, int(line[-1]) + 3)) if len(line) else slice(0, length)
        )
    return tuple(places)


def _padded(array: np.ndarray, patch: Sequence[int]) -> tuple[np.ndarray, list[int]]:
    """At least one patch large, the image in the middle; and how much was put before it."""
    before = [max(0, want - have) // 2 for have, want in zip(array.shape[1:], patch, strict=True)]
    after = [max(0, want - have) - b for have, want, b in zip(array.shape[1:], patch, before, strict=True)]
    if not any(before) and not any(after):
        return array, before
    return surrounded(array, list(zip(before, after, strict=True)), array.reshape(len(array), -1)[:, 0]), before


def bell(patch: Sequence[int]) -> torch.Tensor:
    """(*patch) weight of a window's voxels: a Gaussian of an eighth of the side, since borders are predicted worse."""
    weight = torch.ones(())
    for size in patch:
        place = torch.arange(size, dtype=torch.float32) - (size - 1) / 2
        line = torch.exp(-0.5 * (place / max(size / 8, 1e-3)) ** 2).clamp_min(1e-3)
        weight = weight[..., None] * line
    return weight


def own_axes(plan: Mapping[str, Any]) -> list[int]:
    """Axes along which the plan mirrors predictions; none while that is left to the validation ("auto")."""
    named = plan.get("mirror") or []
    return [] if named == "auto" else ["hwd".index(str(axis)) for axis in named]


def answered(model: torch.nn.Module, batch: torch.Tensor, plan: Mapping[str, Any]) -> torch.Tensor:
    """(B, outputs, ...) logits in float32; where the plan mirrors predictions, of the mean chances over all sets of its axes.

    Distances of boxes are averaged as they are, those to the lower and the upper side of a mirrored axis exchanged.
    """
    axes, total, values = own_axes(plan), 0.0, 0.0
    if not axes:
        return model(pixel_values=batch)["logits"].float()  # type: ignore[no-any-return]
    sets = [[axis for bit, axis in enumerate(axes) if number >> bit & 1] for number in range(2 ** len(axes))]
    classes, d = len(plan["classes"]), int(plan["dims"])
    for chosen in sets:
        places = [axis + 2 for axis in chosen]
        logits = model(pixel_values=batch.flip(places) if places else batch)["logits"].float()
        logits = logits.flip(places) if places else logits
        order = [axis + d if axis in chosen else axis for axis in range(d)]
        order += [axis if axis in chosen else axis + d for axis in range(d)]
        sides = [classes + 2 * d * k + place for k in range(classes) for place in order]
        total = total + logits[:, :classes].sigmoid() / len(sets)
        values = values + logits[:, sides if logits.shape[1] > classes else []] / len(sets)
    chance = torch.as_tensor(total).clamp(1e-6, 1 - 1e-6)
    return torch.cat([torch.log(chance / (1 - chance)), torch.as_tensor(values)], dim=1)


@torch.no_grad()
def mask_probabilities(
    model: torch.nn.Module, image: np.ndarray, plan: Mapping[str, Any], device: torch.device, batch: int = 2
) -> np.ndarray:
    """(C, *image) float32 to (K, *image) float32 chances of each class; 0 in the empty border."""
    patch, classes = [int(n) for n in plan["patch"]], len(plan["classes"])
    place = inner(image)
    piece, before = _padded(np.asarray(image[(slice(None), *place)], np.float32), patch)
    where = device if fits(device, 4 * (classes + 2) * int(np.prod(piece.shape[1:]))) else torch.device("cpu")
    total = torch.zeros(classes, *piece.shape[1:], device=where)
    weights, weight = torch.zeros(piece.shape[1:], device=where), bell(patch).to(where)
    grid = list(product(*[starts(have, want) for have, want in zip(piece.shape[1:], patch, strict=True)]))
    windows = [tuple(slice(s, s + p) for s, p in zip(corner, patch, strict=True)) for corner in grid]
    border = image.reshape(len(image), -1)[:, 0].reshape(-1, *(1,) * len(patch))
    seen = [window for window in windows if (piece[(slice(None), *window)] != border).any()]
    for window in windows:
        weights[window] += weight
    for first in range(0, len(seen), max(1, batch)):
        part = seen[first : first + max(1, batch)]
        stack = torch.from_numpy(np.stack([piece[(slice(None), *window)] for window in part])).to(device)
        chances = in_pieces(lambda part: answered(model, part, plan).sigmoid(), stack).to(where)
        for window, chance in zip(part, chances, strict=True):
            total[(slice(None), *window)] += chance * weight
    inside = tuple(slice(b, b + p.stop - p.start) for b, p in zip(before, place, strict=True))
    result = np.zeros((classes, *image.shape[1:]), np.float32)
    result[(slice(None), *place)] = (total / weights)[(slice(None), *inside)].cpu().numpy()
    return result


@torch.no_grad()
def find_boxes(
    model: torch.nn.Module, image: np.ndarray, plan: Mapping[str, Any], device: torch.device, batch: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(C, *image) float32 to boxes (N, 2 d) in its pixels, scores and class numbers, the surest first.

    Of a window only boxes with their centre in its own share of the image count: those at a border are cut in two.
    """
    patch, d = [int(n) for n in plan["patch"]], int(plan["dims"])
    piece, before = _padded(np.asarray(image, np.float32), patch)
    lines = [starts(have, want) for have, want in zip(piece.shape[1:], patch, strict=True)]
    grid = list(product(*[range(len(line)) for line in lines]))
    found: list[Found] = []
    for first in range(0, len(grid), max(1, batch)):
        part = grid[first : first + batch]
        corners = [[line[k] for line, k in zip(lines, numbers, strict=True)] for numbers in part]
        windows = [tuple(slice(s, s + p) for s, p in zip(corner, patch, strict=True)) for corner in corners]
        stack = torch.from_numpy(np.stack([piece[(slice(None), *window)] for window in windows])).to(device)
        for numbers, corner, answer in zip(part, corners, window_boxes(model, stack, plan), strict=True):
            boxes, scores, labels = answer
            boxes = boxes + np.array([*corner, *corner])
            own = _own(boxes, numbers, lines, patch)
            found.append((boxes[own], scores[own], labels[own]))
    boxes, scores, labels = (np.concatenate(column) for column in zip(*found, strict=True))
    size = np.array(image.shape[1:], float)
    shifted = boxes - np.array([*before, *before])
    boxes = np.clip(shifted, 0, np.concatenate([size, size]))
    solid = (boxes[:, d:] - boxes[:, :d] > 0.5).all(axis=1)
    boxes, scores, labels = boxes[solid], scores[solid], labels[solid]
    kept = suppress(boxes, scores, labels)
    return boxes[kept], scores[kept], labels[kept]


def window_boxes(model: torch.nn.Module, stack: torch.Tensor, plan: Mapping[str, Any]) -> list[Found]:
    """(boxes (N, 2 d) in pixels of the window, scores, labels) of each window of (B, C, *patch).

    Mirrored predictions of a library's detector are merged box by box: its anchors do not lie mirrored.
    """
    if not is_library(plan):
        outputs = in_pieces(lambda part: answered(model, part, plan), stack).cpu()
        found = decode(outputs, len(plan["classes"]), model.cell)  # type: ignore[arg-type]
        return [tuple(values.numpy() for values in one) for one in found]  # type: ignore[misc]
    axes, size = own_axes(plan), [int(n) for n in stack.shape[2:]]
    views: list[list[Found]] = []
    for number in range(2 ** len(axes)):
        chosen = [axis for bit, axis in enumerate(axes) if number >> bit & 1]
        turned = stack.flip([axis + 2 for axis in chosen]) if chosen else stack
        logits = in_pieces(lambda part: model(pixel_values=part)["logits"], turned)
        found = [[values.cpu().numpy() for values in one] for one in model.decode(logits, size)]  # type: ignore[operator]
        views.append([(flipped(one[0], size, chosen), one[1], one[2]) for one in found])
    return [fused(same) if len(same) > 1 else same[0] for same in zip(*views, strict=True)]


def _own(boxes: np.ndarray, numbers: Sequence[int], lines: Sequence[list[int]], patch: Sequence[int]) -> np.ndarray:
    """(N,) bool: the centre lies nearer to the middle of this window than to that of its neighbours."""
    d = len(patch)
    centre, own = (boxes[:, :d] + boxes[:, d:]) / 2, np.ones(len(boxes), bool)
    for axis, (k, line) in enumerate(zip(numbers, lines, strict=True)):
        if k > 0:
            own &= centre[:, axis] >= (line[k - 1] + patch[axis] + line[k]) / 2
        if k < len(line) - 1:
            own &= centre[:, axis] < (line[k] + patch[axis] + line[k + 1]) / 2
    return own


def to_grid(channels: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """(K, *working grid) chances, linearly interpolated on the image's own grid (K, *shape)."""
    if channels.ndim - 1 == len(shape) + 1:  # a single slice went through a 3D model
        channels = channels[..., 0]
    if channels.shape[1:] == tuple(shape):
        return channels
    tensor = torch.from_numpy(np.ascontiguousarray(channels))[None]
    mode = "trilinear" if len(shape) == 3 else "bilinear"
    result: np.ndarray = functional.interpolate(tensor, size=tuple(shape), mode=mode, align_corners=False)[0].numpy()
    return result
