"""train.json as torch data sets of patches: a training part and a validation part that share no patient.

Images of any size are decoded once (`volume_cache`); a patch is cut out of them, centred on a lesion in
`plan["foreground"]` of the cases, anywhere else. Every lesion is as likely as any other of its class in its image, the
classes are equally likely, and so are the images that have the class: small lesions are drawn as often as large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from m3b.training.augment_masks import AugmentMasks, collate_cuts, cut_box
from m3b.training.detection.cases import Cases
from m3b.training.detection.index import hold_out, patient_of, read_index
from m3b.training.patients import assign_folds
from m3b.training.preprocess import surrounded

CUT = 0.5  # of a box outside the patch: from there on it is not asked for, and not counted as wrong either


class Patches(Dataset[dict[str, torch.Tensor]]):
    """Items {"pixel_values" (C, *patch), and "labels" (K, *patch) 0/1 or "boxes" (n, 2 d + 2)} of one part.

    Training items are drawn anew each time; validation items (`fixed`) are always the same, one an image.
    """

    def __init__(self, cases: Cases, rows: np.ndarray, fixed: bool) -> None:
        self.cases, self.rows, self.fixed = cases, rows, fixed
        self.records = [cases.records[int(row)] for row in rows]
        self.resize(cases.plan["patch"])
        self.having = [rows[cases.counts[rows, k] > 0] for k in range(cases.counts.shape[1])]

    def resize(self, patch: Sequence[int], augment: AugmentMasks | None = None) -> None:
        """Set the size of the patches. With `augment`, masks are cut as their drawn "move" needs them: a patch that is cut first
        and then turned has corners of false background."""
        self.patch, self.augment = [int(n) for n in patch], augment

    def __len__(self) -> int:
        return len(self.rows) if self.fixed else max(len(self.rows), int(self.cases.plan["patches"]))

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        rng = np.random.default_rng(item if self.fixed else int(torch.randint(2**31, (1,)).item()))
        row, centre = self._place(int(self.rows[item % len(self.rows)]), rng)
        image = self.cases.image(row)
        start = self._start(image.shape[1:], centre, rng)
        wide, size, move = cut_box(start, self.patch, self.augment.draw(self.patch, rng) if self.augment else None)
        result: dict[str, Any] = {"pixel_values": torch.from_numpy(cut(image, wide, size).astype(np.float32))}
        if self.augment:
            result["move"] = move
        if self.cases.boxes:
            result["boxes"] = torch.from_numpy(self._boxes(row, start)).float()
        else:
            mask = cut(self.cases.volumes.mask(row), wide, size, fill=0)
            result["labels"] = torch.from_numpy(mask.astype(np.uint8))
        return result

    def _place(self, row: int, rng: np.random.Generator) -> tuple[int, np.ndarray | None]:
        """The case, and the lesion to centre on, if any."""
        classes = [k for k, rows in enumerate(self.having) if len(rows)]
        if self.fixed:
            classes = [k for k in range(len(self.having)) if self.cases.counts[row, k] > 0]
        elif rng.random() >= float(self.cases.plan["foreground"]):
            return row, None
        if not classes:
            return row, None
        label = int(rng.choice(classes))
        row = row if self.fixed else int(rng.choice(self.having[label]))
        anchors = self.cases.anchors(row, label)
        return row, anchors[int(rng.integers(len(anchors)))]

    def _start(self, shape: Sequence[int], centre: np.ndarray | None, rng: np.random.Generator) -> list[int]:
        """Lower corner of the patch; images smaller than it lie in its middle."""
        start = []
        for axis, (have, want) in enumerate(zip(shape, self.patch, strict=True)):
            room = have - want
            if room <= 0:
                start.append(room // 2)
            elif centre is None:
                start.append(int(rng.integers(room + 1)))
            else:
                slip = 0 if self.fixed else int(rng.integers(-(want // 4), want // 4 + 1))
                start.append(int(np.clip(round(float(centre[axis])) - want // 2 + slip, 0, room)))
        return start

    def _boxes(self, row: int, start: Sequence[int]) -> np.ndarray:
        """(n, 2 d + 2) boxes that reach into the patch, clipped to it; the last column is 0 for those cut in two."""
        d = len(start)
        boxes = self.cases.boxes[row]
        low, high = boxes[:, :d] - start, boxes[:, d : 2 * d] - start
        centre, size = (low + high) / 2, np.array(self.patch, float)
        whole = (high - low).prod(axis=1)
        low, high = np.clip(low, 0, size), np.clip(high, 0, size)
        seen = (high - low).prod(axis=1) / np.maximum(whole, 1e-6)
        ours = ((centre >= 0) & (centre < size)).all(axis=1) & (seen >= CUT)
        rows = np.concatenate([low, high, boxes[:, 2 * d :], ours[:, None]], axis=1)
        result: np.ndarray = rows[seen > 0.02]
        return result


def cut(array: np.ndarray, start: Sequence[int], patch: Sequence[int], fill: float | None = None) -> np.ndarray:
    """The patch of (C, *image) from `start`, which may be negative; what lies outside is `fill`, or each channel's corner."""
    places = tuple(
        slice(max(0, s), max(0, min(n, s + p))) for s, n, p in zip(start, array.shape[1:], patch, strict=True)
    )
    piece = np.asarray(array[(slice(None), *places)])
    widths = [(max(0, -s), p - max(0, -s) - n) for s, p, n in zip(start, patch, piece.shape[1:], strict=True)]
    if not any(any(pair) for pair in widths):
        return piece
    return surrounded(piece, widths, array.reshape(len(array), -1)[:, 0] if fill is None else fill)


