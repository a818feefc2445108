"""Properties of the training cases: a sample of the images, and number and size of lesions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image
from m3b.training.channels import find_channel_names, read_case
from m3b.training.detection.index import patient_of, target_of, true_boxes
from m3b.training.image_sample import measure_image, summarise_sample
from m3b.training.intensity_scales import has_uneven_brightness, infer_window, sample_values_by_class
from m3b.training.lesions import lesion_boxes
from m3b.training.mask_grid import load_masks
from m3b.training.patients import describe_patients
from m3b.training.voxel_spacing import resolve_spacings

SAMPLE_SIZE = {2: 120, 3: 40}
"""Images that are read at most, by dimensions."""


def measure_cases(records: list[dict[str, Any]], label_dict: Mapping[str, int]) -> dict[str, Any]:
    """Return counts of all records if the index has them, the rest from a sample of up to 120 images (40 volumes)."""
    target = target_of(records)
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])]
    _check_labels(label_dict, target)
    labels = {name: int(label_dict[name]) for name in classes}
    label_plan = {"classes": classes, "labels": labels, "channel_names": find_channel_names(records)}
    order = random.Random(0).sample(records, min(SAMPLE_SIZE[2], len(records)))
    first = _measure(order[0], target, label_plan)
    if isinstance(first, dict) and first["dims"] == 3:
        order = order[: SAMPLE_SIZE[3]]
    with ThreadPoolExecutor(2) as pool:
        samples = [first, *pool.map(lambda record: _measure(record, target, label_plan), order[1:])]
    readable = [item for item in samples if isinstance(item, dict)]
    if not readable:
        raise SystemExit(f"none of {len(order)} sampled training images can be read; first: {samples[0]}")
    dims = Counter(item["dims"] for item in readable).most_common(1)[0][0]
    comparable = [item for item in readable if item["dims"] == dims]
    return {
        "target": target,
        "cases": len(records),
        "patients": len({patient_of(record) for record in records}),
        "people": describe_patients(patient_of(record) for record in records),
        "classes": classes,
        "labels": label_plan["labels"],
        "objects": any(isinstance(record.get("mask_path"), Mapping) for record in records),
        "dims": dims,
        **summarise_sample(comparable, records),
        **_image_facts(comparable),
        "abnormal": count_abnormal(records, target),
        **_lesion_facts(records, comparable, target, classes),
        "unreadable": [item for item in samples if isinstance(item, str)],
    }


def count_abnormal(records: Sequence[Mapping[str, Any]], target: str) -> int:
    """Return the cases with a finding, or that are labelled abnormal; for masks the cases with a mask file."""
    key = {"states": "abnormal", "boxes": "boxes", "masks": "mask_path"}[target]
    return sum(bool(record.get(key)) for record in records)


def _check_labels(label_dict: Mapping[str, int], target: str) -> None:
    values = sorted(label_dict.values())
    if not values:
        raise SystemExit("Datapath/label_dict.json has no class")
    if len(set(values)) < len(values):
        raise SystemExit(f"label_dict.json: two classes have the same number {dict(label_dict)}")
    if target == "masks" and values[0] < 1:
        raise SystemExit(f"label_dict.json: with masks, values start at 1 (0 is background); found {dict(label_dict)}")


def _image_facts(images: Sequence[dict[str, Any]]) -> dict[str, Any]:
    extent, placeholders = resolve_spacings(images)
    return {
        "uneven": has_uneven_brightness(images),
        "window": infer_window(images),
        "extent": extent,
        "placeholders": placeholders,
        **{key: float(np.median([item[key] for item in images])) for key in ("inside_low", "inside_high")},
    }


def _lesion_facts(
    records: Sequence[Mapping[str, Any]], images: Sequence[Mapping[str, Any]], target: str, classes: Sequence[str]
) -> dict[str, Any]:
    """Return lesions per class (boxes: of all records; masks: of the sample), their sides in pixels, and the share of abnormal
    cases.
    """
    sides = [side for item in images for side in item["sides"]]
    if target == "states":
        abnormal_share = sum(bool(record["abnormal"]) for record in records) / len(records)
        label_counts = Counter({classes[0]: round(abnormal_share * len(records))})
    elif target == "boxes":
        label_counts = Counter(
            box["label"] for record in records for box in record["boxes"] if isinstance(box, Mapping)
        )
        abnormal_share = sum(bool(record["boxes"]) for record in records) / len(records)
    else:
        label_counts = sum((item["counts"] for item in images), Counter())
        abnormal_share = float(np.mean([bool(item["counts"]) for item in images]))
    return {
        "counts": {name: int(label_counts.get(name, 0)) for name in classes},
        "ill_share": abnormal_share,
        "sides": np.array(sides, float).reshape(len(sides), -1) if sides else np.zeros((0, 0)),
        "odd": [text for item in images for text in item["odd"]],
    }


def _measure(record: Mapping[str, Any], target: str, label_plan: Mapping[str, Any]) -> dict[str, Any] | str:
    path = record["image_path"]
    try:
        image = read_case(path, label_plan)
        target_facts = _measure_target(record, image, target, label_plan)
    except DataError as error:
        return str(error)
    image_facts = measure_image(image, target_facts.pop("masks", None))
    return {
        **image_facts,
        "path": str(path),
        "inside_low": image_facts["low"],
        "inside_high": image_facts["high"],
        **target_facts,
    }


def _measure_target(
    record: Mapping[str, Any], image: Image, target: str, label_plan: Mapping[str, Any]
) -> dict[str, Any]:
    """Return lesions per class, their sides in pixels, notes on boxes, and for masks the values inside lesions."""
    classes, shape = label_plan["classes"], image.array.shape[1:]
    if target == "states":
        return {"counts": Counter(), "sides": [], "odd": [], "by_class": []}
    if target == "boxes":
        boxes, notes = true_boxes(record, classes, shape)
        d = len(shape)
        sides = [row[d : 2 * d] - row[:d] for row in boxes if len(boxes)]
        return {"counts": Counter(), "sides": sides, "odd": notes, "by_class": []}
    masks = load_masks(record, label_plan, image)
    counts: Counter[str] = Counter()
    sides = []
    for name, mask in zip(classes, masks, strict=True):
        for corners, _ in lesion_boxes(mask):
            counts[name] += 1
            d = len(corners) // 2
            sides.append(np.array(corners[d:]) - np.array(corners[:d]))
    target_facts: dict[str, Any] = {
        "counts": counts,
        "sides": sides,
        "odd": [],
        "by_class": sample_values_by_class(image.array, masks),
        "masks": masks,
    }
    union = masks.any(axis=0)
    if union.any():
        low, high = np.percentile(image.array[:, union], (0.5, 99.5))
        target_facts |= {"inside_low": float(low), "inside_high": float(high)}
    return target_facts
