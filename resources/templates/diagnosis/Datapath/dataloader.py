"""train.json as torch data sets: a training part and a validation part that share no patient."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from Utils.cache import build_cache
from Utils.kinds import kind_of
from Utils.members import assign_folds
from Utils.people import people_of


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Records `{"image_path", "labels" (or "grade", "value"), "patient"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} holds no record: write the training cases into it first")
    return records


class Cases(Dataset[dict[str, torch.Tensor]]):
    """Items `{"pixel_values": float32 (C, H, W[, D]), "labels": float32 (K,)}` out of the cache; of a number its one label."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, rows: np.ndarray, records: Sequence[Mapping[str, Any]]):
        self.images, self.labels, self.rows = images, labels, rows
        self.records = [records[int(row)] for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, items: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        """The items of a batch, read at once: torch's DataLoader asks for this where it exists."""
        rows = self.rows[list(items)]
        images = torch.from_numpy(np.asarray(self.images[rows], dtype=np.float32))
        labels = torch.from_numpy(self.labels[rows])
        return [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        row = int(self.rows[item])
        image = torch.from_numpy(np.array(self.images[row], dtype=np.float32))
        return {"pixel_values": image, "labels": torch.from_numpy(self.labels[row])}


def build_datasets(plan: Mapping[str, Any], fold: int = 0) -> tuple[Cases, Cases]:
    """Training and validation part. With `folds` > 1 the validation part is that fold; else `validation_share`."""
    images, labels, records, readable = _read(plan)
    folds = int(plan["folds"]) if int(plan["folds"]) > 1 else max(2, round(1 / float(plan["validation_share"])))
    strata = kind_of(plan).strata(labels)
    chosen = assign_folds(people_of(records), strata, folds, int(plan["seed"])) == fold
    parts = np.flatnonzero(~chosen & readable), np.flatnonzero(chosen & readable)
    if not len(parts[0]) or not len(parts[1]):
        raise SystemExit(
            f"{len(records)} cases cannot be split into training and validation by patient; a patient key that is the "
            "same for every record, or too few cases, does that: correct train.json"
        )
    return Cases(images, labels, parts[0], records), Cases(images, labels, parts[1], records)


def every_case(plan: Mapping[str, Any]) -> Cases:
    """All cases that can be read: what a refit is trained on."""
    images, labels, records, readable = _read(plan)
    return Cases(images, labels, np.flatnonzero(readable), records)


def _read(plan: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]], np.ndarray]:
    """Images out of the cache, labels, records, and which of them can be read."""
    records = read_index()
    images, readable = build_cache([record["image_path"] for record in records], plan)
    return images, kind_of(plan).encode(records), records, readable
