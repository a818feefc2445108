"""Prediction of a whole image, in overlapping windows if it is larger than the patches of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch.nn import functional

from m3b.training.detection.boxes import flip_boxes, fuse_boxes
from m3b.training.detection.center_detector import decode
from m3b.training.detection.detectors import is_library
from m3b.training.memory import fits_on_gpu, run_in_pieces
from m3b.training.preprocess import pad_array
from m3b.training.recipe import get_recipe

MIN_OVERLAP = 0.25
"""Minimum overlap of neighbouring windows, as a share of the window."""
Detections = tuple[np.ndarray, np.ndarray, np.ndarray]


def window_starts(length: int, window: int, overlap: float = MIN_OVERLAP) -> list[int]:
    """Return evenly spread starts of windows of `window` that cover `length` and overlap by at least that share."""
    if length <= window:
        return [0]
    count = int(np.ceil((length - window) / max(1.0, window * (1 - overlap)))) + 1
    return [round(index * (length - window) / (count - 1)) for index in range(count)]


def count_windows(array: np.ndarray, patch: Sequence[int]) -> int:
    """Return about how many windows the model predicts for (C, *image)."""
    sides = [extent.stop - extent.start for extent in content_box(array)]
    return int(np.prod([len(window_starts(length, side)) for length, side in zip(sides, patch, strict=True)]))


def content_box(array: np.ndarray) -> tuple[slice, ...]:
    """Return the box of (C, *image) without empty border (the corner value), with a margin of two voxels."""
    different = (array != array.reshape(len(array), -1)[:, 0].reshape(-1, *(1,) * (array.ndim - 1))).any(axis=0)
    boxes = ndimage.find_objects(different.view(np.uint8))
    if not boxes:
        return tuple(slice(0, length) for length in different.shape)
    return tuple(slice(max(0, s.start - 2), min(n, s.stop + 2)) for s, n in zip(boxes[0], different.shape, strict=True))


def _padded(array: np.ndarray, patch: Sequence[int]) -> tuple[np.ndarray, list[int]]:
    """Return the image in the centre of an array of at least one patch; and the padding before it."""
    before = [max(0, side - length) // 2 for length, side in zip(array.shape[1:], patch, strict=True)]
    after = [max(0, side - length) - b for length, side, b in zip(array.shape[1:], patch, before, strict=True)]
    if not any(before) and not any(after):
        return array, before
    return pad_array(array, list(zip(before, after, strict=True)), array.reshape(len(array), -1)[:, 0]), before


def gaussian_weights(patch: Sequence[int]) -> torch.Tensor:
    """Return (*patch) Gaussian weights of a window (sd: an eighth of the side), since borders are predicted worse."""
    weight = torch.ones(())
    for size in patch:
        distance = torch.arange(size, dtype=torch.float32) - (size - 1) / 2
        axis_weight = torch.exp(-0.5 * (distance / max(size / 8, 1e-3)) ** 2).clamp_min(1e-3)
        weight = weight[..., None] * axis_weight
    return weight


def mirror_axes(plan: Mapping[str, Any]) -> list[int]:
    """Return the axes along which the plan mirrors predictions; none while validation has not chosen ("auto")."""
    axes = plan.get("mirror") or []
    return [] if axes == "auto" else ["hwd".index(str(axis)) for axis in axes]


def predict_logits(model: torch.nn.Module, batch: torch.Tensor, plan: Mapping[str, Any]) -> torch.Tensor:
    """Return (B, outputs, ...) logits in float32; with mirroring, of the mean probabilities over all subsets of its axes.

    Distances of boxes are averaged, with those to the lower and the upper side of a mirrored axis exchanged.
    """
    axes, mean, mean_values = mirror_axes(plan), 0.0, 0.0
    if not axes:
        return torch.as_tensor(model(pixel_values=batch)["logits"].float())
    subsets = [[axis for bit, axis in enumerate(axes) if number >> bit & 1] for number in range(2 ** len(axes))]
    classes, d = len(plan["classes"]), int(plan["dims"])
    for flips in subsets:
        tensor_axes = [axis + 2 for axis in flips]
        logits = model(pixel_values=batch.flip(tensor_axes) if tensor_axes else batch)["logits"].float()
        logits = logits.flip(tensor_axes) if tensor_axes else logits
        order = [axis + d if axis in flips else axis for axis in range(d)]
        order += [axis if axis in flips else axis + d for axis in range(d)]
        sides = [classes + 2 * d * k + side for k in range(classes) for side in order]
        mean = mean + logits[:, :classes].sigmoid() / len(subsets)
        mean_values = mean_values + logits[:, sides if logits.shape[1] > classes else []] / len(subsets)
    probability = torch.as_tensor(mean).clamp(1e-6, 1 - 1e-6)
    return torch.cat([torch.log(probability / (1 - probability)), torch.as_tensor(mean_values)], dim=1)


@torch.no_grad()
def mask_probabilities(
    model: torch.nn.Module, image: np.ndarray, plan: Mapping[str, Any], device: torch.device, batch: int = 2
) -> np.ndarray:
    """Return (K, *image) float32 probabilities of each class for (C, *image) float32; 0 in the empty border."""
    patch, classes = [int(n) for n in plan["patch"]], len(plan["classes"])
    box = content_box(image)
    content, padding = _padded(np.asarray(image[(slice(None), *box)], np.float32), patch)
    sum_device = (
        device if fits_on_gpu(device, 4 * (classes + 2) * int(np.prod(content.shape[1:]))) else torch.device("cpu")
    )
    total = torch.zeros(classes, *content.shape[1:], device=sum_device)
    weights, weight = torch.zeros(content.shape[1:], device=sum_device), gaussian_weights(patch).to(sum_device)
    corners = list(product(*[window_starts(have, want) for have, want in zip(content.shape[1:], patch, strict=True)]))
    windows = [tuple(slice(s, s + extent) for s, extent in zip(corner, patch, strict=True)) for corner in corners]
    border = image.reshape(len(image), -1)[:, 0].reshape(-1, *(1,) * len(patch))
    non_empty = [window for window in windows if (content[(slice(None), *window)] != border).any()]
    for window in windows:
        weights[window] += weight
    for first in range(0, len(non_empty), max(1, batch)):
        group = non_empty[first : first + max(1, batch)]
        stack = torch.from_numpy(np.stack([content[(slice(None), *window)] for window in group])).to(device)
        probabilities = run_in_pieces(lambda group: predict_logits(model, group, plan).sigmoid(), stack).to(sum_device)
        for window, probability in zip(group, probabilities, strict=True):
            total[(slice(None), *window)] += probability * weight
    crop = tuple(slice(lower, lower + extent.stop - extent.start) for lower, extent in zip(padding, box, strict=True))
    result = np.zeros((classes, *image.shape[1:]), np.float32)
    result[(slice(None), *box)] = (total / weights)[(slice(None), *crop)].cpu().numpy()
    return np.asarray(get_recipe().postprocess(plan, result))


@torch.no_grad()
def find_boxes(
    model: torch.nn.Module, image: np.ndarray, plan: Mapping[str, Any], device: torch.device, batch: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes (N, 2 d) in pixels of (C, *image) float32, scores and class numbers, highest score first.

    A window contributes only boxes with their centre in its own region of the image: boxes at its border are cut.
    """
    patch, d = [int(n) for n in plan["patch"]], int(plan["dims"])
    padded_image, padding = _padded(np.asarray(image, np.float32), patch)
    axis_starts = [window_starts(have, want) for have, want in zip(padded_image.shape[1:], patch, strict=True)]
    window_indices = list(product(*[range(len(line)) for line in axis_starts]))
    detections: list[Detections] = []
    for first in range(0, len(window_indices), max(1, batch)):
        group = window_indices[first : first + batch]
        corners = [[line[k] for line, k in zip(axis_starts, indices, strict=True)] for indices in group]
        windows = [tuple(slice(s, s + p) for s, p in zip(corner, patch, strict=True)) for corner in corners]
        stack = torch.from_numpy(np.stack([padded_image[(slice(None), *window)] for window in windows])).to(device)
        for indices, corner, window_result in zip(group, corners, window_boxes(model, stack, plan), strict=True):
            boxes, scores, labels = window_result
            boxes = boxes + np.array([*corner, *corner])
            in_region = _is_in_own_region(boxes, indices, axis_starts, patch)
            detections.append((boxes[in_region], scores[in_region], labels[in_region]))
    boxes, scores, labels = (np.concatenate(column) for column in zip(*detections, strict=True))
    size = np.array(image.shape[1:], float)
    shifted = boxes - np.array([*padding, *padding])
    boxes = np.clip(shifted, 0, np.concatenate([size, size]))
    is_valid = (boxes[:, d:] - boxes[:, :d] > 0.5).all(axis=1)
    detections_of_image: Detections = get_recipe().postprocess(
        plan, (boxes[is_valid], scores[is_valid], labels[is_valid])
    )
    return detections_of_image


