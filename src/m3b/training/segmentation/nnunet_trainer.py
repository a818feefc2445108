"""nnU-Net's trainer under a clock: as many epochs as the seconds allow, poly learning rate fitted to them, resumable."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
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
from m3b.training.segmentation.nnunet_presets import PLANNERS, mirrored

EPOCHS = 60
"""Into so many parts the time is divided; after each the pseudo Dice is measured and a checkpoint written."""


UNTRAINED = (
    "nnU-Net had too little time, and nothing is trained that could be used. What it prepared and learnt is kept: "
    "`train.py --resume` goes on, with more --minutes if there are any; `plan.py --set engine=trainer` needs less."
)


class TimedTrainer(nnUNetTrainer):
    """nnU-Net's recipe unchanged but for its length. The constructor's argument names are inspected by nnU-Net."""

    def __init__(self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: torch.device) -> None:
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.clock: Clock = Clock(1.0, 10**9)
        self.folder, self.step, self.epoch_s = Path(), 0, 0.0
        self.classes: list[str] = []

    def print_to_log_file(self, *args: Any, also_print_to_console: bool = True, add_timestamp: bool = True) -> None:
        """Into nnU-Net's log file only."""
        super().print_to_log_file(*args, also_print_to_console=False, add_timestamp=add_timestamp)

    def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self) -> Any:
        """nnU-Net's, without the mirror of left and right where a class tells a side, in training and in prediction."""
        rotation, dummy, size, axes = super().configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        allowed = mirrored(axes, self.plans_manager.transpose_forward, self.classes)
        self.inference_allowed_mirroring_axes = allowed
        return rotation, dummy, size, allowed

    def plot_network_architecture(self) -> None:
        """Needs graphviz, and nobody looks at it."""

    def _save_debug_information(self) -> None:
        """Holds paths of this machine."""

    def run_clocked(self) -> None:
        """Train until the clock says so; LR is nnU-Net's poly schedule over the share of time that is used."""
        self.on_train_start()
        self._restore()
        while not self.clock.is_over() and self.step < self.most_steps:
            self.network.train()
            losses, start = [], time.monotonic()
            while time.monotonic() - start < max(self.epoch_s, 1e-3) and not self._over():
                losses.append(self._one_step())
            dice, loss = self._validate()
            self.current_epoch += 1
            self._report(float(np.mean(losses)) if losses else math.nan, loss, dice)
            self._save()

    most_steps = 10**9

    def _over(self) -> bool:
        return self.clock.is_over() or self.step >= self.most_steps

    def _one_step(self) -> float:
        used = max(self.clock.progress(), self.step / self.most_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.initial_lr * (1 - min(used, 0.999)) ** 0.9
        loss = float(self.train_step(next(self.dataloader_train))["loss"])
        self.step += 1
        if not math.isfinite(loss):
            raise DivergenceError(f"nnU-Net, step {self.step}: the loss is {loss}")
        return loss

    def _validate(self) -> tuple[float, float]:
        """Pseudo Dice and loss of a few random validation patches, as nnU-Net measures them."""
        self.network.eval()
        with torch.no_grad():
            outputs = [
                self.validation_step(next(self.dataloader_val)) for _ in range(self.num_val_iterations_per_epoch)
            ]
        hits, wrong, missed = (np.sum([o[k] for o in outputs], axis=0) for k in ("tp_hard", "fp_hard", "fn_hard"))
        total = 2 * hits + wrong + missed
        dice = [2 * h / t for h, t in zip(hits, total, strict=True) if t > 0]
        return float(np.mean(dice)) if dice else 0.0, float(np.mean([o["loss"] for o in outputs]))

    def _report(self, train: float, valid: float, dice: float) -> None:
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
        """Everything that a resumed training needs, in place in one move."""
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
        print(f"going on from step {self.step} after {state['spent']:.0f} s", flush=True)


def run(place: Path, plan: dict[str, Any], seconds: float, folder: Path, reserve: float) -> dict[str, Any]:
    """Train (or go on), export best.safetensors and nnunet.json into `folder`; return what done.json holds.

    Args:
        reserve: seconds of these that are for the prediction of the validation cases.
    """
    done_file, checkpoint = folder / "done.json", folder / "checkpoint.pt"
    if done_file.exists():
        return dict(json.loads(done_file.read_text()))
    spent = float(torch.load(checkpoint, weights_only=True)["spent"]) if checkpoint.exists() else 0.0
    if seconds <= 0 and not spent:
        raise SystemExit(UNTRAINED)
    torch.backends.cudnn.benchmark = not plan.get("max_steps")  # nnU-Net sets this in its command, not in its trainer
    trainer = make_trainer(place, plan)
    trainer.clock, trainer.folder = Clock(seconds - reserve + spent, 10**9, spent), folder
    trainer.epoch_s = (seconds + spent) / EPOCHS
    trainer.num_val_iterations_per_epoch = 4
    trainer.most_steps = int(plan.get("max_steps") or 10**9)
    try:
        trainer.run_clocked()
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise InsufficientMemoryError("nnU-Net's own patch; engine=trainer makes it smaller") from error
    finally:
        end_processes([trainer.dataloader_train, trainer.dataloader_val])
    if trainer.step < (1 if plan.get("max_steps") else MIN_STEPS):
        raise SystemExit(f"{UNTRAINED} (steps made: {trainer.step}, at least {MIN_STEPS} are needed)")
    export(trainer, plan, folder)
    done = {"epochs": trainer.current_epoch, "seconds": round(trainer.clock.spent(), 1), "steps": trainer.step}
    done["best_epoch"] = trainer.current_epoch
    done_file.write_text(json.dumps(done))
    checkpoint.unlink(missing_ok=True)
    return done


def end_processes(loaders: Sequence[Any]) -> None:
    """End the worker processes of nnU-Net's data loaders, as its `on_train_end` does."""
    for loader in loaders:
        if isinstance(loader, NonDetMultiThreadedAugmenter | MultiThreadedAugmenter):
            loader._finish()


def make_trainer(place: Path, plan: dict[str, Any]) -> TimedTrainer:
    from m3b.training.segmentation.nnunet import configuration
    from m3b.training.segmentation.nnunet_data import NAME

    folder = place / "preprocessed" / NAME
    plans = json.loads((folder / f"{PLANNERS[plan['planner']][1]}.json").read_text())
    plans["continue_training"] = False
    described = json.loads((folder / "dataset.json").read_text())
    device = torch.device("cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu")
    torch.manual_seed(int(plan["seed"]))
    trainer = TimedTrainer(plans, configuration(plan), 0, described, device)
    trainer.classes = [str(name) for name in plan["classes"]]
    return trainer


def export(trainer: TimedTrainer, plan: dict[str, Any], folder: Path) -> None:
    """The weights, and all that prediction needs to know, as plain JSON."""
    network = getattr(trainer.network, "_orig_mod", trainer.network)
    now, plans = trainer.configuration_manager, trainer.plans_manager
    save_weights(_Unshared(network), folder / "best.safetensors")
    config = {
        "architecture": now.configuration["architecture"],
        "channels": trainer.num_input_channels,
        "outputs": trainer.label_manager.num_segmentation_heads,
        "dims": int(plan["dims"]),
        "patch": list(now.patch_size),
        "spacing": list(now.spacing),
        "extent": plan["extent"],
        "thickness": float((plan["spacing"] or [1.0, 1.0, 1.0])[2]) if int(plan["dims"]) == 3 else 1.0,
        "transpose_forward": list(plans.transpose_forward),
        "transpose_backward": list(plans.transpose_backward),
        "normalization": list(now.normalization_schemes),
        "use_mask": list(now.use_mask_for_norm),
        "intensities": plans.foreground_intensity_properties_per_channel,
        "regions": bool(trainer.label_manager.has_regions),
        "overlap": bool(plan["overlap"]),
        "mirror": list(trainer.inference_allowed_mirroring_axes or []),
    }
    (folder / "nnunet.json").write_text(json.dumps(config, indent=1))


class _Unshared(torch.nn.Module):
    """A network's weights as `load_nnunet` wants them: every name, shared tensors copied (save_weights copies)."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self._weights = dict(network.state_dict())

    def state_dict(self, *_: Any, **__: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return self._weights
