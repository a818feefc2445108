"""One model trained by the clock, with averaged weights, the best kept, checkpoints for a killed process, and an
answer to too little memory. A template says what is trained (`Parts`) and what counts as better (`watch`).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import default_collate
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainingArguments, set_seed
from transformers.utils import logging as hf_logging

import m3b.training.torchvision_ops  # noqa: F401 - before transformers, which imports torchvision where there is one
from m3b.training.clock import Clock, NotFinite, OutOfMemory, StartAgain, last_checkpoint, rate, seconds_spent
from m3b.training.curves import number
from m3b.training.distributed import barrier, broadcast, is_main, world_size
from m3b.training.divergence import check_weights
from m3b.training.memory import empty_cache, says_memory
from m3b.training.optimizers import optimizer_of
from m3b.training.precision import autocast, device_of, laid_out
from m3b.training.step_cost import micro_batch
from m3b.training.trainer_arguments import any_shape, arguments, as_it_is, compiled, has_unused, set_up, synchronised
from m3b.training.trainer_callbacks import LOGOUT, ByTheClock

__all__ = [
    "FEW",
    "LOGOUT",
    "Batch",
    "ClockTrainer",
    "Parts",
    "device_of",
    "load_best",
    "save_weights",
    "train_by_clock",
]

hf_logging.set_verbosity_error()
FEW = 10
"""Validation cases with masks from which on the best figure decides which weights are kept."""
LOOK = 20
"""On a GPU the losses are looked at every so many steps: each look waits for it."""

Batch = dict[str, Any]
Figures = dict[str, float]


@dataclass
class Parts:
    """What is trained.

    Args:
        model: `model(**batch)` gives {"loss": ...}.
        train: a torch Dataset of dicts.
        scorer: (model in evaluation mode, device) to figures of the validation part; higher is better for the one that
            is watched; `valid_loss` breaks ties. None: nothing is held out, and the last weights are kept.
        prepare: changes a batch on the device before each step (augmentation).
        collate: makes a batch of items; stacked as usual if None.
        groups: parameter groups with their own `lr` factor: lists of parameters and factors, all of them if None.
        keep_last: keep the weights of the end, where the rate has come down, not those of the best figure. On a handful
            of validation cases (fewer than `FEW`) the best figure is chance, and its own flatters. nnU-Net keeps the last.
    """

    model: torch.nn.Module
    train: Any
    scorer: Callable[[torch.nn.Module, torch.device], Figures] | None
    prepare: Callable[[Batch], Batch] | None = None
    collate: Callable[[list[Any]], Batch] | None = None
    groups: list[tuple[list[torch.nn.Parameter], float]] | None = None
    keep_last: bool = False

    def __post_init__(self) -> None:
        self.keep_last = self.keep_last or self.scorer is None


class ClockTrainer(Trainer):
    """Augments on the device, scores the averaged weights, keeps the best, obeys the clock."""

    def __init__(
        self, plan: Mapping[str, Any], folder: Path, clock: Clock, parts: Parts, watch: str, **rest: Any
    ) -> None:
        self.plan, self.folder, self.clock, self.parts, self.watch = plan, folder, clock, parts, watch
        self.losses: list[torch.Tensor] = []
        self.seen, self.saving_s = 0, 0.0
        self.best, self.best_epoch = (-math.inf, -math.inf), 0.0
        self.average: dict[str, torch.Tensor] = {}
        super().__init__(model=parts.model, train_dataset=parts.train, data_collator=parts.collate, **rest)
        self.model_accepts_loss_kwargs = False

    def create_optimizer(self, *rest: Any, **more: Any) -> Any:
        """Muon where the plan asks for it, else AdamW as Trainer makes it; with `groups`, AdamW with a factor of the learning
        rate for each (biases do not decay)."""
        if self.optimizer is None and self.parts.groups:
            base, decay = self.args.learning_rate, self.args.weight_decay
            groups = [
                {"params": part, "lr": base * factor, "weight_decay": share}
                for params, factor in self.parts.groups
                for part, share in (
                    ([p for p in params if p.ndim > 1], decay),
                    ([p for p in params if p.ndim < 2], 0.0),
                )
                if part
            ]
            fused = self.args.device.type == "cuda"
            self.optimizer = torch.optim.AdamW(groups, lr=base, weight_decay=decay, fused=fused or None)
        elif self.optimizer is None and (self.plan.get("optimizer") or "adamw") != "adamw":
            self.optimizer = optimizer_of(self.parts.model, self.plan, self.args.learning_rate, self.args.weight_decay)
        return self.optimizer or super().create_optimizer(*rest, **more)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The rate follows the clock, not the number of steps, so that it ends annealed on any machine."""
        optimizer = optimizer or self.optimizer
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: rate(self.clock.progress()))
        return self.lr_scheduler

    def training_step(self, model: Any, inputs: Batch, *rest: Any, **more: Any) -> torch.Tensor:
        inputs = self._prepare_inputs(inputs)
        if self.parts.prepare:
            with torch.no_grad():
                inputs = self.parts.prepare(inputs)
        if self.plan.get("channels_last") and inputs["pixel_values"].ndim == int(self.plan["dims"]) + 2:
            last = torch.channels_last if int(self.plan["dims"]) == 2 else torch.channels_last_3d
            inputs = {**inputs, "pixel_values": inputs["pixel_values"].contiguous(memory_format=last)}
        loss = super().training_step(model, inputs, *rest, **more)
        self.losses.append(loss.detach())
        self.look_at_losses(now=loss.device.type == "cpu")
        return loss

    def look_at_losses(self, now: bool = False) -> None:
        """Ends the training where a loss is not finite. A GPU is waited for then, so it is asked seldom, and `now`.

        Raises:
            NotFinite.
        """
        new = self.losses[self.seen :]
        if not new or not (now or len(new) >= LOOK * self.args.gradient_accumulation_steps):
            return
        self.seen = len(self.losses)
        values = torch.stack(new)
        if not bool(torch.isfinite(values).all()):
            loss = next(value for value in values.tolist() if not math.isfinite(value))
            among = f", or one of the {len(new)} before" if len(new) > 1 else ""
            raise NotFinite(f"{self.folder.name}, step {self.state.global_step + 1}{among}: the loss is {loss}")

    def mean_loss(self) -> float:
        """Of the steps since it was asked last; NaN without any."""
        parts = self.args.gradient_accumulation_steps  # Trainer divides each part's loss by their number
        loss = parts * float(torch.stack(self.losses).mean()) if self.losses else math.nan
        self.losses.clear()
        self.seen = 0
        return loss

    def follow(self) -> None:
        """Moves the running average of the weights, not of counters; early in the training it follows faster."""
        decay = min(float(self.plan.get("ema") or 0.0), (1 + self.state.global_step) / (10 + self.state.global_step))
        weights = {n: value for n, value in self.model.state_dict().items() if value.is_floating_point()}
        with torch.no_grad():
            moving = [n for n in weights if n in self.average]
            self.average |= {n: value.detach().clone() for n, value in weights.items() if n not in self.average}
            if moving:  # all at once: a small network has more tensors than work in them
                torch._foreach_lerp_([self.average[n] for n in moving], [weights[n] for n in moving], 1 - decay)

    def score(self) -> Figures:
        """The validation figures of the averaged weights, which are saved if they are the best so far."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        check_weights(own, f"{self.folder.name}, step {self.state.global_step}")
        self.model.load_state_dict({**own, **self.average})
        was, device = self.model.training, self.args.device
        self.model.eval()
        half = autocast(self.plan, device) if device.type == "cuda" else nullcontext()
        with torch.no_grad(), any_shape(), as_it_is(self.model), half:
            figures = self.parts.scorer(self.model, device) if self.parts.scorer else {}
        watched = figures.get(self.watch, math.nan)
        found = (round(watched if math.isfinite(watched) else -1.0, 4), -figures.get("valid_loss", 0.0))
        if found > self.best or self.parts.keep_last or not (self.folder / "best.safetensors").exists():
            self.best, self.best_epoch = found, float(self.state.epoch or 0)
            save_weights(self.model, self.folder / "best.safetensors")
        self.model.load_state_dict(own)
        self.model.train(was)
        return figures

    def _save_checkpoint(self, *rest: Any, **more: Any) -> None:
        """Trainer's checkpoint, then what else a resumed training needs; `complete.json` is written last."""
        start = time.monotonic()
        super()._save_checkpoint(*rest, **more)
        if not is_main():
            return
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        save_file({k: v.contiguous() for k, v in self.average.items()}, str(folder / "average.safetensors"))
        state = {"spent": self.clock.spent(), "best": list(self.best), "best_epoch": self.best_epoch}
        (folder / "complete.json").write_text(json.dumps(state))
        for old in Path(self.args.output_dir).glob("checkpoint-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
        self.saving_s = time.monotonic() - start

    def restore(self, folder: Path) -> None:
        """The averaged weights and the best figure so far, from a checkpoint."""
        state = json.loads((folder / "complete.json").read_text())
        self.average = {k: v.to(self.args.device) for k, v in load_file(str(folder / "average.safetensors")).items()}
        self.best, self.best_epoch = tuple(state["best"]), state["best_epoch"]


def train_by_clock(
    plan: dict[str, Any],
    name: str,
    make: Callable[[dict[str, Any]], Parts],
    *,
    seconds: float,
    watch: str,
    shrink: Callable[[dict[str, Any]], bool] | None = None,
    steps: int = 0,
) -> dict[str, Any]:
    """Train one model to the end of its time under Logout/<name>/; leaves best.safetensors and done.json there.

    Goes on by itself from the last checkpoint that it finds. Out of memory: the batch is halved, down to the plan's
    `least_batch` (2), then `shrink(plan)` makes something else smaller and says whether it could.

    Args:
        make: builds the parts from the plan; called again after the plan was made smaller.
        seconds: of wall time, earlier starts included.
        watch: the figure that decides which weights are kept.
        steps: the training ends after so many, if its seconds do not end before; 0: by the seconds alone.

    Returns what done.json holds: epochs, seconds, steps, best_epoch, best. Raises NotFinite, OutOfMemory.
    """
    folder = LOGOUT / name
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "smaller.json").exists():  # found out by an earlier start, or by the process that trained this fold
        plan |= json.loads((folder / "smaller.json").read_text())
    if (folder / "done.json").exists():
        return dict(json.loads((folder / "done.json").read_text()))
    set_up(plan)
    seconds, spent = broadcast([seconds, seconds_spent(folder)])
    counted = {"max_steps": int(plan.get("max_steps") or 0), "enough_steps": steps}
    clock = Clock(seconds, int(plan["max_epochs"]), spent, **counted)
    while True:
        try:
            return _train(plan, folder, clock, make, watch)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not says_memory(error) or isinstance(error, NotFinite):
                raise
            told = _smaller(plan, shrink)
            if not told:
                raise OutOfMemory(f"batch {micro_batch(plan, world_size())}") from error
        print(f"out of memory: going on with {told}", flush=True)
        empty_cache()
        kept = {key: plan[key] for key in ("batch", "accumulate", "patch", "size") if key in plan}
        (folder / "smaller.json").write_text(json.dumps(kept))
        if world_size() > 1:  # the others wait for this one's gradients, and cannot know
            raise StartAgain(f"out of memory: {told}")


