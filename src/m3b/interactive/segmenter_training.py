"""Train the small promptable network on labelled images, with prompts simulated from the truth.

Each sample is prompted as in use: a jittered box or a first click, then up to three corrective clicks on the network's
own errors, computed without gradients (iterative training as in RITM, arXiv 2102.06583); the loss is taken at the last
prompt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from m3b.errors import DataError, UsageError
from m3b.interactive.segmenter import BoxPrompt, Point
from m3b.interactive.segmenters.promptnet import MODEL_TYPE, build_network, fit_size, make_image_input, make_prompt_maps
from m3b.interactive.simulated_user import find_next_click, make_true_box
from m3b.interactive.targets import Target

MIN_TARGETS = 8
MAX_CORRECTIONS = 3
WARM_UP_SHARE = 0.05


@dataclass(frozen=True)
class SegmenterRecipe:
    """Training settings.

    Args:
        minutes: training time; the schedule is fitted to it.
        steps: exact number of steps instead of minutes.
        size: side of the network's input in pixels.
        widths: channels a level.
    """

    minutes: float = 10.0
    steps: int | None = None
    size: int = 128
    widths: tuple[int, ...] = (16, 32, 64, 96)
    batch: int = 8
    lr: float = 2e-3
    jitter: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is None and not self.minutes > 0:
            raise UsageError(f"Training needs more than {self.minutes:g} min.")
        if self.batch < 1 or self.lr <= 0 or (self.steps is not None and self.steps < 1):
            raise UsageError("batch and steps must be at least 1, and lr above 0.")


@dataclass(frozen=True)
class Sample:
    """A target as the network sees it: (3, S, S) image, (S, S) truth, and (S, S) whether a pixel is labelled: in the image."""

    image: Any
    truth: np.ndarray
    is_labelled: np.ndarray


def prepare_samples(targets: Sequence[Target], size: int) -> list[Sample]:
    """Scale targets to the square input of the network.

    Raises:
        DataError: there are too few to train on.
    """
    from PIL import Image

    samples = []
    for target in targets:
        height, width = fit_size(target.truth.shape, size)
        labelled = np.ones(target.truth.shape, bool) if target.ignored is None else ~target.ignored
        truth, is_labelled = np.zeros((2, size, size), bool)
        for mask, square in ((target.truth, truth), (labelled, is_labelled)):
            resized = Image.fromarray(mask.astype(np.uint8) * 255).resize((width, height))
            square[:height, :width] = np.array(resized) > 127
        if truth.any():
            samples.append(Sample(make_image_input(target.image, size), truth, is_labelled | truth))
    if len(samples) < MIN_TARGETS:
        raise DataError(f"{len(samples)} targets are too few to train a segmenter; at least {MIN_TARGETS} are needed.")
    return samples


def train_segmenter(
    targets: Sequence[Target], out: Path, recipe: SegmenterRecipe, on_message: Callable[[str], None] = lambda text: None
) -> Path:
    """Train and write a segmenter folder (`config.json`, `model.safetensors`), which `open_segmenter` opens.

    Raises:
        UsageError: the folder is not empty, or a setting is out of range.
        DataError: there are too few targets, or the training diverged.
    """
    import torch
    from safetensors.torch import save_file

    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty. Name another folder.")
    config = {"model_type": MODEL_TYPE, "size": recipe.size, "widths": list(recipe.widths), "recipe": asdict(recipe)}
    torch.manual_seed(recipe.seed)
    network = build_network(config)
    samples = prepare_samples(targets, recipe.size)
    steps, loss = _run_training(network, samples, recipe, on_message)
    config["trained"] = {"targets": len(samples), "steps": steps, "loss": round(loss, 5)}
    out.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: weight.contiguous().cpu() for name, weight in network.state_dict().items()}, out / "model.safetensors"
    )
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return out


def _run_training(
    network: Any, samples: Sequence[Sample], recipe: SegmenterRecipe, on_message: Callable[[str], None]
) -> tuple[int, float]:
    """Train in place; return the number of steps and the mean loss of the last of them."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    network.to(device).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=recipe.lr, weight_decay=1e-3)
    rng, started, step, losses = np.random.default_rng(recipe.seed), time.monotonic(), 0, [1.0]
    progress, reported = 0.0, 0.0
    while progress < 1:
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr * _learning_rate_factor(progress)
        batch = [samples[index] for index in rng.integers(0, len(samples), recipe.batch)]
        inputs, truth, labelled_area = _simulate_prompts(network, batch, recipe, rng, device)
        loss = _compute_loss(network(inputs), truth, labelled_area)
        if not torch.isfinite(loss):
            raise DataError(f"The training diverged at step {step}: the loss is not finite. Lower lr ({recipe.lr:g}).")
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        step += 1
        losses = [*losses[-49:], float(loss.detach())]
        elapsed_share = (time.monotonic() - started) / (60 * recipe.minutes)
        progress = step / recipe.steps if recipe.steps is not None else elapsed_share
        if progress - reported >= 0.1:
            reported = progress
            on_message(f"step {step}, {progress:.0%}: loss {np.mean(losses):.4f}")
    network.cpu().eval()
    return step, float(np.mean(losses))


