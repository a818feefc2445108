"""train.json as torch data sets: training and validation parts without common patients."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.training.cache import CachedImages, build_cache
from m3b.training.diagnosis.covariates import encode
from m3b.training.diagnosis.holdout import assign_held_out
from m3b.training.diagnosis.targets import get_target
from m3b.training.diagnosis.views import gather_views, index_views, view_count
from m3b.training.folds import REFIT_FOLD
from m3b.training.patients import list_patients, list_sites


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Records `{"image_path", "labels" (or "grade", "value"), "patient"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} holds no record: write the training cases into it first")
    return records


class CaseDataset(Dataset[dict[str, torch.Tensor]]):
    """Items `{"pixel_values": float32 (C, H, W[, D]), "labels": float32 (K,)}` from the cache; a number is one label.

    With `covariates` (N, width), an item has its own. With several views a case, `places` (N, V) are the image indices, -1 for missing
    views; pixels are then (V, C, H, W[, D]), and `views` (V,) is 1 for existing views.
    """

    def __init__(
        self, images: np.ndarray | CachedImages, labels: np.ndarray, rows: np.ndarray, records: Sequence[Mapping[str, Any]],
        covariates: np.ndarray | None = None, places: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.images, self.labels, self.rows, self.covariates = images, labels, rows, covariates
        self.places = places
        self.records = [records[int(row)] for row in rows]
        self.shared_cases = 0
        """Cases of a validation part that no network of the ensemble is trained on."""

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, items: np.ndarray, labels: np.ndarray) -> CaseDataset:
        """Return some of the items, with other labels (N, K) of all records."""
        part = copy.copy(self)
        part.labels, part.rows = labels, self.rows[items]
        part.records = [self.records[int(item)] for item in items]
        return part

    def __getitems__(self, items: Sequence[int]) -> list[dict[str, torch.Tensor]]:
        """Return the items of a batch, read at once: torch's DataLoader calls this if it exists."""
        rows = self.rows[list(items)]
        labels = torch.from_numpy(self.labels[rows])
        if self.places is None:
            images = torch.from_numpy(np.asarray(self.images[rows], dtype=np.float32))
            batch = [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]
        else:
            pixels, is_present = map(torch.from_numpy, gather_views(self.images, self.places[rows]))
            parts = zip(pixels, labels, is_present, strict=True)
            batch = [{"pixel_values": x, "labels": y, "views": v} for x, y, v in parts]
        if self.covariates is None:
            return batch
        return [
            {**item, "covariates": torch.from_numpy(self.covariates[row])}
            for item, row in zip(batch, rows, strict=True)
        ]

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return self.__getitems__([item])[0]


def build_datasets(plan: Mapping[str, Any], fold: int = 0) -> tuple[CaseDataset, CaseDataset]:
    """Return training and validation part of the network `fold`, see `assign_held_out`; all cases and none for `REFIT_FOLD`."""
    images, labels, records, readable, places = _read_cases(plan)
    is_held_out = is_shared = np.zeros(len(records), bool)
    if fold != REFIT_FOLD:
        strata = get_target(plan).strata(labels)
        held_out = assign_held_out(plan, list_patients(records), strata, list_sites(records))
        is_held_out, is_shared = held_out[fold], np.logical_and.reduce(held_out)
    items = np.flatnonzero(~is_held_out & readable), np.flatnonzero(is_held_out & readable)
    if not len(items[0]) or (fold != REFIT_FOLD and not len(items[1])):
        raise SystemExit(
            f"{len(records)} cases cannot be split into training and validation by patient: there are too few cases, or all "
            "records have the same patient; correct train.json"
        )
    covariates = _encode_covariates(records, plan)
    train, valid = (CaseDataset(images, labels, part, records, covariates, places) for part in items)
    valid.shared_cases = int((is_shared & readable).sum())
    return train, valid


def describe_parts(train: CaseDataset, valid: CaseDataset) -> str:
    """Return the sizes of both parts, and what the validation part of a fold consists of."""
    shared = valid.shared_cases if isinstance(valid, CaseDataset) else 0
    own = len(valid) - shared
    note = f" ({own} of its fold, {shared} that no network is trained on)" if own and shared else ""
    return f"{len(train)} training cases, {len(valid)} validation cases{note}"


def read_unlabelled_cases(plan: Mapping[str, Any], file: Path) -> CaseDataset:
    """Return the unlabelled images that can be read, with 0 for all labels."""
    records = read_index(file)
    images, readable = build_cache([record["image_path"] for record in records], plan, max_unreadable=1.0)
    labels = np.zeros((len(records), len(plan["classes"])), np.float32)
    return CaseDataset(images, labels, np.flatnonzero(readable), records, _encode_covariates(records, plan))


def _read_cases(
    plan: Mapping[str, Any],
) -> tuple[CachedImages, np.ndarray, list[dict[str, Any]], np.ndarray, np.ndarray | None]:
    """Return images from the cache, labels, records, which of them can be read, and for several views the image indices of each
    case."""
    records = read_index()
    labels = get_target(plan).encode(records)
    paths, places = [record["image_path"] for record in records], None
    if view_count(plan) > 1:
        paths, places = index_views(paths, plan)
    images, readable = build_cache(paths, plan)
    if places is not None:
        places = np.where(readable[places], places, -1)  # only views that can be read
        readable = np.asarray((places >= 0).any(axis=1))
    return images, labels, records, readable, places


def _encode_covariates(records: list[dict[str, Any]], plan: Mapping[str, Any]) -> np.ndarray | None:
    """Return (N, width) covariates of all records; None if the plan has none."""
    rules = plan.get("covariates") or []
    return encode([record["covariates"] for record in records], rules) if rules else None
