"""A transformers Trainer that lives by the clock: the learning rate ends annealed when the time ends."""

from __future__ import annotations

import csv
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging as hf_logging
from Utils.augment import Augment
from Utils.ranks import balanced_accuracy, macro_auroc

hf_logging.set_verbosity_error()
LINES_A_FOLD = 10
COLUMNS = ("fold", "epoch", "step", "train_loss", "valid_loss", "auroc", "balanced_accuracy", "lr", "seconds")


class NotFinite(RuntimeError):
    """The loss became NaN or infinite."""


class Clock:
    """Seconds of training spent on one fold, earlier starts of a resumed training included."""

    def __init__(self, budget: float, max_epochs: int, spent: float = 0.0) -> None:
        self.budget, self.max_epochs, self.epoch = max(budget, 1.0), max_epochs, 0.0
        self._start = time.monotonic() - spent

    def spent(self) -> float:
        return time.monotonic() - self._start

    def progress(self) -> float:
        """0 at the start, 1 when the time or the epochs are used up, whichever comes first."""
        return min(1.0, max(self.spent() / self.budget, self.epoch / self.max_epochs))


def rate(progress: float, warm: float = 0.08) -> float:
    """One cycle: linear rise over the first `warm` of the time, then a half cosine down to 0.2 % of the peak."""
    if progress < warm:
        return 0.1 + 0.9 * progress / warm
    return 0.002 + 0.998 * 0.5 * (1 + float(np.cos(np.pi * (progress - warm) / (1 - warm))))


