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
from Utils.members import count, part_of, parts
from Utils.people import assign_folds
from Utils.volumes import Volumes, build_volumes
from Utils.windows import cut


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


def hold_out(records: Sequence[Mapping[str, Any]], share: float, seed: int = 0) -> np.ndarray:
    """(N,) bool: validation cases; whole patients at random until the share is reached, at least one, never all."""
    of = [patient_of(record) for record in records]
    patients, cases = sorted(set(of)), Counter(of)
    if len(patients) < 2:
        raise SystemExit(
            f"{len(records)} cases cannot be split into training and validation by patient; a patient key that is the "
            "same for every record, or too few cases, does that: correct train.json"
        )
    np.random.default_rng(seed).shuffle(patients)
    chosen: set[str] = set()
    count = 0
    for patient in patients[: len(patients) - 1]:
        if chosen and count >= share * len(records):
            break
        chosen.add(patient)
        count += cases[patient]
    return np.array([patient in chosen for patient in of])


class Patches(Dataset[dict[str, torch.Tensor]]):
    """Items `{"pixel_values": float32 (C, *cut), "labels": uint8 (*cut) or (K, *cut)}` at random places.

    `cut` is the patch, or what `resize` is given: the patch with room around it, out of which the augmentation takes the
    patch. Were the patch itself turned, its corners would show a smeared border that the mask calls background.
    `foreground` of them are centred on a voxel of a random class of the case, so that small classes are seen as often
    as large ones. One epoch is `epoch_patches` items: every case equally often, the rest of random cases.
    """

    def __init__(
        self, volumes: Volumes, rows: np.ndarray, records: Sequence[Mapping[str, Any]], plan: Mapping[str, Any]
    ):
        self.volumes, self.rows = volumes, rows
        self.records = [records[int(row)] for row in rows]
        self.resize(plan["patch"], plan["patch"])
        self.share, self.pad = float(plan["foreground"]), plan["pad_value"]
        self.length = max(int(plan.get("epoch_patches") or 0), 1)

    def resize(self, patch: Sequence[int], cut: Sequence[int]) -> None:
        """Patches of this size from now on, in the middle of a cut that is larger by even numbers of voxels."""
        self.patch, self.cut = tuple(int(v) for v in patch), tuple(int(v) for v in cut)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        rng = np.random.default_rng(int(torch.randint(2**31, ()).item()))  # follows torch's seed, in workers too
        whole = self.length - self.length % len(self.rows)
        row = int(self.rows[item % len(self.rows) if item < whole else rng.integers(len(self.rows))])
        image, mask = self.volumes.image(row), self.volumes.mask(row)
        start = self._place(image.shape[1:], self.volumes.points(row), rng)
        start = [s - (have - want) // 2 for s, have, want in zip(start, self.cut, self.patch, strict=True)]
        pixels = cut(image, start, self.cut, self.pad).astype(np.float32, copy=False)
        return {"pixel_values": torch.from_numpy(pixels), "labels": torch.from_numpy(cut(mask, start, self.cut, 0))}

    def _place(self, shape: tuple[int, ...], points: np.ndarray, rng: np.random.Generator) -> list[int]:
        """Lowest corner: anywhere inside the image; axes shorter than the patch lie at a random place within it."""
        spare = [have - want for have, want in zip(shape, self.patch, strict=True)]
        start = [int(rng.integers(min(0, free), max(0, free) + 1)) for free in spare]
        if len(points) and rng.random() < self.share:
            present = np.unique(points[:, 0])
            of_class = points[points[:, 0] == present[rng.integers(len(present))]]
            centre = of_class[rng.integers(len(of_class)), 1:]
            for axis, free in enumerate(spare):
                if free > 0:
                    near = int(centre[axis]) - self.patch[axis] // 2 + int(rng.integers(-2, 3))
                    start[axis] = int(np.clip(near, 0, free))
        return start


class WholeCases(Dataset[dict[str, torch.Tensor]]):
    """Items `{"pixel_values": float32 (C, H, W[, D]), "labels": uint8}` of whatever size each case has."""

    def __init__(self, volumes: Volumes, rows: np.ndarray, records: Sequence[Mapping[str, Any]]):
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
    if count(plan) > 1:
        nothing = np.zeros((len(records), 0), np.float32)
        shared = assign_folds([patient_of(record) for record in records], nothing, parts(plan), seed)
        chosen = shared == part_of(plan, fold)
    else:
        chosen = hold_out(records, float(plan["validation_share"]), seed)
    known, held = np.flatnonzero(~chosen & volumes.readable), np.flatnonzero(chosen & volumes.readable)
    if not len(known) or not len(held):
        raise SystemExit("too few readable cases for a training and a validation part")
    return Patches(volumes, known, records, plan), WholeCases(volumes, held, records)


def every_case(plan: Mapping[str, Any]) -> Patches:
    """Patches of all cases that can be read: what a refit is trained on."""
    records = read_index()
    volumes = build_volumes(records, plan)
    return Patches(volumes, np.flatnonzero(volumes.readable), records, plan)
