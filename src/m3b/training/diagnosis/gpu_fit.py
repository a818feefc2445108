"""What the memory of a GPU lets a classifier's plan be: batches in parts, smaller and larger inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from m3b.training.gpu_fitting import Ways, finer_input, in_parts, larger_batch
from m3b.training.step_cost import StepCosts
from m3b.training.time_budget import Way

FINEST = {2: 512, 3: 192}
"""No side of the input becomes longer, by the dimensions."""
MOST = 128
"""No batch becomes larger."""


def noise(plan: dict[str, Any], cases: int) -> dict[str, Any]:
    """A batch without content, on the CPU."""
    import torch

    from m3b.training.diagnosis.covariates import examples
    from m3b.training.diagnosis.targets import kind_of
    from m3b.training.diagnosis.views import example, shape_of

    labels = torch.zeros(cases, kind_of(plan).width or len(plan["classes"]))
    labels[:, 0] = 1.0
    images = torch.randn(cases, *shape_of(plan))
    return {"pixel_values": images, "labels": labels, **examples(plan, cases), **example(plan, cases)}


STEP_COSTS = StepCosts(noise)


def ways_of(plan: dict[str, Any], facts: dict[str, Any], kept: set[str], smaller_input: Way) -> Ways:
    """In order; what was set by hand (`kept`), and the input of a network with a size of its own, stay."""
    fixed = "size" in kept or bool(plan["network"].get("pretrained") or plan["network"].get("config"))
    dims, inputs = int(plan["dims"]), [] if fixed else [smaller_input]
    usual = [float(side) for side in np.median(facts["shapes"], axis=0)]
    if dims == 3 and facts["frames"]:
        usual[2] = 0.0  # there are no frames between those of a clip
    larger = [] if fixed else [finer_input(usual, dims, FINEST[dims])]
    larger += [] if "batch" in kept else [larger_batch(min(MOST, int(facts["cases"]) // 8))]
    return Ways(inputs, [in_parts, *inputs], larger)
