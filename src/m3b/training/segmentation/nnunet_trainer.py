"""nnU-Net's trainer with a time limit: as many epochs as the seconds allow, poly learning rate fitted to them, resumable."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter
from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from m3b.training.clock import MIN_STEPS, Clock
from m3b.training.curves import append_row
from m3b.training.entry import DivergenceError, InsufficientMemoryError
from m3b.training.loop import LOGOUT, save_weights
from m3b.training.recipe import get_recipe
from m3b.training.segmentation.nnunet_presets import PLANNERS, allowed_mirror_axes
from m3b.training.segmentation.recipe import poly_decay

EPOCH_COUNT = 60
"""Epochs into which the time is divided; after each the pseudo Dice is measured and a checkpoint is written."""


UNTRAINED_MESSAGE = (
    "nnU-Net had too little time to train a usable network. Its preprocessed data and checkpoint are kept: continue with "
    "`train.py --resume` and more --minutes, or use `plan.py --set engine=trainer`, which needs less time."
)


class TimedTrainer(nnUNetTrainer):
    """nnU-Net's trainer, unchanged except for its length. nnU-Net inspects the argument names of the constructor."""

    def __init__(
        self, plans: dict[str, Any], configuration: str, fold: int, dataset_json: dict[str, Any], device: torch.device
    ) -> None:
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.clock: Clock = Clock(1.0, 10**9)
        self.folder, self.step, self.epoch_s = Path(), 0, 0.0
        self.classes: list[str] = []
        self.schedule: Callable[[float], float] = poly_decay

    def print_to_log_file(self, *args: Any, also_print_to_console: bool = True, add_timestamp: bool = True) -> None:
        """Write to nnU-Net's log file only."""
        super().print_to_log_file(*args, also_print_to_console=False, add_timestamp=add_timestamp)

    def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self) -> Any:
        """Return nnU-Net's settings, without left-right mirroring if a class tells the side, in training and prediction."""
        rotation, dummy, size, axes = super().configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        allowed = allowed_mirror_axes(axes, self.plans_manager.transpose_forward, self.classes)
        self.inference_allowed_mirroring_axes = allowed
        return rotation, dummy, size, allowed

    def plot_network_architecture(self) -> None:
        """Do nothing: the plot needs graphviz."""

    def _save_debug_information(self) -> None:
        """Do nothing: the file contains paths of this machine."""

    def train_until_deadline(self) -> None:
        """Train until the time is used up; the learning rate follows the schedule over the used share of time."""
        self.on_train_start()
        self._restore()
        while not self.clock.is_over() and self.step < self.max_steps:
            self.network.train()
            losses, start = [], time.monotonic()
            while time.monotonic() - start < max(self.epoch_s, 1e-3) and not self._is_over():
                losses.append(self._train_step())
            dice, loss = self._validate()
            self.current_epoch += 1
            self._log_epoch(float(np.mean(losses)) if losses else math.nan, loss, dice)
            self._save()

    max_steps = 10**9

    def _is_over(self) -> bool:
        return self.clock.is_over() or self.step >= self.max_steps

    def _train_step(self) -> float:
        progress = max(self.clock.progress(), self.step / self.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.initial_lr * self.schedule(progress)
        loss = float(self.train_step(next(self.dataloader_train))["loss"])
        self.step += 1
        if not math.isfinite(loss):
            raise DivergenceError(f"nnU-Net, step {self.step}: the loss is {loss}")
        return loss

    def _validate(self) -> tuple[float, float]:
        """Return pseudo Dice and loss of a few random validation patches, as nnU-Net measures them."""
        self.network.eval()
        with torch.no_grad():
            outputs = [
                self.validation_step(next(self.dataloader_val)) for _ in range(self.num_val_iterations_per_epoch)
            ]
        hits, wrong, missed = (np.sum([o[k] for o in outputs], axis=0) for k in ("tp_hard", "fp_hard", "fn_hard"))
        total = 2 * hits + wrong + missed
        dice = [2 * h / t for h, t in zip(hits, total, strict=True) if t > 0]
        return float(np.mean(dice)) if dice else 0.0, float(np.mean([o["loss"] for o in outputs]))

    def _log_epoch(self, train: float, valid: float, dice: float) -> None:
        spent, lr = self.clock.spent(), self.optimizer.param_groups[0]["lr"]
        row = {"fold": 0, "epoch": self.current_epoch, "step": self.step, "train_loss": round(train, 5)}
        row |= {"valid_loss": round(valid, 5), "pseudo_dice": round(dice, 5)}
        append_row(LOGOUT / "log.csv", {**row, "lr": f"{lr:.3g}", "seconds": round(spent, 1)})
        print(
            f"nnU-Net epoch {self.current_epoch}: step {self.step}, loss {train:.3f}, validation loss {valid:.3f}, "
            f"pseudo Dice {dice:.3f}, lr {lr:.1g}, {spent:.0f} of {self.clock.budget:.0f} s",
            flush=True,
        )

    def _save(self) -> None:
        """Write the state that a resumed training needs, in one atomic move."""
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.grad_scaler.state_dict() if self.grad_scaler else None,
            "spent": self.clock.spent(),
            "step": self.step,
            "epoch": self.current_epoch,
        }
        torch.save(state, self.folder / "checkpoint.tmp")
        os.replace(self.folder / "checkpoint.tmp", self.folder / "checkpoint.pt")

    def _restore(self) -> None:
        file = self.folder / "checkpoint.pt"
        if not file.exists():
            return
        state = torch.load(file, map_location=self.device, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.grad_scaler and state["scaler"]:
            self.grad_scaler.load_state_dict(state["scaler"])
        self.step, self.current_epoch = int(state["step"]), int(state["epoch"])
        print(f"continuing from step {self.step} after {state['spent']:.0f} s", flush=True)


def train_timed(
    dataset_folder: Path, plan: dict[str, Any], seconds: float, folder: Path, reserve: float
) -> dict[str, Any]:
    """Train (or continue), export best.safetensors and nnunet.json into `folder`; return the content of done.json.

    Args:
        reserve: seconds of `seconds` that are reserved for predicting the validation cases.
    """
    done_file, checkpoint = folder / "done.json", folder / "checkpoint.pt"
    if done_file.exists():
        return dict(json.loads(done_file.read_text()))
    spent = float(torch.load(checkpoint, weights_only=True)["spent"]) if checkpoint.exists() else 0.0
    if seconds <= 0 and not spent:
        raise SystemExit(UNTRAINED_MESSAGE)
    torch.backends.cudnn.benchmark = not plan.get("max_steps")  # nnU-Net sets this in its command, not in its trainer
    trainer = make_trainer(dataset_folder, plan)
    trainer.clock, trainer.folder = Clock(seconds - reserve + spent, 10**9, spent), folder
    trainer.epoch_s = (seconds + spent) / EPOCH_COUNT
    trainer.num_val_iterations_per_epoch = 4
    trainer.max_steps = int(plan.get("max_steps") or 10**9)
    try:
        trainer.train_until_deadline()
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise InsufficientMemoryError("the patch of nnU-Net; engine=trainer makes it smaller") from error
    finally:
        end_worker_processes([trainer.dataloader_train, trainer.dataloader_val])
    if trainer.step < (1 if plan.get("max_steps") else MIN_STEPS):
        raise SystemExit(f"{UNTRAINED_MESSAGE} (steps: {trainer.step}, required: {MIN_STEPS})")
    export_weights(trainer, plan, folder)
    training_record = {
        "epochs": trainer.current_epoch,
        "seconds": round(trainer.clock.spent(), 1),
        "steps": trainer.step,
    }
    training_record["best_epoch"] = trainer.current_epoch
    done_file.write_text(json.dumps(training_record))
    checkpoint.unlink(missing_ok=True)
    return training_record


def end_worker_processes(loaders: Sequence[Any]) -> None:
    """End the worker processes of nnU-Net's data loaders, as its `on_train_end` does."""
    for loader in loaders:
        if isinstance(loader, NonDetMultiThreadedAugmenter | MultiThreadedAugmenter):
            loader._finish()


def make_trainer(dataset_folder: Path, plan: dict[str, Any]) -> TimedTrainer:
    """Return nnU-Net's trainer for the preprocessed data set."""
    from m3b.training.segmentation.nnunet_data import DATASET_NAME
    from m3b.training.segmentation.nnunet_presets import configuration_name

    folder = dataset_folder / "preprocessed" / DATASET_NAME
    plans = json.loads((folder / f"{PLANNERS[plan['planner']][1]}.json").read_text())
    plans["continue_training"] = False
    dataset_json = json.loads((folder / "dataset.json").read_text())
    device = torch.device("cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu")
    torch.manual_seed(int(plan["seed"]))
    trainer = TimedTrainer(plans, configuration_name(plan), 0, dataset_json, device)
    trainer.classes = [str(name) for name in plan["classes"]]
    trainer.schedule = get_recipe().build_schedule(plan)
    return trainer


def export_weights(trainer: TimedTrainer, plan: dict[str, Any], folder: Path) -> None:
    """Write the weights, and the configuration for prediction as JSON."""
    network = getattr(trainer.network, "_orig_mod", trainer.network)
    configuration, plans = trainer.configuration_manager, trainer.plans_manager
    save_weights(_AllWeights(network), folder / "best.safetensors")
    config = {
        "architecture": configuration.configuration["architecture"],
        "channels": trainer.num_input_channels,
        "outputs": trainer.label_manager.num_segmentation_heads,
        "dims": int(plan["dims"]),
        "patch": list(configuration.patch_size),
        "spacing": list(configuration.spacing),
        "extent": plan["extent"],
        "thickness": float((plan["spacing"] or [1.0, 1.0, 1.0])[2]) if int(plan["dims"]) == 3 else 1.0,
        "transpose_forward": list(plans.transpose_forward),
        "transpose_backward": list(plans.transpose_backward),
        "normalization": list(configuration.normalization_schemes),
        "use_mask": list(configuration.use_mask_for_norm),
        "intensities": plans.foreground_intensity_properties_per_channel,
        "regions": bool(trainer.label_manager.has_regions),
        "overlap": bool(plan["overlap"]),
        "mirror": list(trainer.inference_allowed_mirroring_axes or []),
    }
    (folder / "nnunet.json").write_text(json.dumps(config, indent=1))


class _AllWeights(torch.nn.Module):
    """State dict as `load_nnunet` expects it: every name, shared tensors copied (by save_weights)."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self._weights = dict(network.state_dict())

    def state_dict(self, *_: Any, **__: Any) -> dict[str, torch.Tensor]:
        return self._weights
