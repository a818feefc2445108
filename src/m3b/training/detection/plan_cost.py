"""Cost of a plan on this machine: a training step with data loading, a scoring, the final evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from m3b.training.folds import count_folds, count_rounds
from m3b.training.gpu_fitting import estimate_costs
from m3b.training.machine import machine_of
from m3b.training.precision import device_of
from m3b.training.step_cost import TRAINER_STEP_SECONDS, StepCosts, micro_batch
from m3b.training.time_budget import TrainingCosts, median_seconds
from m3b.training.trial_step import make_trial_step


def make_noise_batch(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """Return a batch of random numbers on the CPU."""
    import torch

    dims, images = int(plan["dims"]), torch.randn(cases, int(plan["channels"]), *plan["patch"])
    if plan["target"] == "boxes":
        return {"pixel_values": images, "boxes": torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * cases)}
    return {"pixel_values": images, "labels": torch.zeros(cases, len(plan["classes"]), *plan["patch"])}


STEP_COSTS = StepCosts(make_noise_batch)


MAX_FINAL_SHARE = 0.15
"""Maximum share of the time for the final evaluation of the validation cases."""
MAX_SCORING_SHARE = 0.04
"""Maximum share of the time for one scoring during training."""
MAX_MIRRORING_SHARE = 0.03
"""Maximum share of the minutes for the evaluation of mirrored predictions of each network."""
MAX_LOSS_PATCHES = 64
"""Validation patches whose loss is computed at each scoring at most."""


def median_grid_shape(facts: dict[str, Any], plan: dict[str, Any]) -> list[int]:
    """Return the pixels of the median image on the plan's grid."""
    shape = np.median(facts["shapes"], axis=0)
    if plan["longest"]:
        shape = shape * min(1.0, float(plan["longest"]) / float(shape.max()))
    elif plan["spacing"] and facts["spacing"]:
        shape = shape * np.array(facts["spacing"]) / np.array(plan["spacing"])
    return [max(1, round(float(n))) for n in shape]


def count_held_out(facts: dict[str, Any], plan: dict[str, Any]) -> int:
    """Return the validation cases of one network."""
    share = 1 / count_folds(plan) if count_folds(plan) > 1 else float(plan["validation_share"])
    return max(1, round(share * int(facts["cases"])))


def measure_costs(facts: dict[str, Any], plan: dict[str, Any]) -> TrainingCosts:
    """Return costs measured with noise in images of median size. Raises RuntimeError if the patch does not fit into memory."""
    from m3b.training.detection.inference import find_boxes, mask_probabilities
    from m3b.training.detection.network import build_model

    device, seconds = device_of(plan), 60 * float(plan["minutes"])
    if machine_of(plan).is_remote:
        return _estimate_costs(facts, plan)
    model = build_model(plan).to(device).train()
    step = median_seconds(_make_training_step(model, facts, plan)) + TRAINER_STEP_SECONDS
    shape = (int(plan["channels"]), *median_grid_shape(facts, plan))
    image = np.random.default_rng(0).standard_normal(shape, np.float32)
    predict = find_boxes if plan["target"] == "boxes" else mask_probabilities
    model.eval()
    with torch.no_grad():
        case_seconds = median_seconds(lambda: predict(model, image, plan, device, micro_batch(plan)), tries=3)
    folds, held_out = count_folds(plan), count_held_out(facts, plan)
    scoring = min(case_seconds * held_out, MAX_SCORING_SHARE * seconds + case_seconds)
    scoring += step / 3 * min(held_out, MAX_LOSS_PATCHES) / int(plan["batch"])
    final = min(MAX_FINAL_SHARE * seconds, 1.5 * case_seconds * held_out * folds + 2.0)
    return TrainingCosts(step, scoring, final / count_rounds(plan))


def _estimate_costs(facts: dict[str, Any], plan: dict[str, Any]) -> TrainingCosts:
    from m3b.training.detection.inference import window_starts

    sides = zip(median_grid_shape(facts, plan), plan["patch"], strict=True)
    windows = float(np.prod([len(window_starts(length, int(side))) for length, side in sides]))
    folds, held_out, seconds = count_folds(plan), count_held_out(facts, plan), 60 * float(plan["minutes"])
    estimate = estimate_costs(
        plan, STEP_COSTS, windows * held_out + min(held_out, MAX_LOSS_PATCHES),
        lambda forward: min(MAX_FINAL_SHARE * seconds, 1.5 * windows * forward * held_out * folds + 2.0) / count_rounds(plan)
    )  # fmt: skip
    return TrainingCosts(estimate.step, min(estimate.scoring, MAX_SCORING_SHARE * seconds), estimate.final)


def _make_training_step(model: torch.nn.Module, facts: dict[str, Any], plan: dict[str, Any]) -> Any:
    from m3b.training.augment_masks import block_of_patch, collate_blocks, cut_block, find_mover
    from m3b.training.detection.dataset import cut_image
    from m3b.training.recipe import get_recipe

    boxes, dims, batch = plan["target"] == "boxes", int(plan["dims"]), micro_batch(plan)
    patch, rng = [int(n) for n in plan["patch"]], np.random.default_rng(0)
    image = rng.standard_normal((int(plan["channels"]), *median_grid_shape(facts, plan)), np.float32)
    mask = np.zeros((len(plan["classes"]), *image.shape[1:]), np.uint8)
    transforms = get_recipe().build_transforms(plan, training=True)
    mover = find_mover(transforms)
    box_batch = torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * batch)

    def load() -> dict[str, Any]:
        items = []
        for _ in range(batch):
            start = [int(rng.integers(0, max(1, n - w + 1))) for n, w in zip(image.shape[1:], patch, strict=True)]
            start, size, move = block_of_patch(start, patch, mover.draw(rng) if mover else None)
            pixels = torch.from_numpy(cut_image(image, start, size))
            labels = torch.from_numpy(cut_block(mask, start, size, 0))
            items.append({"pixel_values": pixels, "labels": labels, **({"move": move} if mover else {})})
        cuts = collate_blocks(items)
        return {"pixel_values": cuts["pixel_values"], "boxes": box_batch} if boxes else cuts

    return make_trial_step(model, plan, load, transforms)
