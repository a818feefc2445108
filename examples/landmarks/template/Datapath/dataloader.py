"""Images as (1, size, size) and points as (2,), both between 0 and 1; every fifth patient is for validation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

Record = Mapping[str, Any]


def read_picture(path: str, size: int) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return the image as (1, size, size), and the size of the file."""
    with Image.open(path) as image:
        grey = image.convert("L")
        pixels = np.asarray(grey.resize((size, size)), dtype=np.float32) / 255
    return torch.from_numpy(pixels)[None], grey.size


class Cases(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Cases, decoded once."""

    def __init__(self, records: Sequence[Record], size: int) -> None:
        self.records = list(records)
        self.items = [self._item(record, size) for record in records]

    def _item(self, record: Record, size: int) -> dict[str, torch.Tensor]:
        pixels, shape = read_picture(record["image_path"], size)
        point = torch.tensor(record["point"], dtype=torch.float32) / torch.tensor(shape)
        return {"pixel_values": pixels, "labels": point}

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.items[index]


def build_datasets(plan: Mapping[str, Any], fold: int = 0) -> tuple[Cases, Cases]:
    """Return the training and the validation part."""
    records = json.loads(Path("Datapath/train.json").read_text())
    validation_patients = set(sorted({record["patient"] for record in records})[fold::5])
    parts = (
        [r for r in records if r["patient"] not in validation_patients],
        [r for r in records if r["patient"] in validation_patients],
    )
    return Cases(parts[0], plan["size"]), Cases(parts[1], plan["size"])
