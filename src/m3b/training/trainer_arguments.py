"""The settings of transformers' Trainer that follow from plan.json, and those of PyTorch on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from m3b.training.distributed import world_size
from m3b.training.precision import device_of, half_of
from m3b.training.step_cost import micro_batch

COMPILED_MINUTES = 30.0
"""Shorter plans are not compiled: that takes minutes, and gives a few steps in a hundred."""

FEWEST_STEPS = 4
"""Steps of an epoch from which on its last, smaller batch may be left out."""


def arguments(plan: Mapping[str, Any], folder: Path, cases: int, seed: int) -> TrainingArguments:
    """Batches of a step are shared out among the processes, and made in `accumulate` parts."""
    device = device_of(plan)
    half, on_cpu, workers = half_of(plan, device), device.type == "cpu", int(plan["workers"])
    parts, together = max(1, int(plan.get("accumulate") or 1)), world_size()
    batch = max(1, min(micro_batch(plan, together), -(-cases // together)))
    found = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch * 2,
        gradient_accumulation_steps=parts,
        num_train_epochs=float(plan["max_epochs"]),
        max_steps=int(plan.get("max_steps") or -1),
        learning_rate=float(plan["lr"]),
        weight_decay=float(plan["weight_decay"]),
        max_grad_norm=float(plan.get("clip", 1.0)),
        eval_strategy="no",  # the callback evaluates, with the averaged weights
        save_strategy="no",  # and asks for the checkpoints
        logging_strategy="no",
        logging_nan_inf_filter=False,  # which would wait for the GPU in every step
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
        label_names=["labels"],
        use_cpu=on_cpu,
        bf16=half is torch.bfloat16,
        fp16=half is torch.float16,  # with a gradient scaler
        dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0,
        dataloader_pin_memory=not on_cpu,
        accelerator_config={"non_blocking": not on_cpu},
        dataloader_drop_last=drops_last(cases, batch, parts * together, not on_cpu),
        ddp_backend="gloo" if on_cpu and together > 1 else None,
        seed=seed,
    )
    if together < 2 and found.n_gpu > 1:
        found._n_gpu = 1  # all GPUs that are seen would be taken, in one process, by nn.DataParallel
    return found


def drops_last(cases: int, batch: int, batches: int, on_gpu: bool) -> bool:
    """Whether an epoch leaves out its last, smaller batch: of one case, since batch normalisation needs two; on a GPU always where
    an epoch has enough steps, since cuDNN looks for its quickest ways anew for each size (a network of volumes on an H100: five
    seconds in the first epoch).

    Args:
        batches: that make a step.
    """
    return (cases % batch == 1 and cases > 1) or (on_gpu and cases >= FEWEST_STEPS * batch * batches)


FEW_CASES = 16
"""Cases of a GPU in a step below which batch normalisation takes the cases of all GPUs: the mean of fewer is noise."""


def synchronised(model: torch.nn.Module, device: torch.device, cases: int, processes: int) -> torch.nn.Module:
    """The network, whose batch normalisation counts the cases of all GPUs if each has few; the names of its weights stay."""
    if processes < 2 or device.type != "cuda" or cases >= FEW_CASES:
        return model
    return torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)


def has_unused(model: torch.nn.Module, batch: Mapping[str, Any]) -> bool:
    """Whether a step leaves a weight without slope, which processes that train together have to look for in each step.

    Weights, statistics and random numbers stay as they are.
    """
    before = {name: value.clone() for name, value in model.named_buffers()}
    with torch.random.fork_rng():
        model(**batch)["loss"].backward()
    unused = any(weight.grad is None for weight in model.parameters() if weight.requires_grad)
    model.zero_grad(set_to_none=True)
    for name, value in model.named_buffers():
        value.copy_(before[name])
    return unused


def set_up(plan: Mapping[str, Any]) -> None:
    """cuDNN looks for its quickest ways, and products of float32 may take TF32; not where a training is to repeat exactly."""
    if device_of(plan).type != "cuda":
        return
    torch.backends.cudnn.benchmark = not plan.get("max_steps")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


@contextmanager
def any_shape() -> Iterator[None]:
    """While images of many shapes come by, cuDNN does not try its ways on each of them anew."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def compiled(model: torch.nn.Module, plan: Mapping[str, Any], seconds: float) -> bool:
    """Compiles the network in place, where the plan says so; what cannot be compiled runs as it is.

    `compile` in plan.json: true, false, "auto" (on a GPU, for trainings of half an hour and more, where there is a compiler),
    or the name of a backend of torch.compile.
    """
    wanted = plan.get("compile", False)
    if wanted == "auto":
        wanted = device_of(plan).type == "cuda" and seconds >= 60 * COMPILED_MINUTES and can_compile()
    if not wanted:
        return False
    import torch._dynamo

    torch._dynamo.config.suppress_errors = True
    model.compile(backend="inductor" if wanted is True else str(wanted), dynamic=False)
    return True


def can_compile() -> bool:
    """Whether there is what torch.compile needs for a GPU: Triton, and a C compiler for its launchers."""
    from importlib.util import find_spec

    return bool(find_spec("triton")) and any(map(shutil.which, ("cc", "gcc", "clang")))


@contextmanager
def as_it_is(model: torch.nn.Module) -> Iterator[None]:
    """The network uncompiled: images of other shapes than the patches would have it compiled again and again."""
    kept, model._compiled_call_impl = getattr(model, "_compiled_call_impl", None), None
    try:
        yield
    finally:
        model._compiled_call_impl = kept
