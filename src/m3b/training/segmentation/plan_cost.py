"""Cost of a plan on this machine: a training step with data loading, a scoring, the final evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from m3b.training.folds import count_folds, count_parts, count_rounds
from m3b.training.gpu_fitting import estimate_costs
from m3b.training.machine import machine_of
from m3b.training.segmentation.postprocessing_selection import list_views
from m3b.training.segmentation.surfaces import MAX_CASES as MAX_SURFACE_CASES
from m3b.training.step_cost import StepCosts, micro_batch
from m3b.training.time_budget import TrainingCosts, median_seconds


def make_noise_batch(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """Return a batch of random numbers on the CPU."""
    import torch

    shape = (cases, *plan["patch"])
    layers = (cases, len(plan["classes"]), *plan["patch"]) if plan["overlap"] else shape
    images = torch.randn(cases, int(plan["channels"]), *plan["patch"])
    return {"pixel_values": images, "labels": torch.randint(0, 2, layers, dtype=torch.uint8)}


STEP_COSTS = StepCosts(make_noise_batch)


MAX_SCORED_CASES = 24
"""Validation cases that are scored during training; the final evaluation uses all."""
MAX_FINAL_SHARE = 0.1
"""Maximum share of the minutes for the final evaluation."""
MAX_VIEW_SHARE = 0.05
"""Maximum share of the minutes for the evaluation of each additional view (mirrored, shifted)."""


def median_grid_shape(facts: dict[str, Any], plan: dict[str, Any]) -> list[int]:
    """Return the voxels of the median image on the plan's grid."""
    median = np.median(facts["shapes"], axis=0)
    if plan["side"]:
        return [max(1, round(float(n) * plan["side"] / float(max(median)))) for n in median]
    has_spacing = facts["spacings"] is not None and not plan["pixels"]
    image_spacing = np.median(facts["spacings"], axis=0) if has_spacing else [1.0] * len(median)
    target_spacing = plan["spacing"] or image_spacing
    return [max(1, round(float(n * s / w))) for n, s, w in zip(median, image_spacing, target_spacing, strict=True)]


def final_seconds(case: float, held_out: int, seconds: float, view_predictions: Sequence[int]) -> float:
    """Return the seconds reserved at the end: all validation cases once, some for surface metrics, some in other views.

    Args:
        case: seconds of one case. held: validation cases.
        view_predictions: predictions that each additional view averages (`view_costs`).
    """
    plain_seconds = 2.0 + 1.2 * case * (held_out + max(view_predictions, default=1) * min(held_out, MAX_SURFACE_CASES))
    return min(MAX_FINAL_SHARE * seconds, plain_seconds) + sum(
        min(MAX_VIEW_SHARE * seconds, 1.2 * case * held_out * cost) for cost in view_predictions
    )


def view_costs(plan: dict[str, Any]) -> list[int]:
    """Return the number of predictions that each view averages that validation may choose."""
    return [view.cost for view in list_views(plan)[1:]]


def count_held_out(facts: dict[str, Any], plan: dict[str, Any]) -> int:
    """Return the validation cases of one network."""
    share = 1 / count_parts(plan) if count_folds(plan) > 1 else float(plan["validation_share"])
    return max(1, round(share * int(facts["cases"])))


def rarest_share(facts: dict[str, Any]) -> float:
    """Return the share of the sampled cases that have the rarest class."""
    return min((float(np.mean([n > 0 for n in sizes])) for sizes in facts["sizes"].values() if len(sizes)), default=1.0)


def measure_costs(facts: dict[str, Any], plan: dict[str, Any]) -> TrainingCosts:
    """Return costs measured with noise in images of median size. Raises RuntimeError if the patch does not fit (memory, strides)."""
    import torch

    from m3b.training.precision import device_of
    from m3b.training.segmentation.network import build_model
    from m3b.training.step_cost import TRAINER_STEP_SECONDS

    if machine_of(plan).is_remote:
        return _estimate_costs(facts, plan)
    device = device_of(plan)
    model = build_model(plan).to(device).train()
    step = median_seconds(_make_training_step(model, facts, plan)) + TRAINER_STEP_SECONDS
    folds, held_out = count_folds(plan), count_held_out(facts, plan)
    with torch.no_grad():
        case = median_seconds(_make_scoring(model.eval(), facts, plan, device), tries=3)
    seconds = float(plan["minutes"]) * 60
    final = final_seconds(case, folds * held_out, seconds, view_costs(plan)) / count_rounds(plan)
    return TrainingCosts(step, case * min(MAX_SCORED_CASES, held_out), final)


def _estimate_costs(facts: dict[str, Any], plan: dict[str, Any]) -> TrainingCosts:
    from m3b.training.segmentation.sliding_window import choose_window, window_starts

    shape, seconds = median_grid_shape(facts, plan), float(plan["minutes"]) * 60
    window = choose_window(shape, plan)
    windows = float(np.prod([len(window_starts(length, side)) for length, side in zip(shape, window, strict=True)]))
    windows *= float(np.prod(window)) / float(np.prod(plan["patch"]))
    folds, held_out = count_folds(plan), count_held_out(facts, plan)
    return estimate_costs(
        plan, STEP_COSTS, windows * min(MAX_SCORED_CASES, held_out),
        lambda forward: final_seconds(windows * forward, folds * held_out, seconds, view_costs(plan)) / count_rounds(plan)
    )  # fmt: skip


def _make_training_step(model: Any, facts: dict[str, Any], plan: dict[str, Any]) -> Any:
    import torch

    from m3b.training.augment_masks import block_of_patch, collate_blocks, cut_block, find_mover
    from m3b.training.recipe import get_recipe
    from m3b.training.trial_step import make_trial_step

    shape, patch = median_grid_shape(facts, plan), [int(n) for n in plan["patch"]]
    rng, transforms = np.random.default_rng(0), get_recipe().build_transforms(plan, training=True)
    mover = find_mover(transforms)
    image = rng.standard_normal((int(plan["channels"]), *shape), np.float32)
    layers = (len(plan["classes"]), *shape) if plan["overlap"] else tuple(shape)
    mask = rng.integers(0, 2, layers, np.uint8)

    def load() -> dict[str, Any]:
        items = []
        for _ in range(micro_batch(plan)):
            start = [
                int(rng.integers(-1, max(1, length - side + 1))) for length, side in zip(shape, patch, strict=True)
            ]
            start, size, move = block_of_patch(start, patch, mover.draw(rng) if mover else None)
            pixels, labels = (torch.from_numpy(cut_block(array, start, size, 0)) for array in (image, mask))
            items.append({"pixel_values": pixels, "labels": labels, **({"move": move} if mover else {})})
        return collate_blocks(items)

    return make_trial_step(model, plan, load, transforms)


def _make_scoring(model: Any, facts: dict[str, Any], plan: dict[str, Any], device: Any) -> Any:
    """Return a function that scores one validation case, from the network to its Dice."""
    import torch

    from m3b.training.recipe import get_recipe
    from m3b.training.segmentation.scoring import class_dice, decide_mask, predict_case

    shape = median_grid_shape(facts, plan)
    image = torch.randn(int(plan["channels"]), *shape)
    overlap, classes = bool(plan["overlap"]), len(plan["classes"])

    def score() -> None:
        predicted = get_recipe().postprocess(plan, decide_mask(predict_case(model, image, plan, device), overlap))
        class_dice(predicted, predicted, classes, overlap)

    return score
