"""Data sets of train.json in torch: patches for training and validation, no patient in both.

Images of any size are decoded once (`volume_cache`); a patch is centred on a lesion in the share `plan["foreground"]` of the items,
else anywhere. Lesions of a class in an image are equally likely, so are classes, and so are the images with the class: small lesions
are as frequent as large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.dataset.formats import DataError
from m3b.training.augment_masks import AugmentPatches, block_of_patch, collate_blocks, cut_block
from m3b.training.detection.index import hold_out, patient_of, read_index, true_boxes
from m3b.training.folds import REFIT_FOLD
from m3b.training.patients import assign_folds
from m3b.training.volume_cache import Volumes, build_volumes


class DetectionCases:
    """The cases that patches are cut from: cached images with their masks, or their boxes on the cached grid."""

    def __init__(self, records: Sequence[dict[str, Any]], plan: Mapping[str, Any], base: str = ".") -> None:
        self.plan, self.records = plan, list(records)
        cache_plan = {**plan, "classes": ["any"], "labels": {}, "overlap": False} if plan["target"] == "boxes" else plan
        paths = ("image_path", "mask_path", "ignore_path")
        images = [{key: record[key] for key in paths if key in record} for record in records]
        self.volumes: Volumes = build_volumes(images, cache_plan, base=base)
        self.boxes: list[np.ndarray] = []
        if plan["target"] == "boxes":
            self.boxes = self._scaled_boxes(base)
        self.counts = np.array([self._count(row) for row in range(len(records))]).reshape(len(records), -1)

    def _scaled_boxes(self, base: str) -> list[np.ndarray]:
        dims, classes, notes, result = int(self.plan["dims"]), list(self.plan["classes"]), [], []
        for row, record in enumerate(self.records):
            empty = np.zeros((0, 2 * dims + 1))
            if not self.volumes.readable[row] or not record["boxes"]:
                result.append(empty)
                continue
            try:
                shape = self.volumes.shape(row)
                boxes, box_notes = true_boxes(record, classes, shape, base)
            except DataError as error:
                raise SystemExit(str(error)) from error
            notes += box_notes
            result.append(scale_boxes(boxes, shape, self.volumes.image(row).shape[1:]) if len(boxes) else empty)
        if notes:
            print(f"{len(notes)} boxes extend beyond their image, first: {notes[0]}", flush=True)
        return result

    def _count(self, row: int) -> np.ndarray:
        """Return (K,) boxes, or for masks whether the class occurs."""
        classes = len(self.plan["classes"])
        if not self.volumes.readable[row]:
            return np.zeros(classes)
        if self.boxes:
            return np.bincount(self.boxes[row][:, -1].astype(int), minlength=classes).astype(float)
        return np.bincount(np.unique(self.volumes.points(row)[:, 0]), minlength=classes).astype(float)

    def image(self, row: int) -> np.ndarray:
        return self.volumes.image(row)

    def anchors(self, row: int, label: int) -> np.ndarray:
        """Return (n, dims) positions of a class to centre a patch on."""
        if self.boxes:
            boxes = self.boxes[row]
            boxes, d = boxes[boxes[:, -1] == label], int(self.plan["dims"])
            return np.asarray((boxes[:, :d] + boxes[:, d : 2 * d]) / 2)
        points = self.volumes.points(row)
        return points[points[:, 0] == label, 1:]


def scale_boxes(boxes: np.ndarray, old: Sequence[int], new: Sequence[int]) -> np.ndarray:
    """Scale (N, 2 d + 1) boxes from an image of shape `old` to its copy of shape `new`; a missing slice axis is added."""
    d = len(new)
    if len(old) == d - 1:
        corners = np.concatenate([boxes[:, : d - 1], np.zeros((len(boxes), 1)), boxes[:, d - 1 : 2 * d - 2]], axis=1)
        boxes = np.concatenate([corners, np.ones((len(boxes), 1)), boxes[:, -1:]], axis=1)
        old = (*old, 1)
    factor = np.array(new, float) / np.array(old, float)
    return np.concatenate([boxes[:, :-1] * np.concatenate([factor, factor]), boxes[:, -1:]], axis=1)


MIN_BOX_SHARE = 0.5
"""Minimum visible share of a box in a patch; a box with less is neither a target nor a false positive."""


class Patches(Dataset[dict[str, torch.Tensor]]):
    """Items {"pixel_values" (C, *patch), and "labels" (K, *patch) 0/1/IGNORE or "boxes" (n, 2 d + 2)} of one part.

    Training items are random each time; validation items (`fixed`) are always the same, one per image. An item is a case, or a pair
    (case, index of a class), whose patch is centred on a lesion of that class if the case has one.
    """

    def __init__(self, cases: DetectionCases, rows: np.ndarray, fixed: bool) -> None:
        self.cases, self.rows, self.fixed = cases, rows, fixed
        self.records = [cases.records[int(row)] for row in rows]
        self.resize(cases.plan["patch"])
        self.rows_of_class = [rows[cases.counts[rows, k] > 0] for k in range(cases.counts.shape[1])]

    def resize(self, patch: Sequence[int], mover: AugmentPatches | None = None) -> None:
        """Set the size of the patches.

        With `mover`, masks are cut as their random "move" needs them: a patch that is cut out before it is rotated has wrong
        background in its corners.
        """
        self.patch, self.mover = [int(n) for n in patch], mover

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int | tuple[int, int]) -> dict[str, torch.Tensor]:
        case, class_index = item if isinstance(item, tuple) else (item, None)
        rng = np.random.default_rng(case if self.fixed else int(torch.randint(2**31, (1,)).item()))
        row, centre = int(self.rows[case]), None
        if class_index is None:
            row, centre = self._draw_center(row, rng)
        elif self.cases.counts[row, class_index] > 0:
            centre = rng.choice(self.cases.anchors(row, class_index))
        image = self.cases.image(row)
        start = self._start(image.shape[1:], centre, rng)
        random_move = self.mover.draw(rng) if self.mover else None
        block_start, size, move = block_of_patch(start, self.patch, random_move)
        pixels = cut_image(image, block_start, size).astype(np.float32)
        result: dict[str, Any] = {"pixel_values": torch.from_numpy(pixels)}
        if self.mover:
            result["move"] = move
        if self.cases.boxes:
            result["boxes"] = torch.from_numpy(self._boxes(row, start)).float()
        else:
            mask = cut_block(self.cases.volumes.mask(row), block_start, size, 0)
            result["labels"] = torch.from_numpy(mask.astype(np.uint8))
        return result

    def _draw_center(self, row: int, rng: np.random.Generator) -> tuple[int, np.ndarray | None]:
        """Return the case, and the lesion to centre on, if any."""
        classes = [k for k, rows in enumerate(self.rows_of_class) if len(rows)]
        if self.fixed:
            classes = [k for k in range(len(self.rows_of_class)) if self.cases.counts[row, k] > 0]
        elif rng.random() >= float(self.cases.plan["foreground"]):
            return row, None
        if not classes:
            return row, None
        label = int(rng.choice(classes))
        row = row if self.fixed else int(rng.choice(self.rows_of_class[label]))
        anchors = self.cases.anchors(row, label)
        return row, anchors[int(rng.integers(len(anchors)))]

    def _start(self, shape: Sequence[int], centre: np.ndarray | None, rng: np.random.Generator) -> list[int]:
        """Return the lower corner of the patch; smaller images lie in its centre."""
        start = []
        for axis, (length, side) in enumerate(zip(shape, self.patch, strict=True)):
            room = length - side
            if room <= 0:
                start.append(room // 2)
            elif centre is None:
                start.append(int(rng.integers(room + 1)))
            else:
                jitter = 0 if self.fixed else int(rng.integers(-(side // 4), side // 4 + 1))
                start.append(int(np.clip(round(float(centre[axis])) - side // 2 + jitter, 0, room)))
        return start

    def _boxes(self, row: int, start: Sequence[int]) -> np.ndarray:
        """Return (n, 2 d + 2) boxes inside the patch, clipped to it; the last column is 0 for boxes that are cut."""
        d = len(start)
        boxes = self.cases.boxes[row]
        low, high = boxes[:, :d] - start, boxes[:, d : 2 * d] - start
        centre, size = (low + high) / 2, np.array(self.patch, float)
        volume = (high - low).prod(axis=1)
        low, high = np.clip(low, 0, size), np.clip(high, 0, size)
        visible_share = (high - low).prod(axis=1) / np.maximum(volume, 1e-6)
        is_target = ((centre >= 0) & (centre < size)).all(axis=1) & (visible_share >= MIN_BOX_SHARE)
        rows = np.concatenate([low, high, boxes[:, 2 * d :], is_target[:, None]], axis=1)
        result: np.ndarray = rows[visible_share > 0.02]
        return result


def cut_image(image: np.ndarray, start: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """Copy the block of (C, *image) from `start`, which may be negative; voxels outside get the corner value of their channel."""
    corner: Any = (slice(None), *(0,) * (image.ndim - 1))
    return cut_block(image, start, size, np.asarray(image[corner]))


def collate(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return stacked items; boxes are padded with rows of class -1. Blocks with moves stay lists."""
    if "move" in items[0]:
        return collate_blocks(items)
    batch = {key: torch.stack([item[key] for item in items]) for key in items[0] if key != "boxes"}
    if "boxes" in items[0]:
        rows = max(1, max(len(item["boxes"]) for item in items))
        width = items[0]["boxes"].shape[1]
        padded = torch.zeros(len(items), rows, width)
        padded[..., width - 2] = -1.0
        for item_index, item in enumerate(items):
            padded[item_index, : len(item["boxes"])] = item["boxes"]
        batch["boxes"] = padded
    return batch


