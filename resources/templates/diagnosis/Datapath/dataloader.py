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
from Utils.studies import gathered, placed, room


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

    Where there are `covariates`, (N, width), an item has its own too. Of cases of several views `places` (N, V) says where theirs lie
    among the images, -1 for none; an item's pixels are then (V, C, H, W[, D]), and its `views` (V,) tells which are there.
    """

    def __init__(
        self, images: np.ndarray, labels: np.ndarray, rows: np.ndarray, records: Sequence[Mapping[str, Any]],
        covariates: np.ndarray | None = None, places: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.images, self.labels, self.rows, self.covariates = images, labels, rows, covariates
        self.places = places
        self.records = [records[int(row)] for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, items: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        """The items of a batch, read at once: torch's DataLoader asks for this where it exists."""
        rows = self.rows[list(items)]
        labels = torch.from_numpy(self.labels[rows])
        if self.places is None:
            images = torch.from_numpy(np.asarray(self.images[rows], dtype=np.float32))
            found = [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]
        else:
            pixels, there = map(torch.from_numpy, gathered(self.images, self.places[rows]))
            parts = zip(pixels, labels, there, strict=True)
            found = [{"pixel_values": x, "labels": y, "views": v} for x, y, v in parts]
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
    paths, places = [record["image_path"] for record in records], None
    if room(plan) > 1:
        paths, places = placed(paths, plan)
    images, readable = build_cache(paths, plan)
    if places is not None:
        places = np.where(readable[places], places, -1)  # of a case the views that can be read
        readable = (places >= 0).any(axis=1)
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
    return tuple(Cases(images, labels, part, records, given, places) for part in parts)  # type: ignore[return-value]
