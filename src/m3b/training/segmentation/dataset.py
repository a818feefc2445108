"""train.json as torch data sets: patches for training, whole cases for validation, no patient in both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.training.augment_masks import AugmentMasks, cut_box
from m3b.training.folds import count, part_of, parts
from m3b.training.patients import assign_folds
from m3b.training.segmentation.sliding_window import cut
from m3b.training.volume_cache import Volumes, build_volumes


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Records `{"image_path", "mask_path", "patient"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} holds no record: write the training cases into it first")
    without = [record for record in records if not record.get("mask_path")]
    if without:
        raise SystemExit(
            f"{path}: {len(without)} of {len(records)} records have no mask_path (first {without[0]['image_path']}); "
            "leave images without a mask out of train.json"
        )
    return records


def patient_of(record: Mapping[str, Any]) -> str:
    return str(record.get("patient") or json.dumps(record["image_path"]))


def hold_out(
    records: Sequence[Mapping[str, Any]], share: float, seed: int = 0, presence: np.ndarray | None = None
) -> np.ndarray:
    """(N,) bool: validation cases; whole patients at random until the share is reached, at least one, never all.

    Args:
        presence: (N, K) whether cases have classes. Rare classes come first: each class that two patients or more have is in
            both parts, as far as twice the share of the cases does.
    """
    of = [patient_of(record) for record in records]
    patients, cases = sorted(set(of)), Counter(of)
    if len(patients) < 2:
        raise SystemExit(
            f"{len(records)} cases cannot be split into training and validation by patient; a patient key that is the "
            "same for every record, or too few cases, does that: correct train.json"
        )
    np.random.default_rng(seed).shuffle(patients)
    place_of = {patient: place for place, patient in enumerate(patients)}
    rows, sizes = np.array([place_of[name] for name in of]), np.array([cases[patient] for patient in patients])
    classes = 0 if presence is None else presence.shape[1]
    has, chosen, limit = np.zeros((len(patients), classes), bool), np.zeros(len(patients), bool), share * len(records)
    if presence is not None:
        np.logical_or.at(has, rows, presence > 0)
    carriers = has.sum(axis=0)

    def can_spare(place: int) -> bool:
        """Whether every class of a patient stays in the training part without this one."""
        left = carriers[has[place]] - has[:, has[place]][chosen].sum(axis=0)
        return not chosen[place] and chosen.sum() < len(patients) - 1 and bool((left > 1).all())

    for rarest in np.argsort(carriers, kind="stable"):
        if has[chosen, rarest].any() or sizes @ chosen >= 2 * limit:
            continue
        missing = ~has[chosen].any(axis=0)
        if fitting := [place for place in np.flatnonzero(has[:, rarest]) if can_spare(int(place))]:
            chosen[max(fitting, key=lambda place: int(has[place, missing].sum()))] = True
    for place in range(len(patients)):
        if sizes @ chosen < limit and can_spare(place):
            chosen[place] = True
    if not chosen.any():
        chosen[0] = True
    result: np.ndarray = chosen[rows]
    return result


class Patches(Dataset[dict[str, Any]]):
    """Items `{"pixel_values": float32 (C, *cut), "labels": uint8 (*cut) or (K, *cut)}` at random places.

    `cut` is the patch. With the `augment` that `resize` is given, each item has a "move" (or None) too, and its cut is the block
    that the moved patch shows: a patch that is cut first and then turned has a smeared border that the mask calls background.
    `foreground` of them are centred on a voxel of a random class of the case, so that small classes are seen as often
    as large ones. One epoch is `epoch_patches` items: every case equally often, the rest of random cases.
    """

    def __init__(
        self, volumes: Volumes, rows: np.ndarray, records: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]
    ) -> None:
        self.volumes, self.rows = volumes, rows
        self.records = [records[int(row)] for row in rows]
        self.resize(plan["patch"])
        self.share, self.pad = float(plan["foreground"]), plan["pad_value"]
        self.length = max(int(plan.get("epoch_patches") or 0), 1)

    def resize(self, patch: Sequence[int], augment: AugmentMasks | None = None) -> None:
        """Set the size of the patches, and what draws their moves; a batch of these is made by `collate_cuts`."""
        self.patch, self.augment = tuple(int(v) for v in patch), augment

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, item: int) -> dict[str, Any]:
        rng = np.random.default_rng(int(torch.randint(2**31, ()).item()))  # follows torch's seed, in workers too
        whole = self.length - self.length % len(self.rows)
        row = int(self.rows[item % len(self.rows) if item < whole else rng.integers(len(self.rows))])
        image, mask = self.volumes.image(row), self.volumes.mask(row)
        start = self._place(image.shape[1:], self.volumes.points(row), self.volumes.classes(row), rng)
        start, size, move = cut_box(start, self.patch, self.augment.draw(self.patch, rng) if self.augment else None)
        pixels = cut(image, start, size, self.pad).astype(np.float32, copy=False)
        item = {"pixel_values": torch.from_numpy(pixels), "labels": torch.from_numpy(cut(mask, start, size, 0))}
        return {**item, "move": move} if self.augment else item

    def _place(
        self,
        shape: tuple[int, ...],
        points: np.ndarray,
        classes: Mapping[int, tuple[int, int]],
        rng: np.random.Generator,
    ) -> list[int]:
        """Lowest corner: anywhere inside the image; axes shorter than the patch lie at a random place within it."""
        spare = [have - want for have, want in zip(shape, self.patch, strict=True)]
        start = [int(rng.integers(min(0, free), max(0, free) + 1)) for free in spare]
        if len(points) and rng.random() < self.share:
            first, end = list(classes.values())[rng.integers(len(classes))]
            centre = points[first + rng.integers(end - first), 1:]
            for axis, free in enumerate(spare):
                if free > 0:
                    near = int(centre[axis]) - self.patch[axis] // 2 + int(rng.integers(-2, 3))
                    start[axis] = int(np.clip(near, 0, free))
        return start


class WholeCases(Dataset[dict[str, torch.Tensor]]):
    """Items `{"pixel_values": float32 (C, H, W[, D]), "labels": uint8}` of whatever size each case has."""

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
    """Training patches and validation cases, by patient. With `folds` > 1 those of that fold, else `validation_share`."""
    records, seed = read_index(), int(plan["seed"])
    volumes = build_volumes(records, plan)
    presence = volumes.presence(len(plan["classes"]))
    if count(plan) > 1:
        shared = assign_folds([patient_of(record) for record in records], presence, parts(plan), seed)
        chosen = shared == part_of(plan, fold)
    else:
        chosen = hold_out(records, float(plan["validation_share"]), seed, presence)
    known, held = np.flatnonzero(~chosen & volumes.readable), np.flatnonzero(chosen & volumes.readable)
    if not len(known) or not len(held):
        raise SystemExit("too few readable cases for a training and a validation part")
    return Patches(volumes, known, records, plan), WholeCases(volumes, held, records)


def every_case(plan: Mapping[str, Any]) -> Patches:
    """Patches of all cases that can be read: what a refit is trained on."""
    records = read_index()
    volumes = build_volumes(records, plan)
    return Patches(volumes, np.flatnonzero(volumes.readable), records, plan)
