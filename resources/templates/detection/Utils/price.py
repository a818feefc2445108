"""What a plan costs on this machine: a training step with all that belongs to it, a scoring, the final figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .members import count, trainings
from .pace import Costs, typical
from .rehearse import SPARE, device_of, rehearsed

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


def costs(facts: dict[str, Any], plan: dict[str, Any]) -> Costs:
    """Measured with noise in images of median size. Raises RuntimeError where the patch does not fit into memory."""
    from Model.inference import find_boxes, mask_probabilities
    from Model.network import build_model

    device, seconds = device_of(plan), 60 * float(plan["minutes"])
    model = build_model(plan).to(device).train()
    step = typical(_step(model, facts, plan)) + SPARE
    image = np.random.default_rng(0).standard_normal((int(plan["channels"]), *usual_shape(facts, plan)), np.float32)
    look = find_boxes if plan["target"] == "boxes" else mask_probabilities
    model.eval()
    with torch.no_grad():
        case = typical(lambda: look(model, image, plan, device, int(plan["batch"])), tries=3)
    folds = count(plan)
    held = max(1, round((1 / folds if folds > 1 else float(plan["validation_share"])) * int(facts["cases"])))
    scoring = min(case * held, SCORED_SHARE * seconds + case) + step / 3 * min(held, PATCHES) / int(plan["batch"])
    return Costs(step, scoring, min(END_SHARE * seconds, 1.5 * case * held * folds + 2.0) / trainings(plan))


def _step(model: torch.nn.Module, facts: dict[str, Any], plan: dict[str, Any]) -> Any:
    from Datapath.dataloader import cut

    from .augment_boxes import AugmentBoxes
    from .augment_masks import AugmentMasks

    boxes, dims, batch = plan["target"] == "boxes", int(plan["dims"]), int(plan["batch"])
    patch, rng = [int(n) for n in plan["patch"]], np.random.default_rng(0)
    image = rng.standard_normal((int(plan["channels"]), *usual_shape(facts, plan)), np.float32)
    mask = np.zeros((len(plan["classes"]), *image.shape[1:]), np.uint8)
    masks, change = AugmentMasks(plan["augment"]), AugmentBoxes(plan["augment"])
    room = patch if boxes else masks.reach(patch)
    table = torch.tensor([[[4.0] * dims + [12.0] * dims + [0.0, 1.0]]] * batch)

    def load() -> dict[str, Any]:
        items = []
        for _ in range(batch):
            start = [int(rng.integers(0, max(1, n - w + 1))) for n, w in zip(image.shape[1:], room, strict=True)]
            layers = None if boxes else cut(mask, start, room, fill=0)
            items.append((cut(image, start, room).astype(np.float32), layers))
        pixels = torch.stack([torch.from_numpy(np.ascontiguousarray(item[0])) for item in items])
        truth = table if boxes else torch.stack([torch.from_numpy(np.ascontiguousarray(item[1])) for item in items])
        return {"pixel_values": pixels, "boxes" if boxes else "labels": truth}

    def prepare(items: dict[str, Any]) -> dict[str, Any]:
        if boxes:
            return change(items)
        pixels, labels = masks.pair(items["pixel_values"], items["labels"], patch)
        return {"pixel_values": pixels, "labels": labels}

    return rehearsed(model, plan, load, prepare)
