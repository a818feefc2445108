"""What a model is worth on validation cases: Dice and lesion F1 of masks, average precision of boxes, image AUROC.

`Scorer` is asked during the training, on as many cases as fit into a small share of the time; `final_selection` goes through
all of them at the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from m3b.training.detection.boxes import average_precision, froc, image_score, rank_images
from m3b.training.detection.dataset import Patches, collate
from m3b.training.detection.inference import find_boxes, mask_probabilities
from m3b.training.detection.plan_cost import PATCHES
from m3b.training.lesions import components, dice, lesion_counts, lesion_f1, match_numbered, mean_figure
from m3b.training.ranking_metrics import auroc
from m3b.training.step_cost import micro_batch

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MIN_SIZES = (1, 3, 6, 12, 25, 50, 100, 200)
SURE = 5
"""Validation cases with a class from which on its own threshold is chosen on them."""


class Scorer:
    """Validation figures during the training; the first call finds out how many cases the seconds suffice for."""

    def __init__(self, plan: Mapping[str, Any], valid: Patches, seconds: float) -> None:
        self.plan, self.valid, self.seconds = plan, valid, seconds
        rng = np.random.default_rng(0)
        ill = [int(row) for row in valid.rows if valid.cases.counts[int(row)].sum() > 0]
        rest = [int(row) for row in valid.rows if valid.cases.counts[int(row)].sum() == 0]
        rng.shuffle(ill)
        rng.shuffle(rest)
        step = max(1, round(len(ill) / max(1, len(rest))))
        self.rows = [row for k, one in enumerate(ill) for row in (one, *rest[k // step : k // step + (k % step == 0)])]
        self.rows = self.rows or rest
        self.limit = 0

    def __call__(self, model: torch.nn.Module, device: torch.device) -> dict[str, float]:
        start, answers, used = time.monotonic(), [], []
        for row in self.rows[: self.limit or None]:
            answers.append(self._one(model, row, device))
            used.append(row)
            if not self.limit and time.monotonic() - start > self.seconds:
                break
        self.limit = self.limit or len(used)
        figures = {"valid_loss": patch_loss(model, self.valid, self.plan, device, PATCHES)}
        if self.plan["target"] == "boxes":
            return figures | box_figures(answers, [self._boxes(row) for row in used], len(self.plan["classes"]))
        table = np.array(answers)  # (cases, K, 4): dice, then matched, found, true lesions
        each = {f"dice_{name}": mean_figure(table[:, k, 0]) for k, name in enumerate(self.plan["classes"])}
        overlap = mean_figure(list(each.values()))
        lesions = mean_figure([lesion_f1(table[:, k, 1:].sum(axis=0)) for k in range(table.shape[1])])
        figures |= {"dice": overlap, "lesion_f1": lesions, "quality": mean_figure([overlap, lesions])}
        return figures | (each if len(each) > 1 else {})

    def _one(self, model: torch.nn.Module, row: int, device: torch.device) -> Any:
        image, batch = self.valid.cases.image(row), micro_batch(self.plan)
        if self.plan["target"] == "boxes":
            return find_boxes(model, image, self.plan, device, batch)
        chances = mask_probabilities(model, image, self.plan, device, batch)
        truth = self.valid.cases.volumes.mask(row)
        result = []
        for chance, mask in zip(chances, truth, strict=True):
            ours, theirs = chance >= 0.5, np.asarray(mask) > 0
            part = _marked(ours, theirs)
            result.append([dice(ours, theirs), *lesion_counts(ours[part], theirs[part])])
        return result

    def _boxes(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        boxes = self.valid.cases.boxes[row]
        return boxes[:, :-1], boxes[:, -1].astype(int)


def _marked(*masks: np.ndarray) -> tuple[slice, ...]:
    """Where anything is marked, which is far less than the image."""
    union, places = np.logical_or.reduce(masks), []
    if not union.any():
        return (slice(0, 1),) * union.ndim
    for axis in range(union.ndim):
        line = np.flatnonzero(union.any(axis=tuple(a for a in range(union.ndim) if a != axis)))
        places.append(slice(int(line[0]), int(line[-1]) + 1))
    return tuple(places)


@torch.no_grad()
def patch_loss(
    model: torch.nn.Module, valid: Patches, plan: Mapping[str, Any], device: torch.device, most: int
) -> float:
    """Mean loss of the fixed validation patches, of up to `most` of them."""
    part = torch.utils.data.Subset(valid, range(0, len(valid), max(1, -(-len(valid) // most))))
    losses, counts = [], []
    for batch in DataLoader(part, batch_size=micro_batch(plan), collate_fn=collate):
        losses.append(float(model(**{key: value.to(device) for key, value in batch.items()})["loss"]))
        counts.append(len(batch["pixel_values"]))
    return float(np.average(losses, weights=counts))


# --- boxes --------------------------------------------------------------------------------------------------------


def box_figures(answers: list[Any], truths: list[Any], classes: int, least: float = 0.5) -> dict[str, float]:
    """map_50, froc and image_auroc of (boxes, scores, labels) against (boxes, labels), one pair an image."""
    table = rank_images(answers, truths, classes, least)
    ill = np.array([len(labels) > 0 for _, labels in truths])
    score = np.array([image_score(scores) for _, scores, _ in answers])
    figures = {
        "map_50": mean_figure([average_precision(*column) for column in table]),
        "froc": mean_figure([froc(*column, images=len(truths)) for column in table]),
    }
    chance = auroc(ill, score)
    return {**figures, **({"image_auroc": chance} if np.isfinite(chance) else {})}


# --- masks --------------------------------------------------------------------------------------------------------


def sweep(chance: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of one class of one case: (thresholds, sizes, 3) lesion counts and (thresholds, sizes) Dice."""
    counts = np.zeros((len(THRESHOLDS), len(MIN_SIZES), 3))
    overlap = np.full((len(THRESHOLDS), len(MIN_SIZES)), np.nan)
    part = _marked(chance >= THRESHOLDS[0], truth)
    chance, truth = chance[part], truth[part]
    theirs, n_theirs = components(truth)
    for t, cut in enumerate(THRESHOLDS):
        ours, _ = components(chance >= cut)
        sizes = np.bincount(ours.ravel())
        sizes[0] = 0
        for s, least in enumerate(MIN_SIZES):
            keep = sizes >= least
            if s and not ((sizes > 0) & (sizes < least)).any():  # nothing is that small
                counts[t, s], overlap[t, s] = counts[t, s - 1], overlap[t, s - 1]
                continue
            left = np.where(keep, np.arange(len(sizes)), 0)[ours]
            counts[t, s] = match_numbered(left, theirs), int(keep.sum()), n_theirs
            overlap[t, s] = dice(left > 0, truth)
    return counts, overlap


