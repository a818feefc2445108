"""Data sets of train.json in torch: patches for training, whole cases for validation, no patient in both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.training.augment_masks import AugmentPatches, block_of_patch, cut_block
from m3b.training.box_masks import is_from_boxes, mark_boxes
from m3b.training.folds import REFIT_FOLD, count_folds, count_parts, held_out_part
from m3b.training.patients import assign_folds
from m3b.training.volume_cache import Volumes, build_volumes


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Return the records `{"image_path", "mask_path", "patient"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} has no records: write the training cases into it first")
    unmarked = [record for record in records if not record.get("mask_path")]
    if unmarked:
        raise SystemExit(
            f"{path}: {len(unmarked)} of {len(records)} records have no mask_path (first {unmarked[0]['image_path']}); "
            "remove images without a mask from train.json"
        )
    return records


def patient_of(record: Mapping[str, Any]) -> str:
    """Return the patient, or the image path if the patient is unknown."""
    return str(record.get("patient") or json.dumps(record["image_path"]))


def hold_out(
    records: Sequence[Mapping[str, Any]], share: float, seed: int = 0, presence: np.ndarray | None = None
) -> np.ndarray:
    """Return (N,) bool: the validation cases; random patients until the share is reached, at least one, never all.

    Args:
        presence: (N, K) whether cases have classes. Rare classes come first: each class that two patients or more have is in both
            parts, as long as validation has at most twice its share of the cases.
    """
    patient_names = [patient_of(record) for record in records]
    patients, cases = sorted(set(patient_names)), Counter(patient_names)
    if len(patients) < 2:
        raise SystemExit(
            f"{len(records)} cases have one patient and cannot be split into training and validation by patient: add "
            "cases, or correct the patients in train.json"
        )
    np.random.default_rng(seed).shuffle(patients)
    patient_index = {patient: place for place, patient in enumerate(patients)}
    case_patients = np.array([patient_index[name] for name in patient_names])
    sizes = np.array([cases[patient] for patient in patients])
    classes = 0 if presence is None else presence.shape[1]
    has_class = np.zeros((len(patients), classes), bool)
    is_held_out = np.zeros(len(patients), bool)
    limit = share * len(records)
    if presence is not None:
        np.logical_or.at(has_class, case_patients, presence > 0)
    class_patients = has_class.sum(axis=0)

    def can_hold_out(place: int) -> bool:
        """Return whether each class of the patient stays in the training part without this patient."""
        remaining = class_patients[has_class[place]] - has_class[:, has_class[place]][is_held_out].sum(axis=0)
        return not is_held_out[place] and is_held_out.sum() < len(patients) - 1 and bool((remaining > 1).all())

    for rare_class in np.argsort(class_patients, kind="stable"):
        if has_class[is_held_out, rare_class].any() or sizes @ is_held_out >= 2 * limit:
            continue
        missing = ~has_class[is_held_out].any(axis=0)
        if suitable := [place for place in np.flatnonzero(has_class[:, rare_class]) if can_hold_out(int(place))]:
            is_held_out[max(suitable, key=lambda place: int(has_class[place, missing].sum()))] = True
    for place in range(len(patients)):
        if sizes @ is_held_out < limit and can_hold_out(place):
            is_held_out[place] = True
    if not is_held_out.any():
        is_held_out[0] = True
    result: np.ndarray = is_held_out[case_patients]
    return result


class Patches(Dataset[dict[str, Any]]):
    """Items `{"pixel_values": float32 (C, *block), "labels": uint8 (*block) or (K, *block)}` at random positions.

    `block` is the patch. With the `mover` of `resize`, each item also has a "move" (or None), and its block is the part of the image
    that the moved patch shows: a patch that is cut out before it is rotated has a border of wrong background.
    An item is a case, of which a share `foreground` of the patches is centred on a voxel of a random class, so that small classes are
    as frequent as large ones; or a pair (case, index of a class), whose patch is centred on that class if the case has it.
    """

    def __init__(
        self, volumes: Volumes, rows: np.ndarray, records: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]
    ) -> None:
        self.volumes, self.rows = volumes, rows
        self.records = [records[int(row)] for row in rows]
        self.overlap, self.learns_from_boxes = bool(plan.get("overlap")), bool(plan.get("boxes"))
        self.resize(plan["patch"])
        self.share, self.pad = float(plan["foreground"]), plan["pad_value"]

    def resize(self, patch: Sequence[int], mover: AugmentPatches | None = None) -> None:
        """Set the size of the patches and the transform that draws their moves; their batches need `collate_blocks`."""
        self.patch, self.mover = tuple(int(v) for v in patch), mover

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int | tuple[int, int]) -> dict[str, Any]:
        rng = np.random.default_rng(int(torch.randint(2**31, ()).item()))  # follows torch's seed, in workers too
        case, class_index = item if isinstance(item, tuple) else (item, None)
        row = int(self.rows[case])
        image = self.volumes.image(row)
        is_boxed = self.learns_from_boxes and is_from_boxes(self.records[case])
        mask = read_marked_boxes(self.volumes, row, self.overlap) if is_boxed else self.volumes.mask(row)
        start = self._draw_start(image.shape[1:], self.volumes.points(row), self.volumes.classes(row), class_index, rng)
        random_move = self.mover.draw(rng) if self.mover else None
        start, size, move = block_of_patch(start, self.patch, random_move)
        pixels = cut_block(image, start, size, self.pad).astype(np.float32, copy=False)
        labels = torch.from_numpy(cut_block(mask, start, size, 0))
        values: dict[str, Any] = {"pixel_values": torch.from_numpy(pixels), "labels": labels}
        return {**values, "move": move} if self.mover else values

    def _draw_start(
        self,
        shape: tuple[int, ...],
        points: np.ndarray,
        classes: Mapping[int, tuple[int, int]],
        class_index: int | None,
        rng: np.random.Generator,
    ) -> list[int]:
        """Return the lowest corner: anywhere inside the image; on axes shorter than the patch the image lies at a random offset."""
        spare = [length - side for length, side in zip(shape, self.patch, strict=True)]
        start = [int(rng.integers(min(0, free), max(0, free) + 1)) for free in spare]
        is_centred = len(points) and rng.random() < self.share if class_index is None else class_index in classes
        if is_centred:
            first, end = classes[list(classes)[rng.integers(len(classes))] if class_index is None else class_index]
            centre = points[first + rng.integers(end - first), 1:]
            for axis, free in enumerate(spare):
                if free > 0:
                    corner = int(centre[axis]) - self.patch[axis] // 2 + int(rng.integers(-2, 3))
                    start[axis] = int(np.clip(corner, 0, free))
        return start


@lru_cache(maxsize=64)
def read_marked_boxes(volumes: Volumes, row: int, overlap: bool) -> np.ndarray:
    """Return the filled boxes of a case as they are learnt from."""
    return mark_boxes(np.asarray(volumes.mask(row)), overlap)


class CachedMasks(Sequence[np.ndarray]):
    """The masks of some cases of the cache, each opened when it is needed."""

    def __init__(self, volumes: Volumes, rows: np.ndarray) -> None:
        self._volumes, self._rows = volumes, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, item: Any) -> Any:
        return self._volumes.mask(int(self._rows[item]))


class WholeCases(Dataset[dict[str, torch.Tensor]]):
    """Items `{"pixel_values": float32 (C, H, W[, D]), "labels": uint8}` in the size of each case."""

    def __init__(self, volumes: Volumes, rows: np.ndarray, records: Sequence[Mapping[str, Any]]) -> None:
        self.volumes, self.rows = volumes, rows
        self.records = [records[int(row)] for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        row = int(self.rows[item])
        image = np.array(self.volumes.image(row), dtype=np.float32)
        return {"pixel_values": torch.from_numpy(image), "labels": torch.from_numpy(np.array(self.volumes.mask(row)))}


def build_datasets(plan: Mapping[str, Any], fold: int = 0) -> tuple[Patches, WholeCases]:
    """Return training patches and validation cases, split by patient: fold `fold` if `folds` > 1, else `validation_share`; no
    validation cases for `REFIT_FOLD`."""
    records, seed = read_index(), int(plan["seed"])
    volumes = build_volumes(records, plan)
    presence = volumes.presence(len(plan["classes"]))
    if fold == REFIT_FOLD:
        is_validation = np.zeros(len(records), bool)
    elif count_folds(plan) > 1:
        fold_of_case = assign_folds([patient_of(record) for record in records], presence, count_parts(plan), seed)
        is_validation = fold_of_case == held_out_part(plan, fold)
    else:
        is_validation = hold_out(records, float(plan["validation_share"]), seed, presence)
    train_rows = np.flatnonzero(~is_validation & volumes.readable)
    valid_rows = np.flatnonzero(is_validation & volumes.readable)
    if not len(train_rows) or (fold != REFIT_FOLD and not len(valid_rows)):
        raise SystemExit("too few readable cases for a training part and a validation part")
    return Patches(volumes, train_rows, records, plan), WholeCases(volumes, valid_rows, records)