def window_boxes(model: torch.nn.Module, stack: torch.Tensor, plan: Mapping[str, Any]) -> list[Detections]:
    """Return (boxes (N, 2 d) in pixels of the window, scores, labels) of each window of (B, C, *patch).

    Mirrored predictions of a library's detector are fused box by box, as its anchors are not symmetric.
    """
    if not is_library(plan):
        outputs = run_in_pieces(lambda part: predict_logits(model, part, plan), stack).cpu()
        detections = decode(outputs, len(plan["classes"]), model.cell)
        return [(boxes.numpy(), scores.numpy(), labels.numpy()) for boxes, scores, labels in detections]
    axes, size = mirror_axes(plan), [int(n) for n in stack.shape[2:]]
    views: list[list[Detections]] = []
    for number in range(2 ** len(axes)):
        flips = [axis for bit, axis in enumerate(axes) if number >> bit & 1]
        flipped = stack.flip([axis + 2 for axis in flips]) if flips else stack
        detections = model.decode(run_in_pieces(lambda part: model(pixel_values=part)["logits"], flipped), size)
        arrays = [[values.cpu().numpy() for values in of_image] for of_image in detections]
        views.append([(flip_boxes(boxes, size, flips), scores, labels) for boxes, scores, labels in arrays])
    return [fuse_boxes(of_image) if len(of_image) > 1 else of_image[0] for of_image in zip(*views, strict=True)]


