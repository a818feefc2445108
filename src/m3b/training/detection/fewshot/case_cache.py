"""Cases of the few-shot engine on disk: small pictures, masks, and frozen features of the backbone, each row written once.

The files are memory-mapped arrays below the cache folder of the project. They are opened for each access, so that memory does not grow
with the number of cases. An interrupted computation continues.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from m3b.dataset.formats import DataError, Image, read_image
from m3b.training.cache import cache_key
from m3b.training.detection.fewshot.backbone import find_weights
from m3b.training.detection.fewshot.build import load_frozen_backbone
from m3b.training.detection.fewshot.model import adapter_blocks, frozen_features, max_patches
from m3b.training.detection.fewshot.views import prepare_picture
from m3b.training.ignored_voxels import mark_ignored
from m3b.training.mask_grid import load_ignored, load_masks
from m3b.training.precision import device_of
from m3b.training.resampling import take_nearest

CACHE_FOLDER = Path("Logout/cache")
CACHE_VERSION = 2
FEATURE_BATCH = 8
"""Pictures that the backbone takes at once."""
CASES_PER_FLUSH = 256
UNKNOWN, NORMAL, ABNORMAL, UNREADABLE = range(4)
"""State of a case in `states.npy`."""


def split_rows(rows: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield the rows in batches."""
    return (list(rows[first : first + size]) for first in range(0, len(rows), size))