def _learning_rate_factor(progress: float) -> float:
    """Return the factor of a linear warm-up followed by a half cosine to zero."""
    if progress < WARM_UP_SHARE:
        return 0.1 + 0.9 * progress / WARM_UP_SHARE
    return 0.5 * (1 + float(np.cos(np.pi * min(1.0, (progress - WARM_UP_SHARE) / (1 - WARM_UP_SHARE)))))


def _simulate_prompts(
    network: Any, batch: Sequence[Sample], recipe: SegmenterRecipe, rng: np.random.Generator, device: str
) -> Any:
    """Return inputs as in some turn of an episode, the truths, and the labelled area of the square."""
    import torch

    size = recipe.size
    augmented = [_augment(sample, rng) for sample in batch]
    truths = [truth for _, truth, _ in augmented]
    boxes, points = _sample_first_prompts(truths, recipe, rng)
    images = torch.stack([image for image, _, _ in augmented])
    previous_masks = torch.zeros(len(batch), 1, size, size)
    for _ in range(int(rng.integers(0, MAX_CORRECTIONS + 1))):
        with torch.no_grad():
            probabilities = (
                network(_stack_inputs(images, boxes, points, previous_masks, size).to(device)).sigmoid().cpu()
            )
        previous_masks = probabilities
        for index, truth in enumerate(truths):
            mask = (probabilities[index, 0] > 0.5).numpy() & (augmented[index][2] > 0)
            click = find_next_click(mask, truth, points[index])
            points[index] = [*points[index], click] if click is not None else points[index]
    inputs = _stack_inputs(images, boxes, points, previous_masks, size).to(device)
    truth = torch.from_numpy(np.stack(truths)[:, None].astype(np.float32)).to(device)
    labelled_area = torch.stack([torch.from_numpy(area) for _, _, area in augmented])[:, None].to(device)
    return inputs, truth, labelled_area


def _stack_inputs(
    images: Any, boxes: Sequence[list[BoxPrompt]], points: Sequence[list[Point]], previous_masks: Any, size: int
) -> Any:
    import torch

    maps = [make_prompt_maps(box, point, (size, size), size) for box, point in zip(boxes, points, strict=True)]
    return torch.cat([images, torch.stack(maps), previous_masks], dim=1)


def _sample_first_prompts(
    truths: Sequence[np.ndarray], recipe: SegmenterRecipe, rng: np.random.Generator
) -> tuple[list[list[BoxPrompt]], list[list[Point]]]:
    boxes: list[list[BoxPrompt]] = []
    points: list[list[Point]] = []
    for truth in truths:
        with_box = rng.random() < 0.6
        click = None if with_box else find_next_click(None, truth)
        boxes.append([make_true_box(truth, recipe.jitter * rng.random(), rng)] if with_box else [])
        points.append([] if click is None else [click])
    return boxes, points


def _augment(sample: Sample, rng: np.random.Generator) -> tuple[Any, np.ndarray, np.ndarray]:
    """Apply flips, quarter turns, brightness and contrast; the labelled area of the square turns with the image."""
    import torch

    turns, flip = int(rng.integers(0, 4)), bool(rng.integers(0, 2))
    image = sample.image * float(rng.uniform(0.8, 1.2)) + float(rng.uniform(-0.15, 0.15))
    image = torch.rot90(image, turns, (1, 2))
    truth, labelled_area = np.rot90(sample.truth, turns), np.rot90(sample.is_labelled, turns)
    if flip:
        image, truth, labelled_area = torch.flip(image, (2,)), truth[:, ::-1], labelled_area[:, ::-1]
    return image, np.ascontiguousarray(truth), np.ascontiguousarray(labelled_area, np.float32)


def _compute_loss(logits: Any, truth: Any, labelled_area: Any) -> Any:
    """Return binary cross-entropy plus soft Dice loss, over the labelled area of the square."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    entropies = binary_cross_entropy_with_logits(logits, truth, reduction="none") * labelled_area
    entropy = entropies.sum() / labelled_area.sum()
    probability = logits.sigmoid() * labelled_area
    intersection = (probability * truth).sum(dim=(1, 2, 3))
    dice = (2 * intersection + 1) / (probability.sum(dim=(1, 2, 3)) + truth.sum(dim=(1, 2, 3)) + 1)
    return entropy + 1 - dice.mean()
