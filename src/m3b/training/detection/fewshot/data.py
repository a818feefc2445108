"""The training cases as pictures for a backbone, with what is known of each; and the k examples that are drawn of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import Dataset

from m3b.dataset.formats import DataError, Image, read_image
from m3b.training.detection.fewshot.views import prepare
from m3b.training.detection.index import hold_out, patient_of, read_index
from m3b.training.mask_grid import load_masks

FEW_TO_CHOOSE = 4
"""Cases of each state from which on a part is held out to choose the model on."""


class Cases(Dataset[dict[str, torch.Tensor]]):
    """Items {"pixel_values" (3, S, S), "labels" (1,) or, where there are masks, (1, S, S)}, decoded once."""

    def __init__(self, records: Sequence[dict[str, Any]], plan: Mapping[str, Any], base: str = ".") -> None:
        self.records, self.masked = list(records), plan["target"] == "masks"
        pictures, truths, self.unreadable = [], [], []
        kept = []
        for record in self.records:
            try:
                image = read_image(record["image_path"], base)
                truth = _truth(record, plan, image)
            except DataError as error:
                self.unreadable.append(str(error))
                continue
            pictures.append(prepare(image, plan["backbone"], str(record["image_path"])))
            truths.append(truth)
            kept.append(record)
        if not kept:
            raise SystemExit(
                f"no training case can be read; first: {self.unreadable[0] if self.unreadable else 'none'}"
            )
        self.records = kept
        self.pictures, self.truths = torch.stack(pictures), torch.stack(truths)
        self.abnormal = self.truths.flatten(1).amax(dim=1) > 0.5

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.pictures[item], "labels": self.truths[item]}

    def people(self) -> list[str]:
        """Whose each case is."""
        return [patient_of(record) for record in self.records]

    def part(self, rows: Sequence[int]) -> Cases:
        """Some of them."""
        made = object.__new__(Cases)
        chosen = torch.as_tensor(list(rows), dtype=torch.long)
        made.records, made.masked, made.unreadable = [self.records[row] for row in rows], self.masked, []
        made.pictures, made.truths = self.pictures[chosen], self.truths[chosen]
        made.abnormal = self.abnormal[chosen]
        return made


def _truth(record: Mapping[str, Any], plan: Mapping[str, Any], image: Image) -> torch.Tensor:
    if plan["target"] != "masks":
        return torch.tensor([float(bool(record["abnormal"]))])
    masks = load_masks(record, {"classes": plan["classes"], "labels": plan["labels"]}, image).any(axis=0)
    side = int(plan["backbone"]["size"])
    small = functional.interpolate(
        torch.from_numpy(masks.astype(np.float32))[None, None], size=(side, side), mode="area"
    )
    return (small[0] > 0.25).float()


def draw(cases: Cases, shots: int | None, seed: int) -> list[int]:
    """Rows of k normal and k abnormal cases, at most one a patient while there are enough; all where `shots` is None.

    Raises:
        SystemExit: fewer cases of a state than asked for; a set without any abnormal case is normal-only and may lack those.
    """
    if shots is None:
        return list(range(len(cases)))
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for state, name in ((False, "normal"), (True, "abnormal")):
        rows = [row for row in range(len(cases)) if bool(cases.abnormal[row]) == state]
        if len(rows) < shots and (rows or not state):
            raise SystemExit(
                f"fewshot.shots is {shots}, and train.json has {len(rows)} readable {name} cases: set fewshot.shots={len(rows)} "
                "or less, or null to take all"
            )
        rng.shuffle(rows)
        first: dict[str, int] = {}
        for row in rows:
            first.setdefault(patient_of(cases.records[row]), row)
        own = list(first.values())
        chosen += (own + [row for row in rows if row not in set(own)])[:shots] if rows else []
    return chosen


def divide(cases: Cases, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Rows to train on and rows to choose the model on, patients apart; none of the latter where there are too few."""
    ill = int(cases.abnormal.sum())
    if min(ill, len(cases) - ill) < FEW_TO_CHOOSE:
        return list(range(len(cases))), []
    columns = np.stack([cases.abnormal.numpy(), ~cases.abnormal.numpy()], axis=1).astype(float)
    held = hold_out(cases.records, columns, share, seed)
    train, valid = np.flatnonzero(~held).tolist(), np.flatnonzero(held).tolist()
    both = {bool(cases.abnormal[row]) for row in valid}
    return (train, valid) if len(both) == 2 else (list(range(len(cases))), [])


def build_fewshot_datasets(plan: Mapping[str, Any]) -> tuple[Cases, Cases]:
    """Training part and validation part of train.json; the same cases where they are too few to divide."""
    cases = Cases(read_index(), plan)
    train, valid = divide(cases, float(plan["validation_share"]), int(plan["seed"]))
    return cases.part(train), cases.part(valid or train)
