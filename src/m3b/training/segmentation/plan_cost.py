"""What a plan costs on this machine: a training step with all that belongs to it, a scoring, the final figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from m3b.training.folds import count, parts, rounds
from m3b.training.gpu_fitting import dry_costs
from m3b.training.machine import machine_of
from m3b.training.segmentation.postprocessing_selection import views
from m3b.training.segmentation.surfaces import MOST as BORDERS
from m3b.training.step_cost import micro_batch
from m3b.training.time_budget import Costs, typical

SCORED = 24
"""Validation cases that are scored while training; the final figures are of all."""
FINAL_SHARE = 0.1
"""The final figures may take so much of the minutes."""
TRIED = 0.05
"""Share of the minutes for which each other view (mirrored, shifted) is tried at most."""


def median_there(facts: dict[str, Any], plan: dict[str, Any]) -> list[int]:
    """Voxels of the median image on the plan's grid."""
    median = np.median(facts["shapes"], axis=0)
    if plan["side"]:
        return [max(1, round(float(n) * plan["side"] / float(max(median)))) for n in median]
    known = facts["spacings"] is not None and not plan["pixels"]
    own = np.median(facts["spacings"], axis=0) if known else [1.0] * len(median)
    wanted = plan["spacing"] or own
    return [max(1, round(float(n * s / w))) for n, s, w in zip(median, own, wanted, strict=True)]


def final_seconds(case: float, held: int, seconds: float, costs: Sequence[int]) -> float:
    """Kept free at the end: every validation case once (a case takes `case`), some for their borders, some in other views.

    Args:
        costs: predictions that each of those averages (`other_costs`).
    """
    once = 2.0 + 1.2 * case * (held + max(costs, default=1) * min(held, BORDERS))
    return min(FINAL_SHARE * seconds, once) + sum(min(TRIED * seconds, 1.2 * case * held * cost) for cost in costs)


def other_costs(plan: dict[str, Any]) -> list[int]:
    """How many predictions each view averages that the validation may choose."""
    return [view.cost for view in views(plan)[1:]]


def held_out(facts: dict[str, Any], plan: dict[str, Any]) -> int:
    """Validation cases of one network."""
    share = 1 / parts(plan) if count(plan) > 1 else float(plan["validation_share"])
    return max(1, round(share * int(facts["cases"])))


def rarest_share(facts: dict[str, Any]) -> float:
    """Share of the cases that were looked at that have the rarest class."""
    return min((float(np.mean([n > 0 for n in sizes])) for sizes in facts["sizes"].values() if len(sizes)), default=1.0)


def costs(facts: dict[str, Any], plan: dict[str, Any]) -> Costs:
    """Measured with noise in images of median size. Raises RuntimeError where the patch does not fit (memory, strides)."""
    import torch

    from m3b.training.precision import device_of
    from m3b.training.segmentation.network import build_model
    from m3b.training.step_cost import SPARE

    if machine_of(plan).dry:
        return _dry(facts, plan)
    device = device_of(plan)
    model = build_model(plan).to(device).train()
    step = typical(_step(model, facts, plan)) + SPARE
    folds, held = count(plan), held_out(facts, plan)
    with torch.no_grad():
        case = typical(_scoring(model.eval(), facts, plan, device), tries=3)
    seconds = float(plan["minutes"]) * 60
    final = final_seconds(case, folds * held, seconds, other_costs(plan)) / rounds(plan)
    return Costs(step, case * min(SCORED, held), final)


def _dry(facts: dict[str, Any], plan: dict[str, Any]) -> Costs:
    from m3b.training.segmentation.gpu_fit import STEP_COSTS
    from m3b.training.segmentation.sliding_window import starts, window_of

    shape, seconds = median_there(facts, plan), float(plan["minutes"]) * 60
    window = window_of(shape, plan)
    windows = float(np.prod([len(starts(have, want)) for have, want in zip(shape, window, strict=True)]))
    windows *= float(np.prod(window)) / float(np.prod(plan["patch"]))
    folds, held = count(plan), held_out(facts, plan)
    return dry_costs(
        plan, STEP_COSTS, windows * min(SCORED, held),
        lambda forward: final_seconds(windows * forward, folds * held, seconds, other_costs(plan)) / rounds(plan),
    )  # fmt: skip


def _step(model: Any, facts: dict[str, Any], plan: dict[str, Any]) -> Any:
    import torch

    from m3b.training.augment_masks import AugmentMasks, collate_cuts, cut_box
    from m3b.training.segmentation.sliding_window import cut
    from m3b.training.trial_step import rehearsed

    shape, patch = median_there(facts, plan), [int(n) for n in plan["patch"]]
    rng, augment = np.random.default_rng(0), AugmentMasks(plan["augment"])
    image = rng.standard_normal((int(plan["channels"]), *shape), np.float32)
    layers = (len(plan["classes"]), *shape) if plan["overlap"] else tuple(shape)
    mask = rng.integers(0, 2, layers, np.uint8)

    def load() -> dict[str, Any]:
        items = []
        for _ in range(micro_batch(plan)):
            start = [int(rng.integers(-1, max(1, have - want + 1))) for have, want in zip(shape, patch, strict=True)]
            start, size, move = cut_box(start, patch, augment.draw(patch, rng))
            pixels, labels = (torch.from_numpy(cut(array, start, size, 0)) for array in (image, mask))
            items.append({"pixel_values": pixels, "labels": labels, "move": move})
        return collate_cuts(items)

    def prepare(batch: dict[str, Any]) -> dict[str, Any]:
        images, masks = augment.pair(batch["pixel_values"], batch["labels"], batch["move"], patch)
        return {"pixel_values": images, "labels": masks}

    return rehearsed(model, plan, load, prepare)


def _scoring(model: Any, facts: dict[str, Any], plan: dict[str, Any], device: Any) -> Any:
    """One validation case, from the network to its Dice."""
    import torch

    from m3b.training.segmentation.scoring import decide, dice_of, run_whole

    shape = median_there(facts, plan)
    image = torch.randn(int(plan["channels"]), *shape)
    overlap, classes = bool(plan["overlap"]), len(plan["classes"])

    def score() -> None:
        found = decide(run_whole(model, image, plan, device), overlap)
        dice_of(found, found, classes, overlap)

    return score
