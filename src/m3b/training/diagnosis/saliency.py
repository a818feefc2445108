"""Saliency of a classifier's answer: which part of an image it depends on, and what remains of it without that part.

HiResCAM on the last feature maps (Draelos and Carin, arXiv 2011.08891) where every network has some, else occlusion of patches
(Zeiler and Fergus, ECCV 2014), which needs nothing but answers. A map of the first kind has to pass a test by deletion: hiding its
marked part changes the answer more than hiding an equal part elsewhere. Of a slide, it is the attention of the networks to each tile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from m3b.dataset.formats import Image
from m3b.training.diagnosis.tiles import Bag
from m3b.training.preprocess import map_to_image
from m3b.training.slice_encoder import VOLUME, encoder_of

HIRESCAM, OCCLUSION, ATTENTION = "hirescam", "occlusion", "attention"
MARKED_SHARE, MARKED_MASS = 0.1, 0.5
"""Maximum share of the network's input that is marked, and hidden to test the map; and share of the sum of the map that is enough."""
MIN_MAP_SIDE = 4
"""Minimum positions along the second-longest side of a feature map; of coarser ones, an earlier map is taken."""
OCCLUSION_GRIDS = (16, 12, 8, 6, 4)
"""Patches along each axis, the finest first; the finest grid that fits `OCCLUSION_S` is taken, at worst the last."""
OCCLUSION_S = 5.0
OCCLUSION_BATCH = 8
MAX_LEVEL = 255
"""Highest level of a stored map."""
NO_MAP_LAYERS = (nn.Linear, nn.LayerNorm, nn.Softmax, nn.Dropout)
"""Layers of transformers, whose outputs may have as many axes as a feature map."""

LogitFunction = Callable[[torch.Tensor, Sequence[nn.Module]], torch.Tensor]
"""Returns the calibrated logits (B, K) of the networks' mean for images (B, [V,] C, *size)."""
ScoreFunction = Callable[[torch.Tensor], torch.Tensor]
"""Returns the scores (B,) of images."""


@dataclass(frozen=True)
class SaliencyMap:
    """A map and how it was made.

    Args:
        values: (*size) float32, 0 or more: how much each position of the network's input speaks for the answer.
        method: `hirescam`, `occlusion`, or `attention` for a slide, whose positions are its tiles.
        marked: (*size) bool: the part with the highest values that holds half of the map, or a tenth of the image if that is less.
    """

    values: np.ndarray
    method: str
    marked: np.ndarray

    @property
    def outline(self) -> int:
        """The level of the stored map from which the image is marked."""
        lowest = self.values.min(initial=float(self.values.max()), where=self.marked)
        return max(1, int(lowest / max(float(self.values.max()), 1e-30) * MAX_LEVEL))

    def to_levels(self, image: Image, plan: Mapping[str, Any]) -> np.ndarray:
        """Return the map on the grid of the image, as whole numbers from 0 to `MAX_LEVEL`."""
        highest = max(float(self.values.max()), 1e-30)
        return np.round(map_to_image(self.values / highest, image, plan).clip(0, 1) * MAX_LEVEL).astype(np.uint8)


def compute_saliency(
    models: Sequence[nn.Module],
    compute_logits: LogitFunction,
    image: torch.Tensor,
    config: Mapping[str, Any],
    target: int | None,
) -> SaliencyMap:
    """Return the saliency of an answer for one image.

    Args:
        models: the delivered networks.
        image: (1, C, *size), or (1, V, C, *size) for a study of several views, whose first view is explained.
        config: config.json.
        target: the class whose probability is explained; None for a number or a risk.
    """
    dims, is_class = int(config["plan"]["dims"]), target is not None

    def score(images: torch.Tensor) -> torch.Tensor:
        return score_logits(compute_logits(images, models))

    def score_logits(logits: torch.Tensor) -> torch.Tensor:
        return _score_target(logits, bool(config["multi_label"]), target)

    has_slices = encoder_of(config["plan"]) != VOLUME  # whose maps are of slices, not of the volume
    values = None if has_slices else _compute_hirescam(models, compute_logits, score_logits, image, dims, is_class)
    if values is not None:
        saliency_map = _mark(values, HIRESCAM)
        if _passes_deletion(saliency_map, score, image, dims, is_class):
            return saliency_map
    return _mark(_compute_occlusion(score, image, dims, is_class), OCCLUSION)


@torch.no_grad()
def compute_attention(models: Sequence[Any], pixels: torch.Tensor, is_tile: torch.Tensor) -> SaliencyMap:
    """Return the mean attention (T,) of the networks to the tiles of one slide, (1, T, C, H, W) with (1, T) 1 for its tiles."""
    weights = torch.stack([model.weigh_tiles(pixels, is_tile)[0] for model in models]).mean(0).float()
    return _mark((weights * is_tile[0]).cpu().numpy(), ATTENTION)


