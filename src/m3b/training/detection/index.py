"""Reading and checking of train.json: kind of target, classes, boxes; and the validation split by patient."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, box_to_array, grid_of

MIN_SIDE = 2.0
"""Pixels to which smaller boxes are widened; else they vanish on the network's grid."""


def read_index(path: str | Path = "Datapath/train.json") -> list[dict[str, Any]]:
    """Return the records `{"image_path", "patient", and "mask_path", "boxes" or "abnormal"}` of an index file."""
    records: list[dict[str, Any]] = json.loads(Path(path).read_text())
    if not records:
        raise SystemExit(f"{path} has no records: write the training cases into it first")
    return records


def target_of(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the kind of target, "boxes", "masks" or "states". Ends the program if the index mixes them or has none."""
    with_state = [record for record in records if "abnormal" in record]
    if with_state and len(with_state) == len(records):
        return "states"
    if with_state:
        incomplete = next(record for record in records if "abnormal" not in record)
        raise SystemExit(f"{incomplete['image_path']} has no `abnormal`, unlike other records: add it to all records")
    boxes = [record for record in records if record.get("boxes") is not None]
    masks = [record for record in records if "mask_path" in record]
    if boxes and any(record.get("mask_path") for record in masks):
        raise SystemExit(
            f"train.json mixes boxes ({boxes[0]['image_path']}) and masks ({masks[0]['image_path']}): use one kind for all"
        )
    if boxes and len(boxes) < len(records):
        incomplete = next(record for record in records if record.get("boxes") is None)
        raise SystemExit(f"{incomplete['image_path']} has no `boxes`: write [] for a healthy image")
    if not boxes and len(masks) < len(records):
        incomplete = next(record for record in records if "mask_path" not in record)
        raise SystemExit(
            f"{incomplete['image_path']} has none of `boxes`, `mask_path` (null: empty mask) and `abnormal`"
        )
    return "boxes" if boxes else "masks"


def patient_of(record: Mapping[str, Any]) -> str:
    """Return the patient, or the image path if the patient is unknown."""
    return str(record.get("patient") or json.dumps(record["image_path"]))


def true_boxes(
    record: Mapping[str, Any], classes: Sequence[str], shape: Sequence[int] | None = None, base: str = "."
) -> tuple[np.ndarray, list[str]]:
    """Return (N, 2 d + 1) rows of lower corner, upper corner in pixels of `read_image`'s array, class; and notes on changed boxes.

    Boxes are clipped to the image, boxes outside it are left out, boxes thinner than two pixels are widened.

    Raises:
        DataError: a label that label_dict.json does not have, or a box that is not four or six numbers.
    """
    image_path, rows = record["image_path"], []
    notes: list[str] = []
    if not record["boxes"]:
        return np.zeros((0, 1)), notes
    shape = tuple(shape or grid_of(image_path, base).shape)
    d = len(shape)
    for item in record["boxes"]:
        box = _read_box(item, image_path, classes)
        if len(box) == 4 and d == 3:
            raise DataError(f"{image_path}: a box of 4 numbers on a volume; write [x0,y0,z0,x1,y1,z1]")
        corners = np.array(box_to_array(box, image_path, base))
        if len(box) == 6 and d == 2:  # a volume of one slice
            corners = corners[[0, 1, 3, 4]]
        low, high = np.clip(corners[:d], 0, shape), np.clip(corners[d:], 0, shape)
        if ((high - low) <= 0).any():
            notes.append(f"{image_path}: the box {box} lies outside the image {list(shape)} and is excluded")
            continue
        if not np.allclose(np.concatenate([low, high]), corners, atol=0.51):
            notes.append(f"{image_path}: the box {box} extends beyond the image and is clipped")
        rows.append([*widen_box(low, high, shape), list(classes).index(item["label"])])
    return np.array(rows, float).reshape(-1, 2 * d + 1), notes


def widen_box(low: np.ndarray, high: np.ndarray, shape: Sequence[int], min_side: float = MIN_SIDE) -> np.ndarray:
    """Return lower and upper corner with sides of at least `min_side`, moved inwards at the border."""
    middle, half_sides = (low + high) / 2, np.maximum((high - low) / 2, min_side / 2)
    size = np.array(shape, float)
    middle = np.clip(middle, np.minimum(half_sides, size / 2), np.maximum(size - half_sides, size / 2))
    return np.concatenate([np.clip(middle - half_sides, 0, size), np.clip(middle + half_sides, 0, size)])


def _read_box(item: Mapping[str, Any], path: Any, classes: Sequence[str]) -> list[float]:
    """Return the numbers of a box. Raises DataError."""
    if not isinstance(item, Mapping) or item.get("label") not in classes:
        label = item.get("label") if isinstance(item, Mapping) else item
        raise DataError(
            f"{path}: a box with the label {label!r}, which is not in label_dict.json {list(classes)}: add it or drop the box"
        )
    try:
        box = [float(v) for v in item["box"]]
    except (KeyError, TypeError, ValueError):
        box = []
    dims = len(box) // 2
    if len(box) not in (4, 6) or not np.isfinite(box).all():
        raise DataError(f"{path}: the box {item.get('box')!r} is not 4 or 6 finite numbers")
    if any(a > b for a, b in zip(box[:dims], box[dims:], strict=True)):
        raise DataError(f"{path}: the box {box} has its upper corner below the lower one (x, y, width, height?)")
    return box


def hold_out(records: Sequence[Mapping[str, Any]], columns: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """Return (N,) bool: the validation cases. A patient lies on one side; each column of (N, K) >= 0 is shared out evenly.

    Greedy: patients from the largest down, each to the part that lacks its columns most. With two or three patients one is held
    out. With a single patient a share of the images is, and with a single image that image is in both parts.
    """
    groups: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        groups.setdefault(patient_of(record), []).append(row)
    if len(groups) == 1:
        groups = {str(row): [row] for row in range(len(records))}
    patient_rows = [np.array(rows) for rows in groups.values()]
    np.random.default_rng(seed).shuffle(patient_rows)
    is_held_out = np.zeros(len(records), bool)
    if len(patient_rows) < 4:
        by_lesions = sorted(patient_rows, key=lambda rows: (columns[rows].sum() > 0, -columns[rows].sum()))
        fewest = by_lesions[-1] if len(patient_rows) > 1 else patient_rows[0]  # lesions, but not none
        is_held_out[fewest] = True
        return is_held_out
    patient_rows.sort(key=lambda rows: -columns[rows].sum())
    totals = np.concatenate([columns, np.ones((len(columns), 1))], axis=1)
    weight = 1.0 / np.maximum(totals.sum(axis=0), 1.0)
    parts = np.array([1 - share, share])
    missing = parts[:, None] * totals.sum(axis=0)
    patients_per_part = [0, 0]
    for rows in patient_rows:
        gain = totals[rows].sum(axis=0)
        need = ((missing**2 - (missing - gain) ** 2) * weight / parts[:, None]).sum(axis=1)
        part = int(np.argmax(need))
        missing[part] -= gain
        is_held_out[rows] = part == 1
        patients_per_part[part] += 1
    if 0 in patients_per_part:
        is_held_out[:] = False
        is_held_out[patient_rows[len(patient_rows) // 2]] = True
    return is_held_out
