"""train.json as torch data sets: a training part and a validation part that share no patient."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.training.cache import build_cache
from m3b.training.diagnosis.covariates import encode
from m3b.training.diagnosis.holdout import held_out
from m3b.training.diagnosis.targets import kind_of
from m3b.training.diagnosis.views import gathered, placed, room
from m3b.training.patients import people_of


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Records `{"image_path", "labels" (or "grade", "value"), "patient"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} holds no record: write the training cases into it first")
    return records


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
    """Training and validation part of the network `fold`, see `held_out`."""
    images, labels, records, readable, places = _read(plan)
    chosen = held_out(plan, people_of(records), kind_of(plan).strata(labels))[fold]
    parts = np.flatnonzero(~chosen & readable), np.flatnonzero(chosen & readable)
    if not len(parts[0]) or not len(parts[1]):
        raise SystemExit(
            f"{len(records)} cases cannot be split into training and validation by patient; a patient key that is the "
            "same for every record, or too few cases, does that: correct train.json"
        )
    given = _given(records, plan)
    return tuple(Cases(images, labels, part, records, given, places) for part in parts)  # type: ignore[return-value]


def every_case(plan: Mapping[str, Any]) -> Cases:
    """All cases that can be read: what a refit is trained on."""
    images, labels, records, readable, places = _read(plan)
    return Cases(images, labels, np.flatnonzero(readable), records, _given(records, plan), places)


def _read(
    plan: Mapping[str, Any],
) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]], np.ndarray, np.ndarray | None]:
    """Images out of the cache, labels, records, which of them can be read, and of cases of several views the places of theirs."""
    records = read_index()
    labels = kind_of(plan).encode(records)
    paths, places = [record["image_path"] for record in records], None
    if room(plan) > 1:
        paths, places = placed(paths, plan)
    images, readable = build_cache(paths, plan)
    if places is not None:
        places = np.where(readable[places], places, -1)  # of a case the views that can be read
        readable = (places >= 0).any(axis=1)
    return images, labels, records, readable, places


def _given(records: list[dict[str, Any]], plan: Mapping[str, Any]) -> np.ndarray | None:
    """(N, width) covariates of all records; None where the plan has none."""
    rules = plan.get("covariates") or []
    return encode([record["covariates"] for record in records], rules) if rules else None
