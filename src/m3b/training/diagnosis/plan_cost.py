"""What a plan costs on this machine: a training step with all that belongs to it, a scoring, the final figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.diagnosis.gpu_fit import STEP_COSTS
from m3b.training.diagnosis.holdout import held_share
from m3b.training.folds import rounds
from m3b.training.gpu_fitting import dry_costs
from m3b.training.machine import machine_of
from m3b.training.step_cost import micro_batch
from m3b.training.time_budget import Costs, typical


def final_seconds(minutes: float) -> float:
    """Of all folds together, kept free for their results."""
    return 2.0 + min(8.0, 1.2 * minutes)


def costs(plan: dict[str, Any], cases: int) -> Costs:
    """Of one fold, measured with noise; estimated for a machine that is not here."""
    import torch

    from m3b.training.augment import Augment
    from m3b.training.diagnosis.covariates import examples
    from m3b.training.diagnosis.network import build_model
    from m3b.training.diagnosis.targets import kind_of
    from m3b.training.diagnosis.views import each, example, shape_of
    from m3b.training.precision import device_of
    from m3b.training.step_cost import SPARE
    from m3b.training.trial_step import rehearsed

    device, batch, share = device_of(plan), micro_batch(plan), held_share(plan)
    end = final_seconds(float(plan["minutes"])) / rounds(plan)
    if machine_of(plan).dry:
        return dry_costs(plan, STEP_COSTS, share * cases, lambda _: end)
    model = build_model(plan).to(device).train()
    images = np.random.default_rng(0).standard_normal((4 * batch, *shape_of(plan)), np.float32)
    labels = torch.zeros(batch, kind_of(plan).width or len(plan["classes"]))
    labels[:, 0] = 1.0
    augment, rows = Augment(plan["augment"]), np.random.default_rng(1)

    def load() -> dict[str, Any]:
        chosen = images[rows.integers(0, len(images), batch)]
        items = list(torch.from_numpy(np.ascontiguousarray(chosen)))
        return {"pixel_values": torch.stack(items), "labels": labels, **examples(plan, batch), **example(plan, batch)}

    def prepare(items: dict[str, Any]) -> dict[str, Any]:
        return {**items, "pixel_values": each(plan, augment, items["pixel_values"])}

    step = typical(rehearsed(model, plan, load, prepare)) + SPARE
    many = torch.from_numpy(images[: 2 * batch]).to(device)
    truth = labels.repeat(2, 1).to(device)
    beside = {**examples(plan, len(many)), **example(plan, len(many))}
    given = {name: tensor.to(device) for name, tensor in beside.items()}
    model.eval()

    def look() -> None:
        with torch.no_grad():
            model(many, truth, **given)["logits"].cpu()

    scoring = typical(look, tries=3) * max(1.0, share * cases / (2 * batch))
    return Costs(step, scoring, end)
