"""Weights & Biases: files of an offline run in the run folder, which `wandb sync` can send; WANDB_MODE=online sends at once."""

from __future__ import annotations

import os
from collections.abc import Mapping

import wandb

from m3b.loggers.base import LoggedRun, ParameterValue

PROJECT = "m3b"
"""Project of the runs unless WANDB_PROJECT names another one."""


class WandbLogger:
    """Writes a run of Weights & Biases without facts on machine, user, code and terminal."""

    def __init__(self, run: LoggedRun) -> None:
        run.store.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, disable_job_creation=True, save_code=False, host="-",
            username="-", email="-", program="m3b", x_disable_meta=True, x_disable_stats=True, x_disable_machine_info=True,
            x_save_requirements=False,
        )  # fmt: skip
        opened = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT, name=run.id, id=run.key or None, dir=str(run.store),
            resume="allow" if run.key else None, mode=os.environ.get("WANDB_MODE") or "offline", reinit="create_new",
            settings=settings,
        )  # fmt: skip
        self._run, self.key = opened, str(opened.id)
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        self._run.config.update(dict(parameters), allow_val_change=True)

    def log_figures(self, figures: Mapping[str, float], step: int, at: float) -> None:
        """Log figures over an axis of their own: the counts of several folds go back and forth."""
        self._run.log({**figures, "step": step, "at": at})

    def set_tags(self, tags: Mapping[str, str]) -> None:
        self._run.config.update({f"m3b.{name}": text for name, text in tags.items()}, allow_val_change=True)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status in ("completed", "below_range") else 1)
