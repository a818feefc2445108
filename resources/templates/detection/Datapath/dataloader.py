"""train.json as torch data sets of patches: a training part and a validation part that share no patient.

Images of any size are decoded once (Utils/volumes.py); a patch is cut out of them, centred on a lesion in
`plan["foreground"]` of the cases, anywhere else. Every lesion is as likely as any other of its class in its image, the
classes are equally likely, and so are the images that have the class: small lesions are drawn as often as large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from Datapath.index import hold_out, read_index, true_boxes
from torch.utils.data import Dataset
from Utils.formats import ImageError
from Utils.volumes import Volumes, build_volumes

CUT = 0.5  # of a box outside the patch: from there on it is not asked for, and not counted as wrong either


class Cases:
    """What every patch comes from: cached images, with their masks or their boxes on the cached grid."""

    def __init__(self, records: Sequence[dict[str, Any]], plan: Mapping[str, Any], base: str = ".") -> None:
        self.plan, self.records = plan, list(records)
        wanted = {**plan, "classes": ["any"], "labels": {}, "overlap": False} if plan["target"] == "boxes" else plan
        self.volumes: Volumes = build_volumes(_without_boxes(records), wanted, base=base)
        self.boxes: list[np.ndarray] = []
        if plan["target"] == "boxes":
            self.boxes = self._scaled_boxes(base)
        self.counts = np.array([self._count(row) for row in range(len(records))]).reshape(len(records), -1)

    def _scaled_boxes(self, base: str) -> list[np.ndarray]:
        dims, classes, odd, result = int(self.plan["dims"]), list(self.plan["classes"]), [], []
        for row, record in enumerate(self.records):
            empty = np.zeros((0, 2 * dims + 1))
            if not self.volumes.readable[row] or not record["boxes"]:
                result.append(empty)
                continue
            try:
                shape = self.volumes.shape(row)
                boxes, said = true_boxes(record, classes, shape, base)
            except ImageError as error:
                raise SystemExit(str(error)) from error
            odd += said
            result.append(scale_boxes(boxes, shape, self.volumes.image(row).shape[1:]) if len(boxes) else empty)
        if odd:
            print(f"{len(odd)} boxes reach over the border of their image, first: {odd[0]}", flush=True)
        return result

    def _count(self, row: int) -> np.ndarray:
        """(K,) lesions (boxes), or where there are masks whether the class occurs."""
        classes = len(self.plan["classes"])
        if not self.volumes.readable[row]:
            return np.zeros(classes)
        if self.boxes:
            return np.bincount(self.boxes[row][:, -1].astype(int), minlength=classes).astype(float)
        return np.bincount(np.unique(self.volumes.points(row)[:, 0]), minlength=classes).astype(float)

    def image(self, row: int) -> np.ndarray:
        return self.volumes.image(row)

    def anchors(self, row: int, label: int) -> np.ndarray:
        """(n, dims) places of a class to centre a patch on."""
        if self.boxes:
            boxes = self.boxes[row]
            boxes, d = boxes[boxes[:, -1] == label], int(self.plan["dims"])
            return (boxes[:, :d] + boxes[:, d : 2 * d]) / 2
        points = self.volumes.points(row)
        return points[points[:, 0] == label, 1:]


def _without_boxes(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"image_path": record["image_path"], "mask_path": record.get("mask_path")} for record in records]


def scale_boxes(boxes: np.ndarray, old: Sequence[int], new: Sequence[int]) -> np.ndarray:
    """(N, 2 d + 1) boxes of an image of shape `old` on its copy of shape `new`; a slice axis is added where it has one."""
    d = len(new)
    if len(old) == d - 1:
        corners = np.concatenate([boxes[:, : d - 1], np.zeros((len(boxes), 1)), boxes[:, d - 1 : 2 * d - 2]], axis=1)
        boxes = np.concatenate([corners, np.ones((len(boxes), 1)), boxes[:, -1:]], axis=1)
        old = (*old, 1)
    share = np.array(new, float) / np.array(old, float)
    return np.concatenate([boxes[:, :-1] * np.concatenate([share, share]), boxes[:, -1:]], axis=1)


class Patches(Dataset[dict[str, torch.Tensor]]):
    """Items {"pixel_values" (C, *patch), and "labels" (K, *patch) 0/1 or "boxes" (n, 2 d + 2)} of one part.

    Training items are drawn anew each time; validation items (`fixed`) are always the same, one an image.
    """

    def __init__(self, cases: Cases, rows: np.ndarray, fixed: bool) -> None:
        self.cases, self.rows, self.fixed = cases, rows, fixed
        self.records = [cases.records[int(row)] for row in rows]
        self.resize(cases.plan["patch"], cases.plan["patch"])
        self.having = [rows[cases.counts[rows, k] > 0] for k in range(cases.counts.shape[1])]

    def resize(self, patch: Sequence[int], cut: Sequence[int]) -> None:
        """Patches of this size from now on. Masks may be given room around it (a larger `cut`, by even numbers of pixels),
        out of which the augmentation takes the patch: a turned patch alone would have corners of false background."""
        self.patch, self.room = [int(n) for n in patch], [int(n) for n in cut]

    def __len__(self) -> int:
        return len(self.rows) if self.fixed else max(len(self.rows), int(self.cases.plan["patches"]))

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        rng = np.random.default_rng(item if self.fixed else int(torch.randint(2**31, (1,)).item()))
        row, centre = self._place(int(self.rows[item % len(self.rows)]), rng)
        image = self.cases.image(row)
        start = self._start(image.shape[1:], centre, rng)
        wide = [s - (have - want) // 2 for s, have, want in zip(start, self.room, self.patch, strict=True)]
        result = {"pixel_values": torch.from_numpy(cut(image, wide, self.room).astype(np.float32))}
        if self.cases.boxes:
            result["boxes"] = torch.from_numpy(self._boxes(row, start)).float()
        else:
            mask = cut(self.cases.volumes.mask(row), wide, self.room, fill=0)
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
    """The patch of (C, *image) from `start`, which may be negative; what lies outside is `fill`, or the image's corner."""
    places = tuple(
        slice(max(0, s), max(0, min(n, s + p))) for s, n, p in zip(start, array.shape[1:], patch, strict=True)
    )
    piece = np.asarray(array[(slice(None), *places)])
    widths = [(max(0, -s), p - max(0, -s) - n) for s, p, n in zip(start, patch, piece.shape[1:], strict=True)]
    if not any(any(pair) for pair in widths):
        return piece
    value = float(array.reshape(-1)[0]) if fill is None else fill
    return np.pad(piece, [(0, 0), *widths], constant_values=value)


def collate(items: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Stacked; lists of boxes are filled up to the longest with rows of class -1."""
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


def build_datasets(plan: Mapping[str, Any]) -> tuple[Patches, Patches]:
    """Training and validation part of train.json."""
    records = read_index()
    cases = Cases(records, plan)
    chosen = hold_out(records, cases.counts, float(plan["validation_share"]), int(plan["seed"]))
    readable = cases.volumes.readable
    train, valid = np.flatnonzero(~chosen & readable), np.flatnonzero(chosen & readable)
    if not len(valid) and not len(train):
        raise SystemExit("no training case can be read: correct train.json")
    if not len(train) or not len(valid):
        train = valid = train if len(train) else valid
        print("one image only: it serves for training and validation; the figures say nothing about others", flush=True)
    return Patches(cases, train, fixed=False), Patches(cases, valid, fixed=True)