def probabilities(logits: np.ndarray, multi_label: bool) -> np.ndarray:
    """(N, K) logits to probabilities: sigmoid for several labels a case, softmax for one."""
    if multi_label:
        return 1 / (1 + np.exp(-np.clip(logits, -60, 60)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class FoldTrainer(Trainer):
    """One fold: augments on the device, evaluates the averaged weights each epoch, keeps the best, obeys the clock."""

    def __init__(self, plan: Mapping[str, Any], fold: int, clock: Clock, **parts: Any) -> None:
        self.plan, self.fold, self.clock = plan, fold, clock
        self.folder = Path("Logout") / f"fold{fold}"
        self.augment = Augment(plan["augment"])
        self.losses: list[torch.Tensor] = []
        self.best, self.best_epoch = (-1.0, 0.0), 0.0
        self.average: dict[str, torch.Tensor] = {}
        super().__init__(**parts)
        self.model_accepts_loss_kwargs = False

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The rate follows the clock, not the number of steps, so that it ends annealed on any machine."""
        optimizer = optimizer or self.optimizer
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: rate(self.clock.progress()))
        return self.lr_scheduler

    def training_step(self, model: Any, inputs: dict[str, Any], *rest: Any, **more: Any) -> torch.Tensor:
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            inputs["pixel_values"] = self.augment(inputs["pixel_values"])
        loss = super().training_step(model, inputs, *rest, **more)
        if not torch.isfinite(loss):
            raise NotFinite(f"fold {self.fold}, step {self.state.global_step + 1}: the loss is {float(loss)}")
        self.losses.append(loss.detach())
        return loss

    def follow(self) -> None:
        """Moves the running average of the weights; early in the training it follows faster."""
        decay = min(float(self.plan.get("ema") or 0.0), (1 + self.state.global_step) / (10 + self.state.global_step))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                if name not in self.average or not value.is_floating_point():
                    self.average[name] = value.detach().clone()
                else:
                    self.average[name].lerp_(value, 1 - decay)

    def score(self) -> dict[str, float]:
        """Validation with the averaged weights: loss, AUROC, balanced accuracy. Saves the weights if they are best."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.average or own)
        logits, labels, loss = self.run_valid()
        scores = probabilities(logits, bool(self.plan["multi_label"]))
        figures = {
            "valid_loss": loss,
            "auroc": macro_auroc(labels, scores),
            "balanced_accuracy": balanced_accuracy(labels, scores, bool(self.plan["multi_label"])),
        }
        if (round(figures["auroc"], 4), -loss) > self.best:
            self.best, self.best_epoch = (round(figures["auroc"], 4), -loss), float(self.state.epoch or 0)
            save_weights(self.model, self.folder / "best.safetensors")
        self.model.load_state_dict(own)
        return figures

    def run_valid(self) -> tuple[np.ndarray, np.ndarray, float]:
        """(N, K) logits and labels of the validation part, and the mean loss."""
        loader = torch.utils.data.DataLoader(self.eval_dataset, batch_size=self.args.per_device_eval_batch_size)
        return run_model(self.model, loader, self.args.device)

    def _save_checkpoint(self, *rest: Any, **more: Any) -> None:
        """Trainer's checkpoint, then what else a resumed training needs; `complete` is written last."""
        super()._save_checkpoint(*rest, **more)
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        save_file(
            {name: value.contiguous() for name, value in self.average.items()}, str(folder / "average.safetensors")
        )
        state = {"spent": self.clock.spent(), "best": list(self.best), "best_epoch": self.best_epoch}
        (folder / "complete.json").write_text(json.dumps(state))
        for old in Path(self.args.output_dir).glob("checkpoint-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)

    def restore(self, folder: Path) -> None:
        """The averaged weights, the best figure so far and the time spent, from a checkpoint."""
        state = json.loads((folder / "complete.json").read_text())
        self.average = {k: v.to(self.args.device) for k, v in load_file(str(folder / "average.safetensors")).items()}
        self.best, self.best_epoch = tuple(state["best"]), state["best_epoch"]


@torch.no_grad()
def run_model(model: torch.nn.Module, loader: Any, device: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """(N, K) logits and labels over a loader of batches, and the mean loss (NaN if the model computes none)."""
    was, logits, labels, losses = model.training, [], [], []
    model.eval()
    for batch in loader:
        output = model(batch["pixel_values"].to(device), batch["labels"].to(device))
        logits.append(output["logits"].float().cpu().numpy())
        labels.append(batch["labels"].cpu().numpy())
        losses.append(float(output["loss"]) * len(labels[-1]) if "loss" in output else float("nan"))
    model.train(was)
    table = np.concatenate(labels)
    return np.concatenate(logits), table, sum(losses) / len(table)


def save_weights(model: torch.nn.Module, file: Path) -> None:
    """Safetensors, written beside and moved into place."""
    temporary = file.with_suffix(".tmp")
    save_file(
        {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}, temporary
    )
    os.replace(temporary, file)


class ByTheClock(TrainerCallback):
    """Ends the fold when its time is over; one log row and one console line an epoch; early stop."""

    def __init__(self, trainer: FoldTrainer) -> None:
        self.trainer, self.evaluation_s, self.last_save = trainer, 0.0, time.monotonic()
        self.next_line = 0.0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        clock = self.trainer.clock
        clock.epoch = float(state.epoch or 0)
        self.trainer.follow()
        if clock.spent() + self.evaluation_s >= clock.budget:
            control.should_training_stop = control.should_epoch_stop = True

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer, start = self.trainer, time.monotonic()
        figures = trainer.score()
        self.evaluation_s = time.monotonic() - start
        loss = float(torch.stack(trainer.losses).mean()) if trainer.losses else float("nan")
        trainer.losses.clear()
        lr, spent = trainer.lr_scheduler.get_last_lr()[0], trainer.clock.spent()
        row = {"fold": trainer.fold, "epoch": round(float(state.epoch or 0)), "step": state.global_step}
        row |= {"train_loss": round(loss, 5), **{key: round(value, 5) for key, value in figures.items()}}
        append_row({**row, "lr": f"{lr:.3g}", "seconds": round(spent, 1)})
        if spent >= self.next_line:  # the log has every epoch; the console about a dozen lines a fold
            self.next_line = spent + trainer.clock.budget / LINES_A_FOLD
            print(
                f"fold {trainer.fold} epoch {row['epoch']}: loss {loss:.3f}, validation loss "
                f"{figures['valid_loss']:.3f} AUROC {figures['auroc']:.3f}, lr {lr:.1g}, "
                f"{spent:.0f} of {trainer.clock.budget:.0f} s",
                flush=True,
            )
        over = trainer.clock.spent() + self.evaluation_s >= trainer.clock.budget
        if over or float(state.epoch or 0) - trainer.best_epoch >= trainer.plan["patience"]:
            control.should_training_stop = True
        # a checkpoint costs little; on the quickest epochs still no more than one every five seconds
        control.should_save = time.monotonic() - self.last_save > 5 or state.global_step == 1
        if control.should_save:
            self.last_save = time.monotonic()


def append_row(row: Mapping[str, Any], file: Path = Path("Logout/log.csv")) -> None:
    """One line of the log; the header first if the file is new."""
    fresh = not file.exists()
    with file.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerow(dict(row))
