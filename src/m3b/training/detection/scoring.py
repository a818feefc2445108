"""Validation metrics: Dice and lesion F1 of masks, average precision of boxes, image AUROC.

`Scorer` is used during training, on as many cases as fit into a small share of the time; `final_selection` evaluates all at the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch.utils.data import DataLoader

from m3b.training.detection.boxes import average_precision, froc, image_score, rank_boxes
from m3b.training.detection.dataset import Patches, collate
from m3b.training.detection.inference import find_boxes, mask_probabilities
from m3b.training.detection.plan_cost import MAX_LOSS_PATCHES
from m3b.training.ignored_voxels import IGNORE
from m3b.training.lesions import count_lesion_matches, dice, label_lesions, lesion_counts, lesion_f1, mean_defined
from m3b.training.ranking_metrics import auroc
from m3b.training.step_cost import micro_batch

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MIN_SIZES = (1, 3, 6, 12, 25, 50, 100, 200)
MIN_CLASS_CASES = 5
"""Minimum validation cases with a class to choose a threshold for this class."""
MAX_IGNORED_SHARE = 0.5
"""Share of ignored voxels above which a lesion without a true one is not counted (Kirillov et al., CVPR 2019), as on test cases."""


class Scorer:
    """Validation metrics during training; the first call determines how many cases fit into the seconds."""

    def __init__(self, plan: Mapping[str, Any], valid: Patches, seconds: float) -> None:
        self.plan, self.valid, self.seconds = plan, valid, seconds
        rng = np.random.default_rng(0)
        abnormal = [int(row) for row in valid.rows if valid.cases.counts[int(row)].sum() > 0]
        normal = [int(row) for row in valid.rows if valid.cases.counts[int(row)].sum() == 0]
        rng.shuffle(abnormal)
        rng.shuffle(normal)
        step = max(1, round(len(abnormal) / max(1, len(normal))))
        self.rows = []
        for index, row in enumerate(abnormal):
            self.rows += [row, *normal[index // step : index // step + (index % step == 0)]]
        self.rows = self.rows or normal
        self.limit = 0

    def __call__(self, model: torch.nn.Module, device: torch.device) -> dict[str, float]:
        start, results, scored_rows = time.monotonic(), [], []
        for row in self.rows[: self.limit or None]:
            results.append(self._score_case(model, row, device))
            scored_rows.append(row)
            if not self.limit and time.monotonic() - start > self.seconds:
                break
        self.limit = self.limit or len(scored_rows)
        figures = {"valid_loss": patch_loss(model, self.valid, self.plan, device, MAX_LOSS_PATCHES)}
        if self.plan["target"] == "boxes":
            return figures | box_metrics(results, [self._boxes(row) for row in scored_rows], len(self.plan["classes"]))
        table = np.array(results)  # (cases, K, 4): dice, then matched, found, true lesions
        class_dice = {f"dice_{name}": mean_defined(table[:, k, 0]) for k, name in enumerate(self.plan["classes"])}
        overlap = mean_defined(list(class_dice.values()))
        lesions = mean_defined([lesion_f1(table[:, k, 1:].sum(axis=0)) for k in range(table.shape[1])])
        figures |= {"dice": overlap, "lesion_f1": lesions, "quality": mean_defined([overlap, lesions])}
        return figures | (class_dice if len(class_dice) > 1 else {})

    def _score_case(self, model: torch.nn.Module, row: int, device: torch.device) -> Any:
        image, batch = np.asarray(self.valid.cases.image(row)), micro_batch(self.plan)
        if self.plan["target"] == "boxes":
            return find_boxes(model, image, self.plan, device, batch)
        probabilities = mask_probabilities(model, image, self.plan, device, batch)
        truth = np.asarray(self.valid.cases.volumes.mask(row))
        result = []
        for probability, mask in zip(probabilities, truth, strict=True):
            box = _foreground_box(probability >= 0.5, mask == 1)
            predicted, class_truth = clear_ignored_lesions(probability[box] >= 0.5, mask[box]), mask[box] == 1
            result.append([dice(predicted, class_truth), *lesion_counts(predicted, class_truth)])
        return result

    def _boxes(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        boxes = self.valid.cases.boxes[row]
        return boxes[:, :-1], boxes[:, -1].astype(int)


def clear_ignored_lesions(predicted: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return a boolean prediction of one class without the ignored voxels of its mask.

    Lesions that touch no true one and lie in ignored voxels for more than `MAX_IGNORED_SHARE` are removed: nobody knows what they are.
    """
    ignored = mask == IGNORE
    if not (predicted & ignored).any():
        return predicted
    lesions, count = label_lesions(predicted)
    sizes, ignored_sizes, hits = (
        np.bincount(lesions[part], minlength=count + 1)
        for part in (predicted, predicted & ignored, predicted & (mask == 1))
    )
    is_known = (hits > 0) | (ignored_sizes <= MAX_IGNORED_SHARE * sizes)
    result: np.ndarray = predicted & ~ignored & is_known[lesions]
    return result


def _foreground_box(*masks: np.ndarray) -> tuple[slice, ...]:
    """Return the bounding box of all masks, which is far smaller than the image."""
    union = np.logical_or.reduce(masks)
    boxes: list[tuple[slice, ...]] = ndimage.find_objects(union.view(np.uint8))
    return boxes[0] if boxes else (slice(0, 1),) * union.ndim


