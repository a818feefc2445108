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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging as hf_logging
from Utils.clock import Clock, NotFinite, OutOfMemory, last_checkpoint, rate, seconds_spent
from Utils.curves import append_row, number, telling
from Utils.finite import check_weights
from Utils.pace import SCORING_SHARE

hf_logging.set_verbosity_error()
LOGOUT = Path("Logout")
LINES = 10
"""About so many lines are printed a model; the log file has them all."""
FEW = 10
"""Validation cases with masks from which on the best figure decides which weights are kept."""

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
        self.best, self.best_epoch = (-math.inf, -math.inf), 0.0
        self.average: dict[str, torch.Tensor] = {}
        super().__init__(model=parts.model, train_dataset=parts.train, data_collator=parts.collate, **rest)
        self.model_accepts_loss_kwargs = False

    def create_optimizer(self, *rest: Any, **more: Any) -> Any:
        """AdamW as Trainer makes it; with `groups`, each with its factor of the learning rate (biases do not decay)."""
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
            self.optimizer = torch.optim.AdamW(groups, lr=base, weight_decay=decay)
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
        loss = super().training_step(model, inputs, *rest, **more)
        if not torch.isfinite(loss):
            raise NotFinite(f"{self.folder.name}, step {self.state.global_step + 1}: the loss is {float(loss)}")
        self.losses.append(loss.detach())
        return loss

    def follow(self) -> None:
        """Moves the running average of the weights; early in the training it follows faster."""
        decay = min(float(self.plan.get("ema") or 0.0), (1 + self.state.global_step) / (10 + self.state.global_step))
        weights = self.model.state_dict()
        with torch.no_grad():
            moving = {n: None for n, value in weights.items() if n in self.average and value.is_floating_point()}
            self.average |= {n: value.detach().clone() for n, value in weights.items() if n not in moving}
            if moving:  # all at once: a small network has more tensors than work in them
                torch._foreach_lerp_([self.average[n] for n in moving], [weights[n] for n in moving], 1 - decay)

    def score(self) -> Figures:
        """The validation figures of the averaged weights, which are saved if they are the best so far."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        check_weights(own, f"{self.folder.name}, step {self.state.global_step}")
        self.model.load_state_dict(self.average or own)
        was = self.model.training
        self.model.eval()
        with torch.no_grad():
            figures = self.parts.scorer(self.model, self.args.device) if self.parts.scorer else {}
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
        super()._save_checkpoint(*rest, **more)
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        save_file({k: v.contiguous() for k, v in self.average.items()}, str(folder / "average.safetensors"))
        state = {"spent": self.clock.spent(), "best": list(self.best), "best_epoch": self.best_epoch}
        (folder / "complete.json").write_text(json.dumps(state))
        for old in Path(self.args.output_dir).glob("checkpoint-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)

    def restore(self, folder: Path) -> None:
        """The averaged weights and the best figure so far, from a checkpoint."""
        state = json.loads((folder / "complete.json").read_text())
        self.average = {k: v.to(self.args.device) for k, v in load_file(str(folder / "average.safetensors")).items()}
        self.best, self.best_epoch = tuple(state["best"]), state["best_epoch"]


class ByTheClock(TrainerCallback):
    """Ends the training when its time is over; one log row a scoring, a few console lines; early stop."""

    def __init__(self, trainer: ClockTrainer) -> None:
        self.trainer, self.scoring_s, self.last_save = trainer, 0.0, time.monotonic()
        self.next_line, self.scored_at = 0.0, -math.inf

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        clock = self.trainer.clock
        clock.epoch, clock.step = float(state.epoch or 0), state.global_step
        self.trainer.follow()
        if clock.over(self.scoring_s):
            control.should_training_stop = control.should_epoch_stop = True

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer, clock = self.trainer, self.trainer.clock
        last = clock.over(self.scoring_s) or float(state.epoch or 0) >= clock.max_epochs
        due = clock.max_steps or clock.spent() - self.scored_at >= self.scoring_s * (1 - SCORING_SHARE) / SCORING_SHARE
        if last or due:
            start = time.monotonic()
            figures = trainer.score()
            self.scoring_s, self.scored_at = time.monotonic() - start, clock.spent()
            self.report(state, figures)
        patience = float(trainer.plan.get("patience") or math.inf)
        if clock.over(self.scoring_s) or float(state.epoch or 0) - trainer.best_epoch >= patience:
            control.should_training_stop = True
        # a checkpoint costs little; on the quickest epochs still no more than one every five seconds
        control.should_save = time.monotonic() - self.last_save > 5 or state.global_step == 1
        if control.should_save:
            self.last_save = time.monotonic()

    def report(self, state: TrainerState, figures: Figures) -> None:
        """A row of the log, and a line for people where one is due."""
        trainer, clock = self.trainer, self.trainer.clock
        loss = float(torch.stack(trainer.losses).mean()) if trainer.losses else math.nan
        trainer.losses.clear()
        lr, spent, epoch = trainer.lr_scheduler.get_last_lr()[-1], clock.spent(), round(float(state.epoch or 0))
        row = {"fold": trainer.folder.name.removeprefix("fold"), "epoch": epoch, "step": state.global_step}
        row |= {"train_loss": round(loss, 5), **{key: round(value, 5) for key, value in figures.items()}}
        append_row(LOGOUT / "log.csv", {**row, "lr": f"{lr:.3g}", "seconds": round(spent, 1)})
        if spent >= self.next_line:
            self.next_line = spent + clock.budget / LINES
            each = (f"{key.replace('_', ' ')} {value:.3f}, " for key, value in telling(figures).items())
            print(
                f"{trainer.folder.name} epoch {number(state.epoch)}: loss {loss:.3f}, {''.join(each)}lr {lr:.1g}, "
                f"{spent:.0f} of {clock.budget:.0f} s, about {clock.steps_left()} steps left",
                flush=True,
            )


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
    if (folder / "done.json").exists():
        return dict(json.loads((folder / "done.json").read_text()))
    counted = {"max_steps": int(plan.get("max_steps") or 0), "enough_steps": steps}
    clock = Clock(seconds, int(plan["max_epochs"]), seconds_spent(folder), **counted)
    while True:
        try:
            return _train(plan, folder, clock, make, watch)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or _says_memory(str(error))
            if not memory or isinstance(error, NotFinite):
                raise
            told = _smaller(plan, shrink)
            if not told:
                raise OutOfMemory(f"batch {plan['batch']}") from error
        print(f"out of memory: going on with {told}", flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _says_memory(text: str) -> bool:
    """What torch's CPU and GPU allocators say; other errors name memory too ("tensors share memory")."""
    return any(words in text.lower() for words in ("out of memory", "allocate memory", "not enough memory"))


