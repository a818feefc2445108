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
from Utils.covariates import encode
from Utils.kinds import kind_of


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Records `{"image_path", "labels" (or "grade", "value"), "patient"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} holds no record: write the training cases into it first")
    return records


def assign_folds(records: Sequence[Mapping[str, Any]], labels: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """(N,) fold of each case: a patient lies in one fold, and each fold gets its share of every class.

    Greedy: patients from the largest down (ties in random order), each to the fold that lacks their labels most.
    """
    groups: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        groups.setdefault(str(record.get("patient") or json.dumps(record["image_path"])), []).append(row)
    members = [np.array(rows) for rows in groups.values()]
    np.random.default_rng(seed).shuffle(members)
    members.sort(key=len, reverse=True)
    columns = np.concatenate([labels, np.ones((len(labels), 1), np.float32)], axis=1)  # the last one counts cases
    weight = 1.0 / np.maximum(columns.sum(axis=0), 1.0)
    want = np.tile(columns.sum(axis=0) / folds, (folds, 1))
    result = np.zeros(len(labels), np.int64)
    for rows in members:
        gain = columns[rows].sum(axis=0)
        fold = int(np.argmax(((want**2 - (want - gain) ** 2) * weight).sum(axis=1)))
        want[fold] -= gain
        result[rows] = fold
    return result


class Cases(Dataset[dict[str, torch.Tensor]]):
    """Items `{"pixel_values": float32 (C, H, W[, D]), "labels": float32 (K,)}` out of the cache; of a number its one label.

    Where there are `covariates`, (N, width), an item has its own too.
    """

    def __init__(
        self, images: np.ndarray, labels: np.ndarray, rows: np.ndarray, records: Sequence[Mapping[str, Any]],
        covariates: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.images, self.labels, self.rows, self.covariates = images, labels, rows, covariates
        self.records = [records[int(row)] for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, items: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        """The items of a batch, read at once: torch's DataLoader asks for this where it exists."""
        rows = self.rows[list(items)]
        images = torch.from_numpy(np.asarray(self.images[rows], dtype=np.float32))
        labels = torch.from_numpy(self.labels[rows])
        found = [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]
        if self.covariates is None:
            return found
        return [
            {**one, "covariates": torch.from_numpy(self.covariates[row])} for one, row in zip(found, rows, strict=True)
        ]

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return self.__getitems__([item])[0]


def build_datasets(plan: Mapping[str, Any], fold: int = 0) -> tuple[Cases, Cases]:
    """Training and validation part. With `folds` > 1 the validation part is that fold; else `validation_share`."""
    records = read_index()
    kind = kind_of(plan)
    labels = kind.encode(records)
    images, readable = build_cache([record["image_path"] for record in records], plan)
    folds = int(plan["folds"]) if int(plan["folds"]) > 1 else max(2, round(1 / float(plan["validation_share"])))
    chosen = assign_folds(records, kind.strata(labels), folds, int(plan["seed"])) == fold
    parts = np.flatnonzero(~chosen & readable), np.flatnonzero(chosen & readable)
    if not len(parts[0]) or not len(parts[1]):
        raise SystemExit(
            f"{len(records)} cases cannot be split into training and validation by patient; a patient key that is the "
            "same for every record, or too few cases, does that: correct train.json"
        )
    rules = plan.get("covariates") or []
    given = encode([record["covariates"] for record in records], rules) if rules else None
    return Cases(images, labels, parts[0], records, given), Cases(images, labels, parts[1], records, given)