class CaseCache:
    """Rows of all records; `states` (N,) says which can be read, and which are abnormal."""

    def __init__(
        self, records: Sequence[dict[str, Any]], plan: Mapping[str, Any], base: str = ".", folder: Path = CACHE_FOLDER
    ) -> None:
        self.records, self.plan, self.base = list(records), plan, base
        self.masked, self.has_backbone = plan["target"] == "masks", "folder" in plan["backbone"]
        self.cache_folder = folder
        self.folder = folder / f"fewshot-{self._key()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.errors: dict[int, str] = {}
        self.states, self.is_computed = (self._load_flags(name) for name in ("states", "computed"))
        pending = np.flatnonzero((self.states == UNKNOWN) | (self.states == UNREADABLE)).tolist()
        for rows in split_rows(pending, CASES_PER_FLUSH):
            for row in rows:
                self._read_case(row)
            self._save_flags("states", self.states)

    def _key(self) -> str:
        """Return a hash of what determines the rows: files of the cases and of the backbone, and settings."""
        plan, paths = self.plan, [record["image_path"] for record in self.records]
        paths += [path for record in self.records for key in ("mask_path", "ignore_path") if (path := record.get(key))]
        backbone = {name: value for name, value in plan["backbone"].items() if not name.startswith("why")}
        ordinary = {name: plan["ordinary"][name] for name in ("size", "mean", "std")}
        settings = [CACHE_VERSION, plan["target"], plan["classes"], plan.get("labels"), backbone, ordinary]
        if self.has_backbone:
            weights = find_weights(Path(plan["backbone"]["folder"])).stat()
            settings.append([weights.st_size, weights.st_mtime_ns])
        states = [record.get("abnormal") for record in self.records]
        text = json.dumps([settings, states, cache_key(paths, {}, self.base, self.cache_folder)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _read_case(self, row: int) -> None:
        record = self.records[row]
        try:
            image = read_image(record["image_path"], self.base)
            small = prepare_picture(image, self.plan["ordinary"], str(record["image_path"]))
            mask = self._read_mask(record, image) if self.masked else None
        except DataError as error:
            self.states[row], self.errors[row] = UNREADABLE, str(error)
            return
        self._write("small", [row], small[None].numpy())
        is_abnormal = bool(record["abnormal"]) if mask is None else bool((mask == 1).any())
        if mask is not None:
            self._write("masks", [row], mask[None])
        self.states[row] = ABNORMAL if is_abnormal else NORMAL

    def _read_mask(self, record: Mapping[str, Any], image: Image) -> np.ndarray:
        """Return (1, S, S) uint8: 1 where more than a quarter of the labelled pixels of a cell is marked, or IGNORE."""
        masks = load_masks(record, {"classes": self.plan["classes"], "labels": self.plan["labels"]}, image, self.base)
        marked, ignored = masks.any(axis=0), load_ignored(record, image, self.base)
        side = int(self.plan["backbone"]["size"])
        layers = torch.from_numpy(np.stack([marked, np.ones_like(marked) if ignored is None else ~ignored])).float()
        filled, labelled = functional.interpolate(layers[None], size=(side, side), mode="area")[0].numpy()
        return mark_ignored(filled > 0.25 * labelled, None if ignored is None else take_nearest(ignored, (side, side)))[
            None
        ]

    # --- rows ----------------------------------------------------------------------------------------------------

    def small_pictures(self, rows: Sequence[int]) -> torch.Tensor:
        """Return (B, 3, s, s) pictures for the ordinary network."""
        return self._read("small", rows)

    def labels(self, rows: Sequence[int]) -> torch.Tensor:
        """Return (B, 1) states, or (B, 1, S, S) masks, as 0 or 1, or IGNORE."""
        if self.masked:
            return self._read("masks", rows).float()
        return torch.from_numpy(self.states[list(rows)] == ABNORMAL).float()[:, None]

    def pictures(self, rows: Sequence[int]) -> torch.Tensor:
        """Return (B, 3, S, S) pictures for the backbone, decoded now."""
        paths = [self.records[row]["image_path"] for row in rows]
        images = ((path, read_image(path, self.base)) for path in paths)
        return torch.stack([prepare_picture(image, self.plan["backbone"], str(path)) for path, image in images])

    def features(self, rows: Sequence[int]) -> list[torch.Tensor]:
        """Return (B, patches, width) frozen features of each depth; missing ones are computed."""
        self.compute_features(rows)
        files = sorted(self.folder.glob("depth*.npy"))
        return [self._read(file.stem, rows).float() for file in files]

    def compute_features(self, rows: Sequence[int]) -> None:
        """Run the backbone over the pictures whose features are not on disk yet."""
        missing = [row for row in rows if not self.is_computed[row]]
        if not missing:
            return
        backbone, _ = load_frozen_backbone(self.plan)
        device, blocks = device_of(self.plan), adapter_blocks(backbone)
        backbone.vision.to(device)
        for batch in split_rows(missing, FEATURE_BATCH):
            pictures = self.pictures(batch).to(device)
            depths = frozen_features(backbone.vision, blocks, pictures, max_patches(self.plan))
            for depth, values in enumerate(depths):
                self._write(f"depth{depth}", batch, values.cpu().numpy())
            self.is_computed[batch] = 1
            self._save_flags("computed", self.is_computed)
        backbone.vision.to("cpu")

    # --- files ---------------------------------------------------------------------------------------------------

    def _write(self, name: str, rows: Sequence[int], values: np.ndarray) -> None:
        file = self.folder / f"{name}.npy"
        if file.exists():
            array = np.lib.format.open_memmap(file, mode="r+")
        else:
            shape = (len(self.records), *values.shape[1:])
            array = np.lib.format.open_memmap(file, mode="w+", dtype=values.dtype, shape=shape)
        array[list(rows)] = values

    def _read(self, name: str, rows: Sequence[int]) -> torch.Tensor:
        return torch.from_numpy(np.array(np.load(self.folder / f"{name}.npy", mmap_mode="r")[list(rows)]))

    def _load_flags(self, name: str) -> np.ndarray:
        file = self.folder / f"{name}.npy"
        flags: np.ndarray = np.load(file) if file.exists() else np.zeros(len(self.records), np.uint8)
        return flags

    def _save_flags(self, name: str, flags: np.ndarray) -> None:
        temporary = self.folder / f"{name}.tmp"
        with temporary.open("wb") as stream:
            np.save(stream, flags)
        os.replace(temporary, self.folder / f"{name}.npy")