def most_size(sizes: list[int]) -> float:
    """How large the least size may be: a quarter of the true lesions may be lost to it, not more.

    A weak model's false alarms are often larger than most lesions; fitted freely, the size would hide the lesions too.
    """
    return max(1.0, float(np.percentile(sizes, 25))) if sizes else float(MIN_SIZES[-1])


def choose_settings(counts: np.ndarray, overlap: np.ndarray, sizes: Sequence[list[int]]) -> list[tuple[int, int]]:
    """Places of the threshold and of the least size, a class each. A class that fewer than `SURE` cases have takes those that
    are best for all classes together: fitted to a lesion or two, a threshold marks half of the next image.

    counts: (cases, classes, thresholds, sizes, 3); overlap: (cases, classes, thresholds, sizes); sizes: of true lesions.
    """
    threshold, size = best_setting(counts.sum(axis=(0, 1)), overlap.reshape(-1, *overlap.shape[2:]))
    chosen = []
    for k, known in enumerate(sizes):
        most = most_size(known)
        if (counts[:, k, 0, 0, 2] > 0).sum() >= SURE:
            chosen.append(best_setting(counts[:, k].sum(axis=0), overlap[:, k], most))
        else:
            chosen.append((threshold, max(s for s in range(size + 1) if s == 0 or MIN_SIZES[s] <= most)))
    return chosen


def best_setting(counts: np.ndarray, overlap: np.ndarray, most: float = MIN_SIZES[-1]) -> tuple[int, int]:
    """Places of the threshold and of the least size with the highest lesion F1 + mean Dice; the plain ones if none is.

    counts: (thresholds, sizes, 3) summed over cases; overlap: (cases, thresholds, sizes); most: of the least size.
    """
    plain = THRESHOLDS.index(0.5)
    settings = [(t, s) for t in range(len(THRESHOLDS)) for s, size in enumerate(MIN_SIZES) if size <= most]
    best, found = -1.0, (plain, 0)
    for t, s in sorted(settings, key=lambda one: abs(one[0] - plain) + one[1]):  # what changes least comes first
        value = np.nan_to_num(lesion_f1(counts[t, s])) + np.nan_to_num(mean_figure(overlap[:, t, s]))
        if counts[t, s, 2] and value > best + 0.005:
            best, found = value, (t, s)
    return found
