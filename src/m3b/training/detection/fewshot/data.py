"""Training cases as pictures for a backbone, with their labels; and draws of k examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import Dataset

from m3b.dataset.formats import DataError, Image, read_image
from m3b.training.detection.fewshot.views import prepare_picture
from m3b.training.detection.index import hold_out, patient_of, read_index
from m3b.training.mask_grid import load_masks

MIN_CASES_TO_SPLIT = 4
"""Minimum cases of each state to hold a validation part out."""


class PictureCases(Dataset[dict[str, torch.Tensor]]):
    """Items {"pixel_values" (3, S, S), "labels" (1,) or, with masks, (1, S, S)}, decoded once."""

    def __init__(self, records: Sequence[dict[str, Any]], plan: Mapping[str, Any], base: str = ".") -> None:
        self.records, self.masked = list(records), plan["target"] == "masks"
        pictures, truths, self.unreadable = [], [], []
        readable = []
        for record in self.records:
            try:
                image = read_image(record["image_path"], base)
                target = _read_target(record, plan, image)
            except DataError as error:
                self.unreadable.append(str(error))
                continue
            pictures.append(prepare_picture(image, plan["backbone"], str(record["image_path"])))
            truths.append(target)
            readable.append(record)
        if not readable:
            raise SystemExit(
                f"no training case can be read; first: {self.unreadable[0] if self.unreadable else 'none'}"
            )
        self.records = readable
        self.pictures, self.truths = torch.stack(pictures), torch.stack(truths)
        self.abnormal = self.truths.flatten(1).amax(dim=1) > 0.5

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.pictures[item], "labels": self.truths[item]}

    def people(self) -> list[str]:
        """Return the patient of each case."""
        return [patient_of(record) for record in self.records]

    def part(self, rows: Sequence[int]) -> PictureCases:
        """Return the cases of these rows."""
        subset = object.__new__(PictureCases)
        row_index = torch.as_tensor(list(rows), dtype=torch.long)
        subset.records, subset.masked, subset.unreadable = [self.records[row] for row in rows], self.masked, []
        subset.pictures, subset.truths = self.pictures[row_index], self.truths[row_index]
        subset.abnormal = self.abnormal[row_index]
        return subset


def _read_target(record: Mapping[str, Any], plan: Mapping[str, Any], image: Image) -> torch.Tensor:
    if plan["target"] != "masks":
        return torch.tensor([float(bool(record["abnormal"]))])
    masks = load_masks(record, {"classes": plan["classes"], "labels": plan["labels"]}, image).any(axis=0)
    side = int(plan["backbone"]["size"])
    small = functional.interpolate(
        torch.from_numpy(masks.astype(np.float32))[None, None], size=(side, side), mode="area"
    )
    return (small[0] > 0.25).float()


def draw_examples(cases: PictureCases, shots: int | None, seed: int) -> list[int]:
    """Return rows of k normal and k abnormal cases, at most one per patient while there are enough; all if `shots` is None.

    Raises:
        SystemExit: fewer cases of a state than requested; a set without abnormal cases is normal-only and needs none.
    """
    if shots is None:
        return list(range(len(cases)))
    rng = np.random.default_rng(seed)
    examples: list[int] = []
    for state, name in ((False, "normal"), (True, "abnormal")):
        rows = [row for row in range(len(cases)) if bool(cases.abnormal[row]) == state]
        if len(rows) < shots and (rows or not state):
            raise SystemExit(
                f"fewshot.shots is {shots}, and train.json has {len(rows)} readable {name} cases: set fewshot.shots={len(rows)} "
                "or less, or null for all"
            )
        rng.shuffle(rows)
        first_rows: dict[str, int] = {}
        for row in rows:
            first_rows.setdefault(patient_of(cases.records[row]), row)
        one_per_patient = list(first_rows.values())
        examples += (one_per_patient + [row for row in rows if row not in set(one_per_patient)])[:shots] if rows else []
    return examples


def split_validation(cases: PictureCases, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return training and validation rows, patients separate; no validation rows if there are too few cases."""
    abnormal_count = int(cases.abnormal.sum())
    if min(abnormal_count, len(cases) - abnormal_count) < MIN_CASES_TO_SPLIT:
        return list(range(len(cases))), []
    columns = np.stack([cases.abnormal.numpy(), ~cases.abnormal.numpy()], axis=1).astype(float)
    is_validation = hold_out(cases.records, columns, share, seed)
    train, valid = np.flatnonzero(~is_validation).tolist(), np.flatnonzero(is_validation).tolist()
    states = {bool(cases.abnormal[row]) for row in valid}
    return (train, valid) if len(states) == 2 else (list(range(len(cases))), [])


def build_fewshot_datasets(plan: Mapping[str, Any]) -> tuple[PictureCases, PictureCases]:
    """Return training and validation part of train.json; the same cases if they are too few to split."""
    cases = PictureCases(read_index(), plan)
    train, valid = split_validation(cases, float(plan["validation_share"]), int(plan["seed"]))
    return cases.part(train), cases.part(valid or train)
