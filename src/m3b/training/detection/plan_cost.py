"""What a plan costs on this machine: a training step with all that belongs to it, a scoring, the final figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from m3b.training.folds import count, rounds
from m3b.training.gpu_fitting import dry_costs
from m3b.training.machine import machine_of
from m3b.training.precision import device_of
from m3b.training.step_cost import SPARE, micro_batch
from m3b.training.time_budget import Costs, typical
from m3b.training.trial_step import rehearsed

END_SHARE = 0.15
"""Of the time: the kept weights go through the validation cases, thresholds are chosen."""
SCORED_SHARE = 0.04
"""Of the time: one look at the validation part while training."""
MIRRORED = 0.03
"""Share of the minutes for which each network tries mirrored predictions, where the training mirrors."""
PATCHES = 64
"""Validation patches of which the loss is taken at each look."""


def usual_shape(facts: dict[str, Any], plan: dict[str, Any]) -> list[int]:
    """Pixels of the median image on the plan's grid."""
    shape = np.median(facts["shapes"], axis=0)
    if plan["longest"]:
        shape = shape * min(1.0, float(plan["longest"]) / float(shape.max()))
    elif plan["spacing"] and facts["spacing"]:
        shape = shape * np.array(facts["spacing"]) / np.array(plan["spacing"])
    return [max(1, round(float(n))) for n in shape]


def held_out(facts: dict[str, Any], plan: dict[str, Any]) -> int:
    """Validation cases of one network."""
    share = 1 / count(plan) if count(plan) > 1 else float(plan["validation_share"])
    return max(1, round(share * int(facts["cases"])))


def costs(facts: dict[str, Any], plan: dict[str, Any]) -> Costs:
    """Measured with noise in images of median size. Raises RuntimeError where the patch does not fit into memory."""
    from m3b.training.detection.inference import find_boxes, mask_probabilities
    from m3b.training.detection.network import build_model

    device, seconds = device_of(plan), 60 * float(plan["minutes"])
    if machine_of(plan).dry:
        return _dry(facts, plan)
    model = build_model(plan).to(device).train()
    step = typical(_step(model, facts, plan)) + SPARE
    image = np.random.default_rng(0).standard_normal((int(plan["channels"]), *usual_shape(facts, plan)), np.float32)
    look = find_boxes if plan["target"] == "boxes" else mask_probabilities
    model.eval()
    with torch.no_grad():
        case = typical(lambda: look(model, image, plan, device, micro_batch(plan)), tries=3)
    folds, held = count(plan), held_out(facts, plan)
    scoring = min(case * held, SCORED_SHARE * seconds + case) + step / 3 * min(held, PATCHES) / int(plan["batch"])
    return Costs(step, scoring, min(END_SHARE * seconds, 1.5 * case * held * folds + 2.0) / rounds(plan))


def _dry(facts: dict[str, Any], plan: dict[str, Any]) -> Costs:
    from m3b.training.detection.gpu_fit import STEP_COSTS
    from m3b.training.detection.inference import starts

    sides = zip(usual_shape(facts, plan), plan["patch"], strict=True)
    windows = float(np.prod([len(starts(have, int(want))) for have, want in sides]))
    folds, held, seconds = count(plan), held_out(facts, plan), 60 * float(plan["minutes"])
    found = dry_costs(
        plan, STEP_COSTS, windows * held + min(held, PATCHES),
        lambda forward: min(END_SHARE * seconds, 1.5 * windows * forward * held * folds + 2.0) / rounds(plan),
    )  # fmt: skip
    return Costs(found.step, min(found.scoring, SCORED_SHARE * seconds), found.final)


def _step(model: torch.nn.Module, facts: dict[str, Any], plan: dict[str, Any]) -> Any:
    from m3b.training.augment_masks import AugmentMasks, collate_cuts, cut_box
    from m3b.training.detection.augment_boxes import AugmentBoxes
    from m3b.training.detection.dataset import cut

    boxes, dims, batch = plan["target"] == "boxes", int(plan["dims"]), micro_batch(plan)
    patch, rng = [int(n) for n in plan["patch"]], np.random.default_rng(0)
    image = rng.standard_normal((int(plan["channels"]), *usual_shape(facts, plan)), np.float32)
    mask = np.zeros((len(plan["classes"]), *image.shape[1:]), np.uint8)
    masks, change = AugmentMasks(plan["augment"]), AugmentBoxes(plan["augment"])
    table = torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * batch)

    def load() -> dict[str, Any]:
        items = []
        for _ in range(batch):
            start = [int(rng.integers(0, max(1, n - w + 1))) for n, w in zip(image.shape[1:], patch, strict=True)]
            start, size, move = cut_box(start, patch, None if boxes else masks.draw(patch, rng))
            pixels = torch.from_numpy(np.ascontiguousarray(cut(image, start, size).astype(np.float32)))
            labels = torch.from_numpy(np.ascontiguousarray(cut(mask, start, size, fill=0)))
            items.append({"pixel_values": pixels, "labels": labels, "move": move})
        batch_of_cuts = collate_cuts(items)
        return {"pixel_values": torch.stack(batch_of_cuts["pixel_values"]), "boxes": table} if boxes else batch_of_cuts

    def prepare(items: dict[str, Any]) -> dict[str, Any]:
        if boxes:
            return change(items)
        pixels, labels = masks.pair(items["pixel_values"], items["labels"], items["move"], patch)
        return {"pixel_values": pixels, "labels": labels}

    return rehearsed(model, plan, load, prepare)
