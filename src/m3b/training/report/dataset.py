"""train.json as torch data sets: training and validation parts without common patients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.training.cache import CachedImages, build_cache
from m3b.training.report.findings import label_reports
from m3b.training.report.tokenizer import IGNORED_TARGET, SECTIONS, ReportTokenizer, clean_text

TOKENIZER_FILE = "tokenizer.json"
Record = Mapping[str, Any]


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Return records `{"image_path", "report": {"findings", "impression"}, "labels"?, "patient"}` that have a text."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    with_text = [record for record in records if join_sections(read_report(record))]
    if not with_text:
        raise SystemExit(f"{path} has {len(records)} records and none with a report: write findings or impression")
    return with_text


def read_report(record: Record) -> dict[str, str]:
    """Return the cleaned sections, "" for missing ones."""
    report = record.get("report") or {}
    if not isinstance(report, Mapping):
        raise SystemExit(f"record {record['image_path']}: report must be an object with findings and impression")
    return {name: clean_text(report.get(name)) for name in SECTIONS}


def join_sections(report: Mapping[str, str]) -> str:
    return " ".join(report[name] for name in SECTIONS if report[name])


def list_views(record: Record) -> list[Any]:
    """Return the images of a study: those of a list, or the single image (which may be an object of named channels)."""
    path = record["image_path"]
    return list(path) if isinstance(path, list) else [path]


def assign_validation(records: Sequence[Record], share: float, seed: int = 0) -> np.ndarray:
    """Return (N,) bool: the validation part, about `share` of the cases, complete patients at random."""
    groups: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        groups.setdefault(str(record.get("patient") or json.dumps(record["image_path"])), []).append(row)
    order = list(groups)
    np.random.default_rng(seed).shuffle(order)
    is_validation, target = np.zeros(len(records), bool), max(1, round(share * len(records)))
    for name in order[:-1]:  # at least one patient is for training
        if is_validation.sum() >= target:
            break
        if is_validation.sum() + len(groups[name]) <= 2 * target:
            is_validation[groups[name]] = True
    if not is_validation.any():
        raise SystemExit(
            f"{len(records)} cases of {len(groups)} patient(s) cannot be split into training and validation by patient: there are too "
            "few cases, or all records have the same patient; correct train.json"
        )
    return is_validation


def label_findings(records: Sequence[Record], plan: Mapping[str, Any]) -> np.ndarray:
    """Return (N, classes + mined findings) float32: the record's labels, then the findings that its report states."""
    classes = {name: k for k, name in enumerate(plan["classes"])}
    labels = np.zeros((len(records), len(classes)), np.float32)
    for row, record in enumerate(records):
        for label in record.get("labels") or []:
            if label not in classes:
                raise SystemExit(
                    f"record {record['image_path']}: label {label!r} is not in label_dict.json {list(classes)}"
                )
            labels[row, classes[label]] = 1.0
    stated_findings = label_reports(
        [join_sections(read_report(record)) for record in records], plan["findings"]
    ).astype(np.float32)
    return np.concatenate([labels, stated_findings], axis=1)


class StudyDataset(Dataset[dict[str, torch.Tensor]]):
    """Items: `pixel_values` float32 (V, C, H, W[, D]), `views` float32 (V,) 1 for existing views, `tokens` and `targets` int64 (T,),
    padded to the longest report, `findings` float32 (K,)."""

    def __init__(
        self,
        images: np.ndarray | CachedImages,
        places: list[list[int]],
        records: Sequence[Record],
        plan: Mapping[str, Any],
        tokenizer: ReportTokenizer,
    ) -> None:
        self.images, self.view_rows, self.records, self.plan = images, places, list(records), plan
        self.findings = label_findings(records, plan)
        self.texts = [tokenizer.sequence(read_report(record), plan["max_tokens"]) for record in records]
        self.longest = max([len(tokens) for tokens, _ in self.texts], default=1)
        self.pad = tokenizer.pad

    def __len__(self) -> int:
        return len(self.records)

    def load_images(self, item: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (V, C, ...) with zeros for missing views, and (V,) 1 for existing ones."""
        max_views, rows = int(self.plan["views"]), self.view_rows[item]
        pixels = np.zeros((max_views, *self.images.shape[1:]), np.float32)
        pixels[: len(rows)] = self.images[rows]
        view_mask = torch.zeros(max_views)
        view_mask[: len(rows)] = 1.0
        return torch.from_numpy(pixels), view_mask

    def without_images(self) -> Dataset[dict[str, torch.Tensor]]:
        """Return the same items without `pixel_values` and `views`, which are not read."""
        return _TextDataset(self)

    def collate(self, items: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Stack items; texts are cut to the longest of the batch."""
        batch = {key: torch.stack([item[key] for item in items]) for key in items[0]}
        longest = int((batch["tokens"] != self.pad).any(dim=0).nonzero().max()) + 1
        return {key: value[:, :longest] if key in ("tokens", "targets") else value for key, value in batch.items()}

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        pixels, view_mask = self.load_images(item)
        return {"pixel_values": pixels, "views": view_mask, **self.text_item(item)}

    def text_item(self, item: int) -> dict[str, torch.Tensor]:
        inputs, targets = self.texts[item]
        padding = self.longest - len(inputs)
        return {
            "tokens": torch.tensor([*inputs, *[self.pad] * padding]),
            "targets": torch.tensor([*targets, *[IGNORED_TARGET] * padding]),
            "findings": torch.from_numpy(self.findings[item]),
        }


class _TextDataset(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, studies: StudyDataset) -> None:
        self.studies = studies

    def __len__(self) -> int:
        return len(self.studies)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return self.studies.text_item(item)


def build_datasets(plan: Mapping[str, Any]) -> tuple[StudyDataset, StudyDataset]:
    """Return training and validation part by patient; studies without a readable view are excluded."""
    records, tokenizer = read_index(), ReportTokenizer.load(TOKENIZER_FILE)
    max_views = int(plan["views"])
    view_lists = [list_views(record)[:max_views] for record in records]
    images, readable = build_cache([path for views in view_lists for path in views], plan)
    numbers = iter(range(len(images)))
    places = [[number for number in [next(numbers) for _ in views] if readable[number]] for views in view_lists]
    valid = assign_validation(records, float(plan["validation_share"]), int(plan["seed"]))
    parts = []
    for is_validation in (~valid, valid):
        rows = [int(row) for row in np.flatnonzero(is_validation) if places[row]]
        if not rows:
            raise SystemExit("no readable study is left for training or validation: correct train.json")
        parts.append(
            StudyDataset(images, [places[row] for row in rows], [records[row] for row in rows], plan, tokenizer)
        )
    return parts[0], parts[1]