def _is_in_own_region(
    boxes: np.ndarray, indices: Sequence[int], axis_starts: Sequence[list[int]], patch: Sequence[int]
) -> np.ndarray:
    """Return (N,) bool: the centre is closer to the centre of this window than to that of its neighbours."""
    d = len(patch)
    centre, is_inside = (boxes[:, :d] + boxes[:, d:]) / 2, np.ones(len(boxes), bool)
    for axis, (index, starts) in enumerate(zip(indices, axis_starts, strict=True)):
        if index > 0:
            is_inside &= centre[:, axis] >= (starts[index - 1] + patch[axis] + starts[index]) / 2
        if index < len(starts) - 1:
            is_inside &= centre[:, axis] < (starts[index] + patch[axis] + starts[index + 1]) / 2
    return is_inside


def resample_probabilities(channels: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Interpolate (K, *working grid) probabilities linearly to the image's own grid (K, *shape)."""
    if channels.ndim - 1 == len(shape) + 1:  # a single slice predicted by a 3D model
        channels = channels[..., 0]
    if channels.shape[1:] == tuple(shape):
        return channels
    tensor = torch.from_numpy(np.ascontiguousarray(channels))[None]
    mode = "trilinear" if len(shape) == 3 else "bilinear"
    result: np.ndarray = functional.interpolate(tensor, size=tuple(shape), mode=mode, align_corners=False)[0].numpy()
    return result
