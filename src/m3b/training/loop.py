"""The training loop: one network, trained by the clock on one GPU, several, or a processor, and resumed after a kill.

`train_by_clock` is what each task calls. A task says what is trained (`TrainingParts`) and which figure decides which weights are
kept; `TrainingLoop.run` is the loop, with exponential moving average (EMA) of the weights, log, checkpoints and validation.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DataLoaderConfiguration, DistributedDataParallelKwargs, set_seed
from safetensors.torch import load_file, save_file
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, default_collate

import m3b.training.torchvision_ops  # noqa: F401 - before transformers, which imports torchvision if there is one
from m3b.training.clock import Clock
from m3b.training.curves import append_row, format_epoch, select_console_figures
from m3b.training.distributed import (
    barrier,
    broadcast,
    has_unused_parameters,
    is_main,
    rank,
    synchronize_norms,
    world_size,
)
from m3b.training.earlier_weights import load_start_weights
from m3b.training.entry import DivergenceError, InsufficientMemoryError, RestartRequiredError
from m3b.training.folds import TRIAL_PREFIX, count_networks, find_checkpoint, seconds_spent
from m3b.training.interruption import TrainingInterruptedError, is_interrupted
from m3b.training.memory import empty_cache, is_out_of_memory
from m3b.training.optimizers import build_optimizer
from m3b.training.precision import (
    apply_memory_layout,
    autocast,
    compile_in_place,
    device_of,
    half_precision,
    keep_cudnn_algorithms,
    set_gpu_math,
)
from m3b.training.pretrained.backbones import FrozenBackbone
from m3b.training.pretrained.feature_memo import FeatureMemo
from m3b.training.pretrained.frozen_features import RepeatedViews, has_frozen_backbone, prepare_repeatably
from m3b.training.recipe import Batch, Transform, apply_transforms, get_recipe
from m3b.training.sampling import share_order
from m3b.training.step_cost import micro_batch
from m3b.training.threads import ThreadFollower
from m3b.training.time_budget import MAX_SCORING_SHARE, TrainingCosts, describe_planned_steps
from m3b.training.trial_step import to_device

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # read if a network of transformers is built
LOGOUT = Path("Logout")
MIN_CASES_FOR_BEST = 10
"""Validation cases from which on the best figure decides which weights are kept."""
LOSS_CHECK_STEPS = 20
"""Steps between two looks at the losses on a GPU: each look waits for it."""
MAX_WEIGHT = 1e10
"""A larger weight gives no finite output: squares and a few layers exceed what 32-bit floats hold."""
MIN_STEPS_TO_DROP = 4
"""Steps of an epoch from which on its last, smaller batch may be left out."""
CONSOLE_LINES = 10
"""Lines that are printed for a model, about; the log file has every scoring."""
CHECKPOINT_SHARE = 0.02
"""Share of the time that checkpoints may take."""
MIN_CHECKPOINT_PAUSE_S = 5.0
RATE_STEPS = 50
"""Latest steps whose mean time says how many are left."""

Figures = dict[str, float]
Plan = dict[str, Any]


@dataclass
class TrainingParts:
    """What is trained.

    Args:
        model: `model(**batch)` returns {"loss": ...}.
        dataset: torch Dataset of dicts.
        scorer: (model in evaluation mode, device) -> figures of the validation part; higher is better for the one that decides,
            `valid_loss` breaks ties. None: nothing is held out, and the last weights are kept.
        transforms: of a batch on the device before each step (augmentation).
        collate: makes a batch of items; None stacks them.
        groups: (parameters, factor of the learning rate); None for all parameters at one rate.
        keep_last: keep the weights of the end instead of those of the best figure, which is chance on a handful of validation cases
            (fewer than `MIN_CASES_FOR_BEST`). nnU-Net keeps the last ones too.
    """

    model: torch.nn.Module
    dataset: Any
    scorer: Callable[[torch.nn.Module, torch.device], Figures] | None
    transforms: Sequence[Transform] = ()
    collate: Callable[[list[Any]], Batch] | None = None
    groups: list[tuple[list[torch.nn.Parameter], float]] | None = None
    keep_last: bool = False

    def __post_init__(self) -> None:
        self.keep_last = self.keep_last or self.scorer is None

    def repeat_views(self, views: int, seed: int) -> None:
        """Show the same few augmented versions of each case again and again, whose features are computed once."""
        self.dataset = RepeatedViews(self.dataset, views, seed)
        self.transforms = [partial(prepare_repeatably, self.transforms)]


class TrainingLoop:
    """One model in training. Of several processes the first one decides, scores and writes; the others follow it.

    Args:
        folder: below Logout, for checkpoints and the kept weights.
        watch: the figure that decides which weights are kept.
    """

    def __init__(self, plan: Plan, folder: Path, clock: Clock, parts: TrainingParts, watch: str, seed: int) -> None:
        self.plan, self.folder, self.clock, self.parts, self.watch = plan, folder, clock, parts, watch
        self.sampler = share_order(get_recipe().build_sampler(plan, parts.dataset))
        if has_frozen_backbone(plan) and plan["network"].get("feature_views"):
            parts.repeat_views(int(plan["network"]["feature_views"]), int(plan["seed"]))
        self.losses: list[torch.Tensor] = []
        self.checked_losses = 0
        self.best, self.best_epoch = (-math.inf, -math.inf), 0.0
        self.scoring_s, self.saving_s, self.scored_at, self.next_line = 0.0, 0.0, -math.inf, 0.0
        self.step_seconds: deque[float] = deque(maxlen=RATE_STEPS)
        self.agree()
        self.last_save, self.threads = clock.spent(), ThreadFollower(plan)
        self.device = device = device_of(plan)
        apply_memory_layout(parts.model.to(device), plan)
        unused = world_size() > 1 and has_unused_parameters(parts.model, self._first_batch(device))
        parts.model = synchronize_norms(parts.model, device, self._micro_batch(), world_size())
        precision = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(
            half_precision(plan, device) or torch.float32, "no"
        )
        AcceleratorState._reset_state()  # an earlier training of this process may have had another precision
        self.accelerator = Accelerator(
            mixed_precision=precision,
            cpu=device.type == "cpu",
            dataloader_config=DataLoaderConfiguration(
                use_seedable_sampler=True, data_seed=seed, non_blocking=device.type == "cuda"
            ),
            kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=unused)],
        )
        self.average = self.accelerator.prepare_model(copy.deepcopy(parts.model), evaluation_mode=True).eval()
        compile_in_place(parts.model, plan, clock.budget)
        set_seed(seed)
        self.loader = self.accelerator.prepare(self._build_loader())
        optimizer = build_optimizer(parts.model, plan, parts.groups)
        self.model, self.optimizer = self.accelerator.prepare(parts.model, optimizer)
        self.model.train()
        self.schedule = get_recipe().build_schedule(plan)
        self.scheduler = LambdaLR(self.optimizer, lambda _: self.schedule(clock.progress()))
        self.accumulation = max(1, int(plan.get("accumulate") or 1))
        self.epoch_steps = -(-len(self.loader) // self.accumulation)
        self.averaged, self.weights = _float_tensors(self.average), _float_tensors(parts.model)
        if world_size() > 1:  # a checkpoint is resumed by any number of processes
            self.accelerator.register_save_state_pre_hook(self._unwrap_states)
            self.accelerator.register_load_state_pre_hook(self._unwrap_models)
            torch.manual_seed(seed + 1000 * rank() + 1)  # the weights are the same, the augmentation is not

    def compute_features(self) -> None:
        """Compute the features of a frozen network before the clock starts; the networks of all folds share them and their seconds."""
        memo = next((part.memo for part in self.parts.model.modules() if isinstance(part, FrozenBackbone)), None)
        if not isinstance(memo, FeatureMemo) or memo.maps or not isinstance(self.parts.dataset, RepeatedViews):
            return
        start = time.monotonic()
        collate, versions = self.parts.collate or default_collate, self.parts.dataset.list_versions()
        with torch.no_grad():
            while items := list(itertools.islice(versions, self._micro_batch())):
                self.model(**self.prepare_batch(collate(items)))
        is_trial = self.folder.name.startswith(TRIAL_PREFIX)
        self.clock.exclude(time.monotonic() - start, 0.0 if is_trial else 1 / count_networks(self.plan))

    def run(self) -> None:
        """Train to the end of the clock, with a scoring at the end of epochs as far as their share of the time goes."""
        clock = self.clock
        patience = float(self.plan.get("patience") or math.inf)
        for epoch in itertools.count(clock.step // self.epoch_steps):
            began = time.monotonic()
            for batches in self.steps_of(epoch):
                self.train_step(batches)
                clock.step += 1
                clock.epoch = epoch + min(
                    1.0, (clock.step - epoch * self.epoch_steps) * self.accumulation / len(self.loader)
                )
                self.agree()
                self.update_average()
                self.threads.follow()
                if clock.step == 2:  # the first step is slower, since everything is allocated in it
                    self.step_seconds.clear()
                self.step_seconds.append(time.monotonic() - began)
                if clock.is_over(self.scoring_s):
                    break
                if self.is_interrupted or self.is_checkpoint_due():
                    self.save_checkpoint()
                if self.is_interrupted:
                    raise TrainingInterruptedError(f"{self.folder.name} has a checkpoint after step {clock.step}")
                began = time.monotonic()
            self.check_losses(now=True)
            if clock.is_over(self.scoring_s) or self.is_scoring_due():
                self.score_and_report()
            if clock.is_over(self.scoring_s) or clock.epoch - self.best_epoch >= patience:
                return

    def steps_of(self, epoch: int) -> Iterator[list[Batch]]:
        """Yield the batches of each step of an epoch, without the steps that were made before a restart."""
        skipped = self.clock.step - epoch * self.epoch_steps
        loader = self.loader
        if skipped:
            loader = self.accelerator.skip_first_batches(loader, skipped * self.accumulation)
        loader.set_epoch(epoch)
        batches = iter(loader)
        while step := list(itertools.islice(batches, self.accumulation)):
            yield step

    def train_step(self, batches: list[Batch]) -> None:
        """Make one step of the optimizer, on the mean gradient of the batches.

        Raises:
            DivergenceError: a loss is not finite.
            SystemExit: the recipe has no loss.
        """
        for index, batch in enumerate(batches):
            is_last = index == len(batches) - 1
            batch = self.prepare_batch(batch)
            with nullcontext() if is_last else self.accelerator.no_sync(self.model):
                loss = self.model(**batch).get("loss")
                if loss is None:
                    raise SystemExit(
                        "the network gives no loss: build_loss of recipe.py must return a module, not None"
                    )
                self.accelerator.backward(loss / len(batches))
            self.losses.append(loss.detach())
            self.check_losses(now=self.device.type == "cpu")
        if (clip := float(self.plan.get("clip", 1.0))) > 0:
            self.accelerator.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        if not self.accelerator.optimizer_step_was_skipped:
            self.scheduler.step()
        self.optimizer.zero_grad()

    def prepare_batch(self, batch: Batch) -> Batch:
        """Return the batch augmented, with images in the memory layout of the plan."""
        with torch.no_grad():
            batch = apply_transforms(self.parts.transforms, batch)
        if self.plan.get("channels_last") and batch["pixel_values"].ndim == int(self.plan["dims"]) + 2:
            layout = torch.channels_last if int(self.plan["dims"]) == 2 else torch.channels_last_3d
            batch = {**batch, "pixel_values": batch["pixel_values"].contiguous(memory_format=layout)}
        return batch

    def update_average(self) -> None:
        """Move the averaged weights towards the present ones; early in the training they follow faster.

        `torch.optim.swa_utils.AveragedModel` would wait for the GPU in every step, to ask it for the number of steps.
        """
        step = self.clock.step
        decay = min(float(self.plan.get("ema") or 0.0), (1 + step) / (10 + step)) if step > 1 else 0.0
        with torch.no_grad():
            torch._foreach_lerp_(self.averaged, self.weights, 1 - decay)

    def check_losses(self, now: bool = False) -> None:
        """Look at the losses since the last look, if they are many or `now`; a GPU is waited for then.

        Raises:
            DivergenceError: one is not finite.
        """
        unchecked = self.losses[self.checked_losses :]
        if not unchecked or not (now or len(unchecked) >= LOSS_CHECK_STEPS * self.accumulation):
            return
        self.checked_losses = len(self.losses)
        values = torch.stack(unchecked)
        if not bool(torch.isfinite(values).all()):
            loss = next(value for value in values.tolist() if not math.isfinite(value))
            earlier = f", or one of the {len(unchecked)} before" if len(unchecked) > 1 else ""
            raise DivergenceError(f"{self.folder.name}, step {self.clock.step + 1}{earlier}: the loss is {loss}")

    def agree(self) -> None:
        """Let several processes go on with the seconds and figures of the first one, or be interrupted together."""
        self.is_interrupted = is_interrupted()
        if world_size() > 1:
            interrupted = float(self.is_interrupted)
            shared = broadcast([self.clock.measure(), interrupted, self.scoring_s, self.saving_s, self.best_epoch])
            self.clock.set_spent(shared[0])
            self.is_interrupted = bool(shared[1])
            self.scoring_s, self.saving_s, self.best_epoch = shared[2:]

    def is_scoring_due(self) -> bool:
        """Return whether scorings have taken less than their share of the time; with counted steps every epoch is scored."""
        pause = self.scoring_s * (1 - MAX_SCORING_SHARE) / MAX_SCORING_SHARE
        return bool(self.clock.max_steps) or self.clock.spent() - self.scored_at >= pause

    def score_and_report(self) -> None:
        """Score the averaged weights and log the figures, in the first process."""
        start = time.monotonic()
        figures = self.score() if is_main() else {}
        self.scoring_s = time.monotonic() - start
        self.agree()
        self.scored_at = self.clock.spent()
        if is_main():
            self.report(figures)

    def score(self) -> Figures:
        """Return the validation figures of the averaged weights, which are saved if they are the best so far.

        Raises:
            DivergenceError: a weight is not finite, or too large.
        """
        check_weights(self.parts.model.state_dict(), f"{self.folder.name}, step {self.clock.step}")
        for mean, value in zip(self.average.buffers(), self.parts.model.buffers(), strict=True):
            if not value.is_floating_point():  # counters of batches
                mean.copy_(value)
        figures: Figures = {}
        half = autocast(self.plan, self.device) if self.device.type == "cuda" else nullcontext()
        with torch.no_grad(), keep_cudnn_algorithms(), half:
            if self.parts.scorer:
                figures = self.parts.scorer(self.average, self.device)
        watched = figures.get(self.watch, math.nan)
        rating = (round(watched if math.isfinite(watched) else -1.0, 4), -figures.get("valid_loss", 0.0))
        if rating > self.best or self.parts.keep_last or not (self.folder / "best.safetensors").exists():
            self.best, self.best_epoch = rating, self.clock.epoch
            save_weights(self.average, self.folder / "best.safetensors")
        return figures

    def report(self, figures: Figures) -> None:
        """Write a row of the log, and print a line if one is due."""
        clock, name = self.clock, self.folder.name
        loss = float(torch.stack(self.losses).mean()) if self.losses else math.nan
        self.losses.clear()
        self.checked_losses = 0
        lr, spent = self.scheduler.get_last_lr()[-1], clock.spent()
        row = {"fold": name.removeprefix("fold"), "epoch": round(clock.epoch), "step": clock.step}
        row |= {"train_loss": round(loss, 5), **{key: round(value, 5) for key, value in figures.items()}}
        append_row(LOGOUT / "log.csv", {**row, "lr": f"{lr:.3g}", "seconds": round(spent, 1)})
        if spent >= self.next_line:
            self.next_line = spent + clock.budget / CONSOLE_LINES
            parts = (f"{key} {value:.3f}, " for key, value in select_console_figures(figures).items())
            print(
                f"{name} epoch {format_epoch(clock.epoch)}: loss {loss:.3f}, {''.join(parts)}lr {lr:.1g}, "
                f"{spent:.0f} of {clock.budget:.0f} s, about {self.estimate_steps_left()} steps left",
                flush=True,
            )

    def estimate_steps_left(self) -> int:
        """Return the steps that are left by the time of the latest ones and of the latest scoring."""
        costs = TrainingCosts(max(fmean(self.step_seconds or [math.inf]), 1e-6), self.scoring_s)
        timed_steps = costs.count_steps(self.clock.budget - self.clock.spent(), self.epoch_steps)
        return self.clock.count_steps_left(timed_steps, self.epoch_steps)

    def is_checkpoint_due(self) -> bool:
        """Return whether checkpoints have taken less than their share of the time."""
        pause = max(MIN_CHECKPOINT_PAUSE_S, self.saving_s * (1 - CHECKPOINT_SHARE) / CHECKPOINT_SHARE)
        return self.clock.spent() - self.last_save > pause

    def save_checkpoint(self) -> None:
        """Write a checkpoint, of weights that are finite; `complete.json` is written last, then older ones are removed."""
        self.check_losses(now=True)
        start, self.last_save = time.monotonic(), self.clock.spent()
        folder = self.folder / f"checkpoint-{self.clock.step}"
        self.accelerator.save_state(str(folder), safe_serialization=False)  # safetensors drops empty tensors
        barrier()
        if is_main():
            state = {"spent": self.clock.spent(), "best": list(self.best), "best_epoch": self.best_epoch}
            (folder / "complete.json").write_text(json.dumps({**state, "step": self.clock.step}))
            for old in self.folder.glob("checkpoint-*"):
                if old != folder:
                    shutil.rmtree(old, ignore_errors=True)
        self.saving_s = time.monotonic() - start

    def restore_checkpoint(self, folder: Path) -> None:
        """Go on from a checkpoint: weights, averaged weights, optimizer, random numbers, best figure and step."""
        self.accelerator.load_state(str(folder))
        state = json.loads((folder / "complete.json").read_text())
        self.clock.step = int(state["step"])
        self.best, self.best_epoch = tuple(state["best"]), state["best_epoch"]

    def _unwrap_states(self, models: list[torch.nn.Module], states: list[dict[str, Any]], _: str) -> None:
        states[:] = [self.accelerator.unwrap_model(model).state_dict() for model in models]

    def _unwrap_models(self, models: list[torch.nn.Module], _: str) -> None:
        models[:] = [self.accelerator.unwrap_model(model) for model in models]

    def _micro_batch(self) -> int:
        together = world_size()
        return max(1, min(micro_batch(self.plan, together), -(-len(self.sampler) // together)))

    def _build_loader(self) -> DataLoader[Any]:
        cases, batch, workers = len(self.sampler), self._micro_batch(), int(self.plan["workers"])
        step_batches = max(1, int(self.plan.get("accumulate") or 1)) * world_size()
        on_gpu = self.device.type == "cuda"
        return DataLoader(
            self.parts.dataset,
            batch,
            sampler=self.sampler,
            collate_fn=self.parts.collate,
            drop_last=cases >= batch * world_size() and drops_last_batch(cases, batch, step_batches, on_gpu),
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=on_gpu,
        )

    def _first_batch(self, device: torch.device) -> Batch:
        """Return two training cases as a step takes them, on the device."""
        items = [self.parts.dataset[index % len(self.parts.dataset)] for index in range(2)]
        batch = (self.parts.collate or default_collate)(items)
        return self.prepare_batch({key: to_device(value, device) for key, value in batch.items()})


def train_by_clock(
    plan: Plan,
    name: str,
    build_parts: Callable[[Plan], TrainingParts],
    *,
    seconds: float,
    watch: str,
    shrink: Callable[[Plan], bool] | None = None,
    steps: int = 0,
) -> dict[str, Any]:
    """Train one model to the end of its time under Logout/<name>/; best.safetensors and done.json are left there.

    The training goes on from the last checkpoint if there is one. Out of memory: the batch is halved, down to the plan's
    `least_batch` (2), then `shrink(plan)` makes something else smaller and returns whether it could.

    Args:
        build_parts: is called again after the plan was made smaller.
        seconds: of wall time, earlier starts included.
        watch: the figure that decides which weights are kept.
        steps: the training ends after this number of steps if its seconds do not end before; 0: by the seconds alone.

    Returns:
        What done.json holds: epochs, seconds, steps, best_epoch, best.

    Raises:
        DivergenceError, InsufficientMemoryError, RestartRequiredError, TrainingInterruptedError.
    """
    folder = LOGOUT / name
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "smaller.json").exists():  # written by an earlier start, or by the process that trained this fold
        plan |= json.loads((folder / "smaller.json").read_text())
    if (folder / "done.json").exists():
        return dict(json.loads((folder / "done.json").read_text()))
    set_gpu_math(plan)
    seconds, spent = broadcast([seconds, seconds_spent(folder)])
    clock = Clock(
        seconds, int(plan["max_epochs"]), spent, max_steps=int(plan.get("max_steps") or 0), enough_steps=steps
    )
    while True:
        try:
            return _train(plan, folder, clock, build_parts, watch)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or isinstance(error, DivergenceError):
                raise
            change = reduce_memory(plan, shrink)
            if not change:
                raise InsufficientMemoryError(f"batch {micro_batch(plan, world_size())}") from error
        print(f"out of memory: going on with {change}", flush=True)
        empty_cache()
        reduced = {key: plan[key] for key in ("batch", "accumulate", "patch", "size") if key in plan}
        (folder / "smaller.json").write_text(json.dumps(reduced))
        if world_size() > 1:  # the others wait for this one's gradients, and cannot know
            raise RestartRequiredError(f"out of memory: {change}")


def _train(
    plan: Plan, folder: Path, clock: Clock, build_parts: Callable[[Plan], TrainingParts], watch: str
) -> dict[str, Any]:
    seed = int(plan["seed"]) + sum(map(int, filter(str.isdigit, folder.name)))
    set_seed(seed)
    clock.step, clock.epoch = 0, 0.0
    parts, checkpoint = build_parts(plan), find_checkpoint(folder)
    if checkpoint is None and load_start_weights(parts.model, folder):
        print(f"{folder.name}: starts from the weights of an earlier training", flush=True)
    loop = TrainingLoop(plan, folder, clock, parts, watch, seed)
    if checkpoint:
        loop.restore_checkpoint(checkpoint)
        print(f"{folder.name}: going on from {checkpoint.name} after {clock.spent():.0f} s", flush=True)
    loop.compute_features()
    loop.run()
    if is_main() and not (folder / "best.safetensors").exists():
        loop.score()
    epochs, choice = round(clock.epoch, 2), "best"
    if loop.parts.keep_last:
        why = " (too few validation cases to choose an epoch by)" if loop.parts.scorer else ""
        choice = f"kept the last weights{why},"
    figure = f"{watch} {loop.best[0]:.3f}" if loop.parts.scorer else "no case held out,"
    print(
        f"{folder.name}: {choice} {figure} at epoch {format_epoch(loop.best_epoch)} of {format_epoch(epochs)}, "
        f"{clock.step} steps{describe_planned_steps(plan, clock.step)}",
        flush=True,
    )
    done = {"epochs": epochs, "seconds": round(clock.spent() + clock.excluded, 1), "best_epoch": loop.best_epoch}
    done |= {"steps": clock.step, "best": broadcast([loop.best[0]])[0]}
    if is_main():
        (folder / "done.json").write_text(json.dumps(done))
        for old in folder.glob("checkpoint-*"):
            shutil.rmtree(old, ignore_errors=True)
    barrier()
    return done


def reduce_memory(plan: Plan, shrink: Callable[[Plan], bool] | None) -> str:
    """Change the plan to the same step in more parts, or to a smaller input; return what was done, empty if nothing could be."""
    together, least = world_size(), int(plan.get("least_batch", 2))
    cases = micro_batch(plan, together)
    if cases > least:
        half = max(least, cases // 2)
        plan["accumulate"] = math.ceil(math.ceil(int(plan["batch"]) / together) / half)
        return f"batch {half}, {plan['accumulate']} times a step"
    return f"a smaller input, {plan.get('patch') or plan.get('size')}" if shrink and shrink(plan) else ""


def drops_last_batch(cases: int, batch: int, step_batches: int, on_gpu: bool) -> bool:
    """Return whether an epoch leaves out its last, smaller batch.

    It does if that batch is one case, since batch normalisation needs two; on a GPU if an epoch has enough steps, since cuDNN
    searches its algorithms anew for each size (a network of volumes on an H100: five seconds in the first epoch).

    Args:
        step_batches: batches that make a step, of all processes.
    """
    return (cases % batch == 1 and cases > 1) or (on_gpu and cases >= MIN_STEPS_TO_DROP * batch * step_batches)


def check_weights(weights: Mapping[str, torch.Tensor], place: str) -> None:
    """Check that all weights are numbers that a network can work with.

    Raises:
        DivergenceError: the training has diverged; the message names a tensor.
    """
    for name, value in weights.items():
        if value.is_floating_point() and value.numel() and not float(value.detach().abs().max()) <= MAX_WEIGHT:
            raise DivergenceError(f"{place}: the loss is no number any more, the weights of {name} have diverged")


def load_best(model: torch.nn.Module, name: str, device: torch.device) -> torch.nn.Module:
    """Return the model with the kept weights of Logout/<name>, on the device, in evaluation mode."""
    model.load_state_dict(load_file(str(LOGOUT / name / "best.safetensors")))
    return model.to(device).eval()


def save_weights(model: torch.nn.Module, file: Path) -> None:
    """Write the weights as safetensors, in place in one move."""
    temporary = file.with_suffix(".tmp")
    save_file({k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}, temporary)
    os.replace(temporary, file)


def _float_tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the weights and running statistics of a model, without counters."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    return [value.detach() for value in tensors if value.is_floating_point()]
