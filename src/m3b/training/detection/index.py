"""train.json read and checked: which kind of truth it has, the classes, the boxes, and a validation part by patient."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, box_to_array, grid_of

MIN_SIDE = 2.0  # pixels: smaller boxes are widened, else nothing of them is left on the network's grid


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Records `{"image_path", "patient", and "mask_path", "boxes" or "abnormal"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} holds no record: write the training cases into it first")
    return records


def target_of(records: Sequence[Mapping[str, Any]]) -> str:
    """ "boxes", "masks" or "states"; an index that mixes them, or has none, ends the program and says what to do."""
    stated = [record for record in records if "abnormal" in record]
    if stated and len(stated) == len(records):
        return "states"
    if stated:
        bare = next(record for record in records if "abnormal" not in record)
        raise SystemExit(
            f"{bare['image_path']} does not say whether it is `abnormal`, as others do: write it in all records"
        )
    boxes = [record for record in records if record.get("boxes") is not None]
    masks = [record for record in records if "mask_path" in record]
    if boxes and any(record.get("mask_path") for record in masks):
        raise SystemExit(
            f"train.json mixes boxes ({boxes[0]['image_path']}) and masks ({masks[0]['image_path']}): use one kind for all"
        )
    if boxes and len(boxes) < len(records):
        bare = next(record for record in records if record.get("boxes") is None)
        raise SystemExit(f"{bare['image_path']} has no `boxes`: write [] where the image is healthy")
    if not boxes and len(masks) < len(records):
        bare = next(record for record in records if "mask_path" not in record)
        raise SystemExit(f"{bare['image_path']} has none of `boxes`, `mask_path` (null: nothing marked) and `abnormal`")
    return "boxes" if boxes else "masks"


def patient_of(record: Mapping[str, Any]) -> str:
    """The patient, or the image itself where none is known."""
    return str(record.get("patient") or json.dumps(record["image_path"]))


def true_boxes(
    record: Mapping[str, Any], classes: Sequence[str], shape: Sequence[int] | None = None, base: str = "."
) -> tuple[np.ndarray, list[str]]:
    """(N, 2 d + 1) rows of lower corner, upper corner in pixels of `read_image`'s array, class; and what was odd.

    Boxes are clipped to the image, those outside are left out, those thinner than two pixels are widened.

    Raises:
        DataError: a label that label_dict.json does not name, or a box that is not four or six numbers.
    """
    path, rows, odd = record["image_path"], [], []
    if not record["boxes"]:
        return np.zeros((0, 1)), odd
    shape = tuple(shape or grid_of(path, base).shape)
    d = len(shape)
    for item in record["boxes"]:
        box = _checked(item, path, classes)
        if len(box) == 4 and d == 3:
            raise DataError(f"{path}: a box of 4 numbers on a volume; write [x0,y0,z0,x1,y1,z1]")
        corners = np.array(box_to_array(box, path, base))
        if len(box) == 6 and d == 2:  # a volume of one slice
            corners = corners[[0, 1, 3, 4]]
        low, high = np.clip(corners[:d], 0, shape), np.clip(corners[d:], 0, shape)
        if ((high - low) <= 0).any():
            odd.append(f"{path}: the box {box} lies outside the image {list(shape)} and is left out")
            continue
        if not np.allclose(np.concatenate([low, high]), corners, atol=0.51):
            odd.append(f"{path}: the box {box} reaches over the image's border and is clipped")
        rows.append([*widen(low, high, shape), list(classes).index(item["label"])])
    return np.array(rows, float).reshape(-1, 2 * d + 1), odd


def widen(low: np.ndarray, high: np.ndarray, shape: Sequence[int], least: float = MIN_SIDE) -> np.ndarray:
    """Lower and upper corner with sides of at least `least`, moved inwards where the border would cut them."""
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, least / 2)
    size = np.array(shape, float)
    middle = np.clip(middle, np.minimum(half, size / 2), np.maximum(size - half, size / 2))
    return np.concatenate([np.clip(middle - half, 0, size), np.clip(middle + half, 0, size)])


def _checked(item: Mapping[str, Any], path: Any, classes: Sequence[str]) -> list[float]:
    if not isinstance(item, Mapping) or item.get("label") not in classes:
        label = item.get("label") if isinstance(item, Mapping) else item
        raise DataError(
            f"{path}: a box with the label {label!r}, which is not in label_dict.json {list(classes)}: add it or drop the box"
        )
    try:
        box = [float(v) for v in item["box"]]
    except (KeyError, TypeError, ValueError):
        box = []
    half = len(box) // 2
    if len(box) not in (4, 6) or not np.isfinite(box).all():
        raise DataError(f"{path}: the box {item.get('box')!r} is not 4 or 6 finite numbers")
    if any(a > b for a, b in zip(box[:half], box[half:], strict=True)):
        raise DataError(f"{path}: the box {box} has its upper corner below the lower one (x, y, width, height?)")
    return box


def hold_out(records: Sequence[Mapping[str, Any]], columns: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """(N,) bool, the validation part. A patient lies on one side; each column of (N, K) >= 0 is shared out evenly.

    Greedy: patients from the largest down, each to the part that lacks its columns most. With two or three patients
    one is held out. With a single patient a share of the images is, and with a single image that image serves as both.
    """
    groups: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        groups.setdefault(patient_of(record), []).append(row)
    if len(groups) == 1:
        groups = {str(row): [row] for row in range(len(records))}
    members = [np.array(rows) for rows in groups.values()]
    np.random.default_rng(seed).shuffle(members)
    chosen = np.zeros(len(records), bool)
    if len(members) < 4:
        richest = sorted(members, key=lambda rows: (columns[rows].sum() > 0, -columns[rows].sum()))
        chosen[richest[-1] if len(members) > 1 else members[0]] = True  # the one with the fewest lesions, not none
        return chosen
    members.sort(key=lambda rows: -columns[rows].sum())
    table = np.concatenate([columns, np.ones((len(columns), 1))], axis=1)
    weight = 1.0 / np.maximum(table.sum(axis=0), 1.0)
    parts = np.array([1 - share, share])
    want = parts[:, None] * table.sum(axis=0)
    taken = [0, 0]
    for rows in members:
        gain = table[rows].sum(axis=0)
        lack = ((want**2 - (want - gain) ** 2) * weight / parts[:, None]).sum(axis=1)
        part = int(np.argmax(lack))
        want[part] -= gain
        chosen[rows] = part == 1
        taken[part] += 1
    if 0 in taken:
        chosen[:] = False
        chosen[members[len(members) // 2]] = True
    return chosen