def hide_tiles(is_tile: np.ndarray, saliency_map: SaliencyMap) -> list[np.ndarray]:
    """Return `is_tile` (1, T) without the marked tiles, and without as many others."""
    count, marked = int(is_tile.sum()), saliency_map.marked[None]
    others = np.zeros_like(marked)
    others[:, :count] = np.roll(marked[:, :count], count // 2, axis=1)
    return [np.where(hidden, 0, is_tile).astype(np.float32) for hidden in (marked, others)]


def paint_tiles(saliency_map: SaliencyMap, bag: Bag) -> np.ndarray:
    """Return the attention on the grid of a slide's overview, as whole numbers from 0 to `MAX_LEVEL`."""
    levels = np.zeros(bag.overview.array.shape[1:], np.uint8)
    highest = max(float(saliency_map.values.max()), 1e-30)
    for part, value in zip(bag.parts, saliency_map.values, strict=False):
        (top, bottom), (left, right) = (
            (start // bag.reduced, max((start + side) // bag.reduced, start // bag.reduced + 1))
            for start, side in ((part.row, part.height), (part.column, part.width))
        )
        levels[top:bottom, left:right] = np.round(value / highest * MAX_LEVEL)
    return levels


def _mark(values: np.ndarray, method: str) -> SaliencyMap:
    descending = np.sort(values, axis=None)[::-1]
    n_enough = int((descending.cumsum() < MARKED_MASS * descending.sum()).sum()) + 1
    lowest = descending[min(n_enough, max(1, int(MARKED_SHARE * values.size))) - 1]
    return SaliencyMap(values, method, (values >= lowest) & (values > 0))


@torch.no_grad()
def _passes_deletion(
    saliency_map: SaliencyMap, score: ScoreFunction, image: torch.Tensor, dims: int, is_class: bool
) -> bool:
    """Return whether hiding the marked part lowers the score (of a number: changes it), and more than an equal part elsewhere does."""
    if not saliency_map.marked.any():
        return False
    parts = (saliency_map.marked, shift_part(saliency_map.marked))
    whole, *hidden = score(torch.cat([image, *(hide_part(image, part, dims) for part in parts)]))
    changes = [float(whole - value if is_class else abs(whole - value)) for value in hidden]
    return changes[0] > max(changes[1], 0.0)


def hide_part(image: torch.Tensor, part: np.ndarray, dims: int) -> torch.Tensor:
    """Return the image with a part of its (first) view replaced by its surroundings.

    A constant would be a sign of its own: grey in a dark lung is an opacity (Rong et al., ICML 2022). The part is filled by push-pull
    (Gortler et al., SIGGRAPH 1996): means of what is known on coarser and coarser grids, interpolated.
    """
    hidden = image.clone()
    view = hidden[0] if hidden.ndim == dims + 2 else hidden[0, 0]
    known = torch.from_numpy(~part).to(view)[None, None]
    pool = functional.avg_pool2d if dims == 2 else functional.avg_pool3d
    grids = [(view[None] * known, known)]
    while not bool(grids[-1][1].all()) and max(grids[-1][1].shape[2:]) > 1:
        grids.append((pool(grids[-1][0], 2, ceil_mode=True), pool(grids[-1][1], 2, ceil_mode=True)))
    sums, shares = grids.pop()
    filled = sums / shares.clamp_min(1e-6)
    for sums, shares in reversed(grids):
        filled = sums + (1 - shares) * _interpolate(filled, tuple(sums.shape[2:]))
    view[:] = filled[0]
    return hidden


def shift_part(part: np.ndarray) -> np.ndarray:
    """Return an equal part elsewhere: the part moved by half of the image along each axis, around the border."""
    return np.roll(part, [side // 2 for side in part.shape], axis=tuple(range(part.ndim)))


def choose_target(config: Mapping[str, Any], answer: Mapping[str, Any]) -> int | None:
    """Return the class that an answer is about: the decided one, of several the likeliest; None for a number or a risk."""
    probabilities = answer.get("probabilities")
    if not probabilities:
        return None
    decided = answer["prediction"]
    candidates = [decided] if isinstance(decided, str) else decided or list(probabilities)
    return list(config["classes"]).index(max(candidates, key=lambda name: probabilities[name]))


def read_score(answer: Mapping[str, Any], target: int | None) -> float:
    """Return the probability of the target, or the number or risk."""
    if target is not None:
        return float(list(answer["probabilities"].values())[target])
    return float(answer["value"] if "value" in answer else answer["risk"])


def _score_target(logits: torch.Tensor, is_multi_label: bool, target: int | None) -> torch.Tensor:
    """Return (B,): the log odds of a class, which do not saturate as its probability does; the sum of all outputs for None."""
    if target is None:
        return logits.sum(dim=1)
    if is_multi_label or logits.shape[1] == 1:
        return logits[:, target]
    others = [index for index in range(logits.shape[1]) if index != target]
    return logits[:, target] - logits[:, others].logsumexp(dim=1)


def _interpolate(values: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """Return (B, C, *size) of values on a coarser grid."""
    return functional.interpolate(values, size=size, mode="bilinear" if len(size) == 2 else "trilinear")


def _compute_hirescam(
    models: Sequence[nn.Module],
    compute_logits: LogitFunction,
    score_logits: ScoreFunction,
    image: torch.Tensor,
    dims: int,
    is_class: bool,
) -> np.ndarray | None:
    """Return the sum over the networks of gradient times activation; None if a network has no suitable map with a gradient.

    The networks are run one after the other, since their activations together may not fit into memory.
    """
    size = tuple(image.shape[-dims:])
    with torch.no_grad():
        mean_logits = compute_logits(image, models)
    with torch.enable_grad():
        (weights,) = torch.autograd.grad(score_logits(mean_logits.requires_grad_()).sum(), mean_logits)
        tracked_image = image.clone().requires_grad_() * 1  # frozen layers have gradients by their input alone
    total = torch.zeros(1, 1, *size, device=image.device)
    for model in models:
        with torch.enable_grad(), _record_maps(model, size) as maps:
            value = (compute_logits(tracked_image, [model]) * weights).sum() / len(models)
        contribution = _find_contribution(value, maps) if value.requires_grad else None
        if contribution is None:
            return None
        total += _interpolate(contribution[:1, None], size)
    signed = total[0, 0].cpu().numpy()
    return np.asarray(np.maximum(signed, 0) if is_class else np.abs(signed))


def _find_contribution(value: torch.Tensor, maps: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return (B, *positions) of the last map that the value depends on."""
    for feature_map in reversed(maps):
        (gradient,) = torch.autograd.grad(value, feature_map, retain_graph=True, allow_unused=True)
        if gradient is not None and bool(gradient.any()):
            return (gradient * feature_map).sum(dim=1).detach().float()
    return None


@contextmanager
def _record_maps(model: nn.Module, size: tuple[int, ...]) -> Iterator[list[torch.Tensor]]:
    """Collect the feature maps in the second half of a network's layers, in the order in which they are computed.

    A map has an axis of channels and one for each axis of the image, each no longer than that of the image. Backbones return a list of
    maps, of which the last counts; if they are frozen, gradients begin there.
    """
    outputs: list[torch.Tensor | None] = []
    maps: list[torch.Tensor] = []

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, list):
            for part in output:
                if torch.is_tensor(part) and part.is_floating_point() and not part.requires_grad:
                    part.requires_grad_()
            output = output[-1] if output else None
        outputs.append(output if _is_feature_map(output, size) else None)

    modules = [module for module in model.modules() if not isinstance(module, NO_MAP_LAYERS)]
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield maps
    finally:
        for handle in handles:
            handle.remove()
    maps.extend(item for item in outputs[len(outputs) // 2 :] if item is not None)


def _is_feature_map(output: Any, size: tuple[int, ...]) -> bool:
    if not torch.is_tensor(output) or output.ndim != len(size) + 2 or not output.requires_grad:
        return False
    sides = output.shape[2:]
    fits = all(side <= whole for side, whole in zip(sides, size, strict=True))
    return fits and sorted(sides)[-2] >= MIN_MAP_SIDE


@torch.no_grad()
def _compute_occlusion(score: ScoreFunction, image: torch.Tensor, dims: int, is_class: bool) -> np.ndarray:
    """Return how much the score changes if a patch is hidden, with patches that overlap by half."""
    size = tuple(image.shape[-dims:])
    whole = score(image)

    def measure_drops(positions: Sequence[tuple[int, ...]], counts: tuple[int, ...]) -> torch.Tensor:
        patches = [_make_patch(position, counts, size) for position in positions]
        return whole - score(torch.cat([hide_part(image, patch, dims) for patch in patches]))

    counts = _choose_grid(lambda counts: measure_drops([(0,) * dims] * OCCLUSION_BATCH, counts), size)
    positions = list(np.ndindex(*counts))
    parts = [positions[start : start + OCCLUSION_BATCH] for start in range(0, len(positions), OCCLUSION_BATCH)]
    drops = [measure_drops(part, counts) for part in parts]
    grid = torch.cat(drops).float().reshape(1, 1, *counts)
    signed = _interpolate(grid, size)[0, 0].cpu().numpy()
    return np.asarray(np.maximum(signed, 0) if is_class else np.abs(signed))


def _choose_grid(run_batch: Callable[[tuple[int, ...]], object], size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the finest grid whose patches can be hidden one after the other in `OCCLUSION_S`, by the faster of two batches."""
    grids = [tuple(min(count, side) for side in size) for count in OCCLUSION_GRIDS]
    durations = []
    for _ in range(2):
        began = time.monotonic()
        run_batch(grids[0])
        durations.append(time.monotonic() - began)
    patch_s = min(durations) / OCCLUSION_BATCH
    return next((counts for counts in grids if np.prod(counts) * patch_s <= OCCLUSION_S), grids[-1])


def _make_patch(position: tuple[int, ...], counts: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
    """Return the patch around a cell of the grid, half a cell wider to each side."""
    patch = np.zeros(size, bool)
    region = []
    for index, count, side in zip(position, counts, size, strict=True):
        cell = side / count
        region.append(slice(max(0, round((index - 0.5) * cell)), round((index + 1.5) * cell)))
    patch[tuple(region)] = True
    return patch