def _smaller(plan: dict[str, Any], shrink: Callable[[dict[str, Any]], bool] | None) -> str:
    least = int(plan.get("least_batch", 2))
    if int(plan["batch"]) > least:
        plan["batch"] = max(least, int(plan["batch"]) // 2)
        return f"batch {plan['batch']}"
    return f"a smaller input, {plan.get('patch') or plan.get('size')}" if shrink and shrink(plan) else ""


def _train(plan: dict[str, Any], folder: Path, clock: Clock, make: Any, watch: str) -> dict[str, Any]:
    seed = int(plan["seed"]) + sum(map(int, filter(str.isdigit, folder.name)))
    set_seed(seed)
    parts = make(plan)
    trainer = ClockTrainer(plan, folder, clock, parts, watch, args=_arguments(plan, folder, len(parts.train), seed))
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(ByTheClock(trainer))
    if last := last_checkpoint(folder):
        trainer.restore(last)
        print(f"{folder.name}: going on from {last.name} after {clock.spent():.0f} s", flush=True)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    if not (folder / "best.safetensors").exists():
        trainer.score()
    epochs, which = round(float(trainer.state.epoch or 0), 2), "kept the last weights," if parts.keep_last else "best"
    figure = f"{watch} {trainer.best[0]:.3f}" if parts.scorer else "no case held out,"
    print(f"{folder.name}: {which} {figure} at epoch {number(trainer.best_epoch)} of {number(epochs)}", flush=True)
    done = {"epochs": epochs, "seconds": round(clock.spent(), 1), "best_epoch": trainer.best_epoch}
    done |= {"steps": trainer.state.global_step, "best": trainer.best[0]}
    (folder / "done.json").write_text(json.dumps(done))
    for old in folder.glob("checkpoint-*"):
        shutil.rmtree(old, ignore_errors=True)
    return done


def _arguments(plan: Mapping[str, Any], folder: Path, cases: int, seed: int) -> TrainingArguments:
    on_cpu = plan["device"] == "cpu" or not torch.cuda.is_available()
    batch = max(1, min(int(plan["batch"]), cases))
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch * 2,
        num_train_epochs=float(plan["max_epochs"]),
        max_steps=int(plan.get("max_steps") or -1),
        learning_rate=float(plan["lr"]),
        weight_decay=float(plan["weight_decay"]),
        max_grad_norm=float(plan.get("clip", 1.0)),
        eval_strategy="no",  # the callback evaluates, with the averaged weights
        save_strategy="no",  # and asks for the checkpoints
        logging_strategy="no",
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
        label_names=["labels"],
        use_cpu=on_cpu,
        bf16=_half(plan, on_cpu),
        dataloader_num_workers=int(plan["workers"]),
        dataloader_pin_memory=not on_cpu,
        dataloader_drop_last=cases % batch == 1 and cases > 1,  # batch normalisation needs two cases
        seed=seed,
    )


def _half(plan: Mapping[str, Any], on_cpu: bool) -> bool:
    """Whether convolutions run in bfloat16; what a plan says of a GPU that cannot is passed over."""
    wanted = str(plan.get("precision") or ("fp32" if on_cpu else "bf16")) == "bf16"
    return wanted and (on_cpu or torch.cuda.is_bf16_supported())


def device_of(plan: Mapping[str, Any]) -> torch.device:
    """Where the plan wants the model to be."""
    return torch.device("cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu")


def load_best(model: torch.nn.Module, name: str, device: torch.device) -> torch.nn.Module:
    """The model with the kept weights of Logout/<name>, on the device, in evaluation mode."""
    model.load_state_dict(load_file(str(LOGOUT / name / "best.safetensors")))
    return model.to(device).eval()


def save_weights(model: torch.nn.Module, file: Path) -> None:
    """Safetensors, written beside and moved into place."""
    temporary = file.with_suffix(".tmp")
    save_file({k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}, temporary)
    os.replace(temporary, file)