def _smaller(plan: dict[str, Any], shrink: Callable[[dict[str, Any]], bool] | None) -> str:
    """The same step in more parts, one after the other; then a smaller input."""
    together, least = world_size(), int(plan.get("least_batch", 2))
    cases = micro_batch(plan, together)
    if cases > least:
        half = max(least, cases // 2)
        plan["accumulate"] = math.ceil(math.ceil(int(plan["batch"]) / together) / half)
        return f"batch {half}, {plan['accumulate']} times a step"
    return f"a smaller input, {plan.get('patch') or plan.get('size')}" if shrink and shrink(plan) else ""


def _train(plan: dict[str, Any], folder: Path, clock: Clock, make: Any, watch: str) -> dict[str, Any]:
    seed = int(plan["seed"]) + sum(map(int, filter(str.isdigit, folder.name)))
    set_seed(seed)
    parts = make(plan)
    settings = arguments(plan, folder, len(parts.train), seed)
    if world_size() > 1:
        settings.ddp_find_unused_parameters = has_unused(parts.model.to(settings.device), first_batch(parts, settings))
    cases = settings.per_device_train_batch_size
    parts.model = synchronised(parts.model, settings.device, cases, world_size())
    laid_out(parts.model.to(settings.device), plan)
    compiled(parts.model, plan, clock.budget)
    trainer = ClockTrainer(plan, folder, clock, parts, watch, args=settings)
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(ByTheClock(trainer))
    if last := last_checkpoint(folder):
        trainer.restore(last)
        print(f"{folder.name}: going on from {last.name} after {clock.spent():.0f} s", flush=True)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    if is_main() and not (folder / "best.safetensors").exists():
        trainer.score()
    epochs, which = round(float(trainer.state.epoch or 0), 2), "kept the last weights," if parts.keep_last else "best"
    figure = f"{watch} {trainer.best[0]:.3f}" if parts.scorer else "no case held out,"
    print(
        f"{folder.name}: {which} {figure} at epoch {number(trainer.best_epoch)} of {number(epochs)}, "
        f"{trainer.state.global_step} steps",
        flush=True,
    )
    done = {"epochs": epochs, "seconds": round(clock.spent(), 1), "best_epoch": trainer.best_epoch}
    done |= {"steps": trainer.state.global_step, "best": broadcast([trainer.best[0]])[0]}
    if is_main():
        (folder / "done.json").write_text(json.dumps(done))
        for old in folder.glob("checkpoint-*"):
            shutil.rmtree(old, ignore_errors=True)
    barrier()
    return done


def first_batch(parts: Parts, settings: TrainingArguments) -> Batch:
    """Two training cases as a step takes them, on the device."""
    items = [parts.train[place % len(parts.train)] for place in range(2)]
    batch = {key: value.to(settings.device) for key, value in (parts.collate or default_collate)(items).items()}
    with torch.no_grad():
        return parts.prepare(batch) if parts.prepare else batch


def load_best(model: torch.nn.Module, name: str, device: torch.device) -> torch.nn.Module:
    """The model with the kept weights of Logout/<name>, on the device, in evaluation mode."""
    model.load_state_dict(load_file(str(LOGOUT / name / "best.safetensors")))
    return model.to(device).eval()


def save_weights(model: torch.nn.Module, file: Path) -> None:
    """Safetensors, written beside and moved into place."""
    temporary = file.with_suffix(".tmp")
    save_file({k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}, temporary)
    os.replace(temporary, file)