def build_datasets(plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
    """Return the training and validation part of train.json: patches, or whole pictures of the few-shot engine.

    With `folds` > 1 the validation part is fold `fold`; else `validation_share` of the cases; none for `REFIT_FOLD`.
    """
    if plan.get("engine", "patches") != "patches":
        from m3b.training.detection.fewshot.data import build_fewshot_datasets

        return build_fewshot_datasets(plan)
    records, seed, folds = read_index(), int(plan["seed"]), int(plan.get("folds") or 1)
    cases = DetectionCases(records, plan)
    if fold == REFIT_FOLD:
        is_validation = np.zeros(len(records), bool)
    elif folds > 1:
        patients = [patient_of(record) for record in records]
        is_validation = assign_folds(patients, cases.counts.astype(np.float32), folds, seed) == fold
    else:
        is_validation = hold_out(records, cases.counts, float(plan["validation_share"]), seed)
    readable = cases.volumes.readable
    train, valid = np.flatnonzero(~is_validation & readable), np.flatnonzero(is_validation & readable)
    if not len(valid) and not len(train):
        raise SystemExit("no training case can be read: correct train.json")
    if fold != REFIT_FOLD and not (len(train) and len(valid)):
        train = valid = train if len(train) else valid
        print(
            "one image only: it is used for training and validation; the metrics say nothing about other images",
            flush=True,
        )
    return Patches(cases, train, fixed=False), Patches(cases, valid, fixed=True)