def collate(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Stacked; lists of boxes are filled up to the longest with rows of class -1. Cuts with moves stay lists."""
    if "move" in items[0]:
        return collate_cuts(items)
    batch = {key: torch.stack([item[key] for item in items]) for key in items[0] if key != "boxes"}
    if "boxes" in items[0]:
        rows = max(1, max(len(item["boxes"]) for item in items))
        width = items[0]["boxes"].shape[1]
        table = torch.zeros(len(items), rows, width)
        table[..., width - 2] = -1.0
        for place, item in enumerate(items):
            table[place, : len(item["boxes"])] = item["boxes"]
        batch["boxes"] = table
    return batch


def build_datasets(plan: Mapping[str, Any], fold: int = 0) -> tuple[Any, Any]:
    """Training and validation part of train.json: patches, or whole pictures of the few-shot engine. With `folds` > 1 the
    validation part is that fold; else `validation_share`."""
    if plan.get("engine", "patches") != "patches":
        from m3b.training.detection.fewshot.data import build_fewshot_datasets

        return build_fewshot_datasets(plan)
    records, seed, folds = read_index(), int(plan["seed"]), int(plan.get("folds") or 1)
    cases = Cases(records, plan)
    if folds > 1:
        people = [patient_of(record) for record in records]
        chosen = assign_folds(people, cases.counts.astype(np.float32), folds, seed) == fold
    else:
        chosen = hold_out(records, cases.counts, float(plan["validation_share"]), seed)
    readable = cases.volumes.readable
    train, valid = np.flatnonzero(~chosen & readable), np.flatnonzero(chosen & readable)
    if not len(valid) and not len(train):
        raise SystemExit("no training case can be read: correct train.json")
    if not len(train) or not len(valid):
        train = valid = train if len(train) else valid
        print("one image only: it serves for training and validation; the figures say nothing about others", flush=True)
    return Patches(cases, train, fixed=False), Patches(cases, valid, fixed=True)


def every_case(plan: Mapping[str, Any]) -> Patches:
    """Patches of all cases that can be read: what a refit is trained on."""
    cases = Cases(read_index(), plan)
    return Patches(cases, np.flatnonzero(cases.volumes.readable), fixed=False)
