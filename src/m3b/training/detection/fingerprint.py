"""What plan.py knows of the training cases: properties of a sample of the images, and how many and how large lesions are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image
from m3b.training.channels import names_of, read_case
from m3b.training.detection.index import patient_of, target_of, true_boxes
from m3b.training.image_sample import in_common, measure
from m3b.training.intensity_scales import common_window, uneven, values_by_class
from m3b.training.lesions import lesion_boxes
from m3b.training.mask_grid import load_masks
from m3b.training.patients import people
from m3b.training.voxel_spacing import believe

SAMPLE = {2: 120, 3: 40}


def fingerprint(records: list[dict[str, Any]], label_dict: Mapping[str, int]) -> dict[str, Any]:
    """Counts from every record where the index tells, the rest from a sample of up to 120 images (40 volumes)."""
    target = target_of(records)
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])]
    _check_labels(label_dict, target)
    labels = {name: int(label_dict[name]) for name in classes}
    rule = {"classes": classes, "labels": labels, "channel_names": names_of(records)}
    order = random.Random(0).sample(records, min(SAMPLE[2], len(records)))
    first = _measure(order[0], target, rule)
    if isinstance(first, dict) and first["dims"] == 3:
        order = order[: SAMPLE[3]]
    with ThreadPoolExecutor(2) as pool:
        found = [first, *pool.map(lambda record: _measure(record, target, rule), order[1:])]
    read = [item for item in found if isinstance(item, dict)]
    if not read:
        raise SystemExit(f"none of {len(order)} sampled training images can be read; first: {found[0]}")
    dims = Counter(item["dims"] for item in read).most_common(1)[0][0]
    same = [item for item in read if item["dims"] == dims]
    return {
        "target": target,
        "cases": len(records),
        "patients": len({patient_of(record) for record in records}),
        "people": people(patient_of(record) for record in records),
        "classes": classes,
        "labels": rule["labels"],
        "objects": any(isinstance(record.get("mask_path"), Mapping) for record in records),
        "dims": dims,
        **in_common(same, records),
        **_images(same),
        "abnormal": abnormal_of(records, target),
        **_lesions(records, same, target, classes),
        "unreadable": [item for item in found if isinstance(item, str)],
    }


def abnormal_of(records: Sequence[Mapping[str, Any]], target: str) -> int:
    """Cases in which something is marked, or that are called abnormal; of masks those that have a file."""
    key = {"states": "abnormal", "boxes": "boxes", "masks": "mask_path"}[target]
    return sum(bool(record.get(key)) for record in records)


def _check_labels(label_dict: Mapping[str, int], target: str) -> None:
    values = sorted(label_dict.values())
    if not values:
        raise SystemExit("Datapath/label_dict.json names no class")
    if len(set(values)) < len(values):
        raise SystemExit(f"label_dict.json: two classes have the same number {dict(label_dict)}")
    if target == "masks" and values[0] < 1:
        raise SystemExit(f"label_dict.json: with masks, values start at 1 (0 is background); found {dict(label_dict)}")


def _images(same: Sequence[dict[str, Any]]) -> dict[str, Any]:
    extent, placeholders = believe(same)
    return {
        "uneven": uneven(same),
        "window": common_window(same),
        "extent": extent,
        "placeholders": placeholders,
        **{key: float(np.median([item[key] for item in same])) for key in ("inside_low", "inside_high")},
    }


def _lesions(
    records: Sequence[Mapping[str, Any]], same: Sequence[Mapping[str, Any]], target: str, classes: Sequence[str]
) -> dict[str, Any]:
    """Lesions a class (boxes: of all records; masks: of the sample), their sides in pixels, and how many are ill."""
    sides = [side for item in same for side in item["sides"]]
    if target == "states":
        ill = sum(bool(record["abnormal"]) for record in records) / len(records)
        names = Counter({classes[0]: round(ill * len(records))})
    elif target == "boxes":
        names = Counter(box["label"] for record in records for box in record["boxes"] if isinstance(box, Mapping))
        ill = sum(bool(record["boxes"]) for record in records) / len(records)
    else:
        names = sum((item["counts"] for item in same), Counter())
        ill = float(np.mean([bool(item["counts"]) for item in same]))
    return {
        "counts": {name: int(names.get(name, 0)) for name in classes},
        "ill_share": ill,
        "sides": np.array(sides, float).reshape(len(sides), -1) if sides else np.zeros((0, 0)),
        "odd": [text for item in same for text in item["odd"]],
    }


def _measure(record: Mapping[str, Any], target: str, rule: Mapping[str, Any]) -> dict[str, Any] | str:
    path = record["image_path"]
    try:
        image = read_case(path, rule)
        truth = _truth(record, image, target, rule)
    except DataError as error:
        return str(error)
    found = measure(image, truth.pop("masks", None))
    return {
        **found,
        "path": str(path),
        "inside_low": found["low"],
        "inside_high": found["high"],
        **truth,
    }


def _truth(record: Mapping[str, Any], image: Image, target: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    """Lesions a class, their sides in pixels, what was odd, and the values inside lesions where there are masks."""
    classes, shape = rule["classes"], image.array.shape[1:]
    if target == "states":
        return {"counts": Counter(), "sides": [], "odd": [], "by_class": []}
    if target == "boxes":
        boxes, odd = true_boxes(record, classes, shape)
        d = len(shape)
        sides = [row[d : 2 * d] - row[:d] for row in boxes if len(boxes)]
        return {"counts": Counter(), "sides": sides, "odd": odd, "by_class": []}
    masks = load_masks(record, rule, image)
    counts: Counter[str] = Counter()
    sides = []
    for name, mask in zip(classes, masks, strict=True):
        for corners, _ in lesion_boxes(mask):
            counts[name] += 1
            d = len(corners) // 2
            sides.append(np.array(corners[d:]) - np.array(corners[:d]))
    found: dict[str, Any] = {
        "counts": counts,
        "sides": sides,
        "odd": [],
        "by_class": values_by_class(image.array, masks),
        "masks": masks,
    }
    union = masks.any(axis=0)
    if union.any():
        low, high = np.percentile(image.array[:, union], (0.5, 99.5))
        found |= {"inside_low": float(low), "inside_high": float(high)}
    return found
