"""Probe of a training project, run in the sandbox in its folder: one batch through data loader, model and loss.

This file imports the project and torch; of m3b only what the project itself is made of. Its last line is `M3B-PROBE {json}`.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIN_STEPS, MAX_STEPS, MAX_SECONDS = 20, 200, 45.0
"""Limits of the training on one batch: number of steps, and time."""
LEARNED_LOSS_RATIO = 0.6
"""Share of the first loss at which the probe stops, because the batch is learnt; lower than what the check requires."""
MAX_BATCH_SIZE = 8


def main() -> None:
    sys.path.insert(0, str(Path.cwd()))
    report: dict[str, Any] = {"step": "plan.json", "error": ""}
    try:
        run_probe(report, int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    except Exception as error:  # noqa: BLE001 - the agents' code may raise anything; the check wants it as data
        report["error"] = f"{type(error).__name__}: {error}\n{_format_traceback()}"
    print("M3B-PROBE " + json.dumps(report))


def _format_traceback() -> str:
    return "\n".join(traceback.format_exc().strip().splitlines()[-7:])


def run_probe(report: dict[str, Any], batch_size: int = 0) -> None:
    """Fill the report step by step; `report["step"]` names the step that raised an error.

    Args:
        batch_size: cases in the batch; 0 for the batch size of the plan.
    """
    import torch

    torch.manual_seed(0)
    plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    report["step"] = "the import of the project"
    project = load_project()
    report["step"] = "build_datasets"
    train, valid = project.build_datasets(plan)
    if len(train) == 0 or len(valid) == 0:
        raise ValueError(f"build_datasets gives {len(train)} training and {len(valid)} validation cases")
    items = sample_items(train, batch_size or max(2, int(plan["batch"])))
    report["step"] = "a batch of build_datasets"
    batch = project.collate(items)
    pixels, labels = batch["pixel_values"], batch.get("labels")
    report.update(
        shape=list(pixels.shape), dtype=str(pixels.dtype).removeprefix("torch."),
        label_width=int(labels.shape[-1]) if labels is not None and labels.ndim else 0,
        finite=bool(torch.isfinite(pixels).all()), range=[float(pixels.min()), float(pixels.max())],
    )  # fmt: skip
    report["step"] = "build_model"
    model = project.build_model(plan)
    report["parameters"] = sum(weights.numel() for weights in model.parameters())
    report["step"] = "one batch through the model"
    model.eval()
    with torch.no_grad():
        outputs = model(**batch)
    logits = outputs.get("logits")
    if "loss" not in outputs or logits is None:
        raise ValueError(f"the model must give `loss` and `logits`; it gives {sorted(outputs)}")
    report["outputs"] = int(logits.shape[-1] if logits.ndim == 2 else logits.shape[1])
    report["same_outputs"] = bool(len(items) > 1 and float((logits - logits[:1]).abs().max()) < 1e-7)
    report["step"] = "overfitting one batch"
    use_bf16 = plan.get("precision") == "bf16" and not torch.cuda.is_available()  # as training does; often much quicker
    overfit_batch(model, batch, report, use_bf16)
    report["step"] = "done"


def load_project() -> Any:
    """Return what the project is made of: its recipe, or the functions of a project without one."""
    if Path("recipe.py").is_file():
        from m3b.training.recipe import get_recipe

        return get_recipe()
    from Datapath import dataloader  # type: ignore[import-not-found]
    from Model.network import build_model  # type: ignore[import-not-found]

    return SimpleNamespace(
        build_datasets=dataloader.build_datasets,
        build_model=build_model,
        collate=getattr(dataloader, "collate", stack_items),
    )


def stack_items(items: list[Any]) -> dict[str, Any]:
    """Return a batch with every tensor of the items stacked."""
    import torch

    return {key: torch.stack([item[key] for item in items]) for key in items[0] if torch.is_tensor(items[0][key])}


def sample_items(dataset: Any, count: int) -> list[Any]:
    """Return up to `count` (and `MAX_BATCH_SIZE`) cases from the whole data set, to include more than one label."""
    # Sampled at random: with alternating labels, evenly spaced cases might all have the same label.
    return [dataset[i] for i in random.Random(0).sample(range(len(dataset)), min(MAX_BATCH_SIZE, count, len(dataset)))]


def overfit_batch(model: Any, batch: dict[str, Any], report: dict[str, Any], use_bf16: bool = False) -> None:
    """Train a few steps on one batch; the first loss is taken in evaluation mode, the last one in training mode."""
    import torch

    def evaluate_loss() -> float:
        model.eval()
        with torch.no_grad():
            return float(model(**batch)["loss"])

    # Batch statistics of few cases differ from the running ones, so norms stay in training mode; dropout is off.
    before = evaluate_loss()
    model.train()
    for module in model.modules():
        if "Dropout" in type(module).__name__:
            module.eval()
    started, steps, last = time.monotonic(), 0, before
    moments: dict[Any, tuple[Any, Any]] = {}
    while (
        steps < MAX_STEPS
        and time.monotonic() - started < MAX_SECONDS
        and (steps < MIN_STEPS or last > LEARNED_LOSS_RATIO * before)
    ):
        model.zero_grad()
        # a new context for each step, since it caches copies of the weights
        with torch.autocast("cpu", torch.bfloat16, enabled=use_bf16):
            loss = model(**batch)["loss"]
        loss.backward()
        last, steps = float(loss.detach()), steps + 1
        with torch.no_grad():
            adam_step(model.parameters(), moments, steps)
    report.update(loss_before=before, loss_after=last, steps=steps, loss_finite=bool(last == last and abs(last) < 1e6))
    report["loss_before"] = before if before == before else 0.0


def adam_step(parameters: Any, moments: dict[Any, tuple[Any, Any]], step: int, rate: float = 3e-3) -> None:
    """Make one step of Adam. torch.optim is not used, since it imports torch's compiler, which takes seconds."""
    for weight in parameters:
        if weight.grad is None:
            continue
        mean, square = moments.setdefault(weight, (weight.new_zeros(weight.shape), weight.new_zeros(weight.shape)))
        mean.lerp_(weight.grad, 0.1)
        square.lerp_(weight.grad.square(), 0.001)
        weight -= rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)


if __name__ == "__main__":
    main()
