"""What a training does besides steps: it ends when its time is over, is scored, logged and kept; several processes as one."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from m3b.training.curves import append_row, number, telling
from m3b.training.distributed import broadcast, is_main, rank, world_size
from m3b.training.threads import Threads
from m3b.training.time_budget import SCORING_SHARE

if TYPE_CHECKING:
    from m3b.training.trainer import ClockTrainer

LOGOUT = Path("Logout")
LINES = 10
"""About so many lines are printed a model; the log file has them all."""
SAVING_SHARE = 0.02
"""Checkpoints may take so much of the time; no more than one every `LEAST_PAUSE` seconds."""
LEAST_PAUSE = 5.0

Figures = dict[str, float]


class ByTheClock(TrainerCallback):
    """Ends the training when its time is over; one log row a scoring, a few console lines; early stop.

    Of several processes the first one decides, scores and writes; the others learn its decisions at the end of each step.
    """

    def __init__(self, trainer: ClockTrainer) -> None:
        self.trainer, self.scoring_s, self.last_save = trainer, 0.0, trainer.clock.spent()
        self.next_line, self.scored_at = 0.0, -math.inf
        self.threads = Threads(trainer.plan)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if world_size() > 1:  # the weights are the same, the patches and their changes are not
            torch.manual_seed(args.seed + 1000 * rank() + 1)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        clock = self.trainer.clock
        clock.epoch, clock.step = float(state.epoch or 0), state.global_step
        self.tick()
        self.trainer.follow()
        self.threads.follow()
        if clock.over(self.scoring_s):
            control.should_training_stop = control.should_epoch_stop = True
        elif self.save_is_due():
            self.save(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer, clock = self.trainer, self.trainer.clock
        trainer.look_at_losses(now=True)
        last = clock.over(self.scoring_s) or float(state.epoch or 0) >= clock.max_epochs
        due = clock.max_steps or clock.spent() - self.scored_at >= self.scoring_s * (1 - SCORING_SHARE) / SCORING_SHARE
        if last or due:
            start = time.monotonic()
            figures = trainer.score() if is_main() else {}
            self.scoring_s = time.monotonic() - start
            self.tick()
            self.scored_at = clock.spent()
            if is_main():
                self.report(state, figures)
        patience = float(trainer.plan.get("patience") or math.inf)
        if clock.over(self.scoring_s) or float(state.epoch or 0) - trainer.best_epoch >= patience:
            control.should_training_stop = True

    def save_is_due(self) -> bool:
        """A checkpoint costs little, but after every step it would cost much: it gets a share of the time."""
        pause = max(LEAST_PAUSE, self.trainer.saving_s * (1 - SAVING_SHARE) / SAVING_SHARE)
        return self.trainer.clock.spent() - self.last_save > pause

    def save(self, control: TrainerControl) -> None:
        """Trainer writes a checkpoint after this step, of weights that are finite."""
        self.trainer.look_at_losses(now=True)
        control.should_save, self.last_save = True, self.trainer.clock.spent()

    def tick(self) -> None:
        """Of several processes, all go on with the first one's seconds and figures."""
        if world_size() < 2:
            return
        trainer = self.trainer
        said = [0.0, self.scoring_s, trainer.saving_s, trainer.best_epoch]

        def seconds(own: float) -> float:
            said[:] = broadcast([own, *said[1:]])
            return said[0]

        trainer.clock.tick(seconds)
        self.scoring_s, trainer.saving_s, trainer.best_epoch = said[1:]

    def report(self, state: TrainerState, figures: Figures) -> None:
        """A row of the log, and a line for people where one is due."""
        trainer, clock = self.trainer, self.trainer.clock
        loss = trainer.mean_loss()
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
