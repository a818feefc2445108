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
from m3b.training.report.findings import stated
from m3b.training.report.tokenizer import IGNORED, SECTIONS, Words, clean

TOKENIZER = "tokenizer.json"
Record = Mapping[str, Any]


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Records `{"image_path", "report": {"findings", "impression"}, "labels"?, "patient"}` that have a text."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    kept = [record for record in records if whole_text(report_of(record))]
    if not kept:
        raise SystemExit(f"{path} holds {len(records)} records and none with a report: write findings or impression")
    return kept


def report_of(record: Record) -> dict[str, str]:
    """The sections, cleaned; what is missing is ""."""
    report = record.get("report") or {}
    if not isinstance(report, Mapping):
        raise SystemExit(f"record {record['image_path']}: report must be an object with findings and impression")
    return {name: clean(report.get(name)) for name in SECTIONS}


def whole_text(report: Mapping[str, str]) -> str:
    return " ".join(report[name] for name in SECTIONS if report[name])


def views_of(record: Record) -> list[Any]:
    """The pictures of a study: those of a list, or the one image (which may be an object of named channels)."""
    path = record["image_path"]
    return list(path) if isinstance(path, list) else [path]


def held_out(records: Sequence[Record], share: float, seed: int = 0) -> np.ndarray:
    """(N,) bool: the validation part, about `share` of the cases, whole patients drawn at random."""
    groups: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        groups.setdefault(str(record.get("patient") or json.dumps(record["image_path"])), []).append(row)
    order = list(groups)
    np.random.default_rng(seed).shuffle(order)
    chosen, wanted = np.zeros(len(records), bool), max(1, round(share * len(records)))
    for name in order[:-1]:  # one patient at least is for the training
        if chosen.sum() >= wanted:
            break
        if chosen.sum() + len(groups[name]) <= 2 * wanted:
            chosen[groups[name]] = True
    if not chosen.any():
        raise SystemExit(
            f"{len(records)} cases of {len(groups)} patient(s) cannot be split into training and validation by patient; "
            "a patient key that is the same for every record does that: correct train.json"
        )
    return chosen


def finding_table(records: Sequence[Record], plan: Mapping[str, Any]) -> np.ndarray:
    """(N, classes + mined findings) float32: the record's labels, then what its report states."""
    classes = {name: k for k, name in enumerate(plan["classes"])}
    given = np.zeros((len(records), len(classes)), np.float32)
    for row, record in enumerate(records):
        for label in record.get("labels") or []:
            if label not in classes:
                raise SystemExit(
                    f"record {record['image_path']}: label {label!r} is not in label_dict.json {list(classes)}"
                )
            given[row, classes[label]] = 1.0
    mined = stated([whole_text(report_of(record)) for record in records], plan["findings"]).astype(np.float32)
    return np.concatenate([given, mined], axis=1)


class Studies(Dataset[dict[str, torch.Tensor]]):
    """Items: `pixel_values` float32 (V, C, H, W[, D]), `views` float32 (V,) which of them exist, `tokens` and `targets`
    int64 (T,), padded to the longest report allowed, `findings` float32 (K,)."""

    def __init__(
        self,
        images: np.ndarray,
        places: list[list[int]],
        records: Sequence[Record],
        plan: Mapping[str, Any],
        words: Words,
    ) -> None:
        self.images, self.places, self.records, self.plan = images, places, list(records), plan
        self.findings = finding_table(records, plan)
        self.texts = [words.sequence(report_of(record), plan["max_tokens"]) for record in records]
        self.longest = max([len(tokens) for tokens, _ in self.texts], default=1)
        self.pad = words.pad

    def __len__(self) -> int:
        return len(self.records)

    def pictures(self, item: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(V, C, ...) with zeros for missing views, and (V,) which exist."""
        room, rows = int(self.plan["views"]), self.places[item]
        pixels = np.zeros((room, *self.images.shape[1:]), np.float32)
        pixels[: len(rows)] = self.images[rows]
        there = torch.zeros(room)
        there[: len(rows)] = 1.0
        return torch.from_numpy(pixels), there

    def without_pictures(self) -> Dataset[dict[str, torch.Tensor]]:
        """The same items without `pixel_values` and `views`, which then are not read."""
        return _Texts(self)

    def collate(self, items: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Stacked; texts end with the longest of the batch."""
        batch = {key: torch.stack([item[key] for item in items]) for key in items[0]}
        longest = int((batch["tokens"] != self.pad).any(dim=0).nonzero().max()) + 1
        return {key: value[:, :longest] if key in ("tokens", "targets") else value for key, value in batch.items()}

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        pixels, there = self.pictures(item)
        return {"pixel_values": pixels, "views": there, **self.words(item)}

    def words(self, item: int) -> dict[str, torch.Tensor]:
        inputs, targets = self.texts[item]
        rest = self.longest - len(inputs)
        return {
            "tokens": torch.tensor([*inputs, *[self.pad] * rest]),
            "targets": torch.tensor([*targets, *[IGNORED] * rest]),
            "findings": torch.from_numpy(self.findings[item]),
        }


class _Texts(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, studies: Studies) -> None:
        self.studies = studies

    def __len__(self) -> int:
        return len(self.studies)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return self.studies.words(item)


def build_datasets(plan: Mapping[str, Any]) -> tuple[Studies, Studies]:
    """Training and validation part, by patient; studies of which no view can be read are left out."""
    records, words = read_index(), Words.load(TOKENIZER)
    room = int(plan["views"])
    lists = [views_of(record)[:room] for record in records]
    images, readable = build_cache([path for views in lists for path in views], plan)
    numbers = iter(range(len(images)))
    places = [[number for number in [next(numbers) for _ in views] if readable[number]] for views in lists]
    valid = held_out(records, float(plan["validation_share"]), int(plan["seed"]))
    parts = []
    for chosen in (~valid, valid):
        rows = [int(row) for row in np.flatnonzero(chosen) if places[row]]
        if not rows:
            raise SystemExit(
                "no readable study is left for the training or for the validation part: correct train.json"
            )
        parts.append(Studies(images, [places[row] for row in rows], [records[row] for row in rows], plan, words))
    return parts[0], parts[1]
