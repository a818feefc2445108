"""The cases that patches are cut from: cached images with their masks, or their boxes on the cached grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError
from m3b.training.detection.index import true_boxes
from m3b.training.volume_cache import Volumes, build_volumes


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
            except DataError as error:
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
