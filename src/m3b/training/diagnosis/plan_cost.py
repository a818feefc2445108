"""Costs of a plan on this machine: a complete training step, a scoring, the final figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.diagnosis.gpu_fit import STEP_COSTS
from m3b.training.diagnosis.holdout import held_out_share
from m3b.training.folds import count_rounds
from m3b.training.gpu_fitting import estimate_costs
from m3b.training.machine import machine_of
from m3b.training.step_cost import micro_batch
from m3b.training.time_budget import TrainingCosts, median_seconds


def final_seconds(minutes: float) -> float:
    """Return the seconds of all folds together that are reserved for their results."""
    return 2.0 + min(8.0, 1.2 * minutes)


def measure_costs(plan: dict[str, Any], cases: int) -> TrainingCosts:
    """Measure the costs of one fold on noise; estimated for a remote machine."""
    import torch

    from m3b.training.diagnosis.covariates import unknown_covariates
    from m3b.training.diagnosis.network import build_model
    from m3b.training.diagnosis.targets import get_target
    from m3b.training.diagnosis.views import input_shape, make_view_mask
    from m3b.training.precision import device_of
    from m3b.training.recipe import get_recipe
    from m3b.training.step_cost import TRAINER_STEP_SECONDS
    from m3b.training.trial_step import make_trial_step

    device, batch, share = device_of(plan), micro_batch(plan), held_out_share(plan)
    final = final_seconds(float(plan["minutes"])) / count_rounds(plan)
    if machine_of(plan).is_remote:
        return estimate_costs(plan, STEP_COSTS, share * cases, lambda _: final)
    model = build_model(plan).to(device).train()
    images = np.random.default_rng(0).standard_normal((4 * batch, *input_shape(plan)), np.float32)
    labels = torch.zeros(batch, get_target(plan).label_width or len(plan["classes"]))
    labels[:, 0] = 1.0
    transforms, random = get_recipe().build_transforms(plan, training=True), np.random.default_rng(1)

    def load() -> dict[str, Any]:
        case_images = images[random.integers(0, len(images), batch)]
        tensors = list(torch.from_numpy(np.ascontiguousarray(case_images)))
        return {
            "pixel_values": torch.stack(tensors),
            "labels": labels,
            **unknown_covariates(plan, batch),
            **make_view_mask(plan, batch),
        }

    step = median_seconds(make_trial_step(model, plan, load, transforms)) + TRAINER_STEP_SECONDS
    score_images = torch.from_numpy(images[: 2 * batch]).to(device)
    truth = labels.repeat(2, 1).to(device)
    extra_inputs = {**unknown_covariates(plan, len(score_images)), **make_view_mask(plan, len(score_images))}
    extra_tensors = {name: tensor.to(device) for name, tensor in extra_inputs.items()}
    model.eval()

    def score() -> None:
        with torch.no_grad():
            model(score_images, truth, **extra_tensors)["logits"].cpu()

    scoring = median_seconds(score, tries=3) * max(1.0, share * cases / (2 * batch))
    return TrainingCosts(step, scoring, final)