@torch.no_grad()
def patch_loss(
    model: torch.nn.Module, valid: Patches, plan: Mapping[str, Any], device: torch.device, max_patches: int
) -> float:
    """Return the mean loss of up to `max_patches` fixed validation patches."""
    part = torch.utils.data.Subset(valid, range(0, len(valid), max(1, -(-len(valid) // max_patches))))
    losses, counts = [], []
    for batch in DataLoader(part, batch_size=micro_batch(plan), collate_fn=collate):
        losses.append(float(model(**{key: value.to(device) for key, value in batch.items()})["loss"]))
        counts.append(len(batch["pixel_values"]))
    return float(np.average(losses, weights=counts))


# --- boxes --------------------------------------------------------------------------------------------------------


def box_metrics(predictions: list[Any], truths: list[Any], classes: int, min_iou: float = 0.5) -> dict[str, float]:
    """Return map_50, froc and image_auroc of (boxes, scores, labels) against (boxes, labels), one pair per image."""
    table = rank_boxes(predictions, truths, classes, min_iou)
    is_abnormal = np.array([len(labels) > 0 for _, labels in truths])
    score = np.array([image_score(scores) for _, scores, _ in predictions])
    figures = {
        "map_50": mean_defined([average_precision(*column) for column in table]),
        "froc": mean_defined([froc(*column, images=len(truths)) for column in table]),
    }
    auroc_value = auroc(is_abnormal, score)
    return {**figures, **({"image_auroc": auroc_value} if np.isfinite(auroc_value) else {})}


# --- masks --------------------------------------------------------------------------------------------------------


def score_settings(probability: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (thresholds, sizes, 3) lesion counts and (thresholds, sizes) Dice of one class of one case.

    Minimum sizes are those of whole predicted lesions, as in the deliverable; what remains counts outside of ignored voxels.

    Args:
        mask: 0, 1 or `IGNORE`.
    """
    counts = np.zeros((len(THRESHOLDS), len(MIN_SIZES), 3))
    overlap = np.full((len(THRESHOLDS), len(MIN_SIZES)), np.nan)
    box = _foreground_box(probability >= THRESHOLDS[0], mask == 1)
    probability, mask = probability[box], mask[box]
    truth, has_ignored = mask == 1, bool((mask == IGNORE).any())
    true_lesions, true_count = label_lesions(truth)
    for t, threshold in enumerate(THRESHOLDS):
        lesions, _ = label_lesions(probability >= threshold)
        sizes = np.bincount(lesions.ravel())
        sizes[0] = 0
        for s, min_size in enumerate(MIN_SIZES):
            is_kept = sizes >= min_size
            if s and not ((sizes > 0) & (sizes < min_size)).any():  # no lesion is that small
                counts[t, s], overlap[t, s] = counts[t, s - 1], overlap[t, s - 1]
                continue
            remaining, count = np.where(is_kept, np.arange(len(sizes)), 0)[lesions], int(is_kept.sum())
            if has_ignored:
                remaining, count = label_lesions(clear_ignored_lesions(remaining > 0, mask))
            counts[t, s] = count_lesion_matches(remaining, true_lesions), count, true_count
            overlap[t, s] = dice(remaining > 0, truth)
    return counts, overlap


def largest_min_size(sizes: list[int]) -> float:
    """Return the upper limit of the minimum size: at most a quarter of the true lesions may be smaller.

    False positives of a weak model are often larger than most lesions; an unlimited minimum size would remove the lesions too.
    """
    return max(1.0, float(np.percentile(sizes, 25))) if sizes else float(MIN_SIZES[-1])


def choose_settings(counts: np.ndarray, overlap: np.ndarray, sizes: Sequence[list[int]]) -> list[tuple[int, int]]:
    """Return indices of the threshold and of the minimum size for each class.

    A class with fewer than `MIN_CLASS_CASES` cases gets the best settings of all classes together: fitted to a lesion or two, a
    threshold may mark half of the next image.

    Args:
        counts: (cases, classes, thresholds, sizes, 3). overlap: (cases, classes, thresholds, sizes). sizes: of true lesions.
    """
    threshold, common_size = best_setting(counts.sum(axis=(0, 1)), overlap.reshape(-1, *overlap.shape[2:]))
    settings = []
    for k, lesion_sizes in enumerate(sizes):
        limit = largest_min_size(lesion_sizes)
        if (counts[:, k, 0, 0, 2] > 0).sum() >= MIN_CLASS_CASES:
            settings.append(best_setting(counts[:, k].sum(axis=0), overlap[:, k], limit))
        else:
            settings.append((threshold, max(s for s in range(common_size + 1) if s == 0 or MIN_SIZES[s] <= limit)))
    return settings


def best_setting(counts: np.ndarray, overlap: np.ndarray, max_size: float = MIN_SIZES[-1]) -> tuple[int, int]:
    """Return indices of the threshold and of the minimum size with the highest lesion F1 + mean Dice; the defaults if none is.

    Args:
        counts: (thresholds, sizes, 3) summed over cases. overlap: (cases, thresholds, sizes). max_size: of the minimum size.
    """
    default = THRESHOLDS.index(0.5)
    settings = [(t, s) for t in range(len(THRESHOLDS)) for s, size in enumerate(MIN_SIZES) if size <= max_size]
    settings.sort(key=lambda pair: abs(pair[0] - default) + pair[1])  # smallest changes first
    best, setting = -1.0, (default, 0)
    for t, s in settings:
        value = np.nan_to_num(lesion_f1(counts[t, s])) + np.nan_to_num(mean_defined(overlap[:, t, s]))
        if counts[t, s, 2] and value > best + 0.005:
            best, setting = value, (t, s)
    return setting
