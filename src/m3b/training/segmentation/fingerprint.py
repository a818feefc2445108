"""Properties of the training cases: sizes, spacings, intensities, class sizes and widths."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image
from m3b.training.box_masks import MAX_BOX_CLASSES, is_from_boxes
from m3b.training.channels import find_channel_names, read_case
from m3b.training.ignored_voxels import IGNORE, MAX_CLASSES, mark_ignored
from m3b.training.image_sample import count_cases, measure_image, summarise_sample
from m3b.training.intensity_scales import border_value, has_uneven_brightness, infer_window, sample_values
from m3b.training.mask_grid import load_ignored, load_label_ids, load_masks, load_merged_ids
from m3b.training.normalization import scale_intensity
from m3b.training.segmentation.structure_rows import MIN_ROW_CLASSES, collect_centres, mask_centre
from m3b.training.segmentation.thin_structures import mean_width
from m3b.training.volume_cache import class_boxes
from m3b.training.voxel_spacing import resolve_spacings

SAMPLE_SIZE = {2: 200, 3: 40}
"""Cases of which the images are read, by dimensions."""
WIDTH_SAMPLE = {2: 20, 3: 4}
"""Images of which the widths of structures are measured, in addition to the first four."""


def measure_cases(records: Sequence[Mapping[str, Any]], label_dict: Mapping[str, int]) -> dict[str, Any]:
    """Return counts of all records, and properties of a random sample (200 pictures or 40 volumes)."""
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])]
    has_mask_files = {isinstance(record.get("mask_path"), Mapping) for record in records}
    if len(has_mask_files) > 1:
        raise SystemExit("train.json mixes mask files with objects {class: file}: use one kind for all records")
    label_plan = {"classes": classes, "labels": None if has_mask_files == {True} else dict(label_dict)}
    label_plan |= {"channel_names": find_channel_names(records)}
    _check_labels(label_plan)
    n_boxed = sum(map(is_from_boxes, records))
    if n_boxed and (n_boxed < len(records) or len(classes) > MAX_BOX_CLASSES):
        raise SystemExit(
            f"train.json: {n_boxed} of {len(records)} masks are boxes, of {len(classes)} classes: use boxes in all records or in "
            f"none, of at most {MAX_BOX_CLASSES} classes"
        )
    samples = _sample(records, label_plan)
    readable = [item for item in samples if isinstance(item, dict)]
    if not readable:
        raise SystemExit(f"none of {len(samples)} sampled training cases can be used; first: {samples[0]}")
    volumes = sum(item["dims"] == 3 for item in readable)
    dims = 3 if volumes * 5 >= len(readable) else 2  # single slices among volumes count as thin volumes
    comparable = [item for item in readable if item["dims"] == dims]
    extent, placeholders = resolve_spacings(comparable) if dims == 3 else (None, [])
    spacings = [item["spacing"] for item in comparable if item["spacing"]]
    inside_values = np.concatenate([item["inside"] for item in comparable])
    return {
        **label_plan,
        "boxes": n_boxed > 0,
        "overlap": any(item["overlap"] for item in readable),
        **count_cases(records),
        "dims": dims,
        **summarise_sample(comparable, records),
        "uneven": has_uneven_brightness(comparable),
        "window": infer_window(comparable),
        "spacings": np.array(spacings) if len(spacings) > len(comparable) / 2 else None,
        "extent": extent,
        "placeholders": placeholders,
        "widths": _median_widths(comparable, classes),
        "border": float(np.median([item["border"] for item in comparable])),
        "inside": inside_values,
        "centres": collect_centres(comparable, len(spacings) > len(comparable) / 2),
        "sizes": {name: [item["sizes"][k] for item in comparable] for k, name in enumerate(classes)},
        "empty": sum(not any(item["sizes"]) for item in comparable),
        "ignored": float(np.mean([item["ignored"] for item in comparable])),
        "sampled": len(comparable),
        "unreadable": [item for item in samples if isinstance(item, str)],
    }


def _median_widths(images: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> dict[str, float]:
    """Return the median width of each measured class: mm, or pixels if most images have no spacing."""
    has_spacing = sum(bool(item["spacing"]) for item in images) > len(images) / 2
    medians: dict[str, float] = {}
    for k, name in enumerate(classes):
        values = [item["widths"][k] for item in images if item["widths"] and bool(item["spacing"]) == has_spacing]
        values = [value for value in values if value is not None]
        if values:
            medians[name] = float(np.median(values))
    return medians


def _check_labels(label_plan: Mapping[str, Any]) -> None:
    values = list((label_plan["labels"] or {}).values())
    if label_plan["labels"] is not None and (len(set(values)) < len(values) or min(values, default=1) < 1):
        raise SystemExit(f"label_dict.json {label_plan['labels']}: the values must be distinct and at least 1")
    if not label_plan["classes"]:
        raise SystemExit("label_dict.json has no class")
    if len(values) > MAX_CLASSES:
        raise SystemExit(
            f"label_dict.json has {len(values)} classes in one mask file; at most {MAX_CLASSES} are possible"
        )


def _sample(records: Sequence[Mapping[str, Any]], label_plan: Mapping[str, Any]) -> list[dict[str, Any] | str]:
    order = random.Random(0).sample(list(records), min(SAMPLE_SIZE[2], len(records)))
    first = [_measure(record, label_plan) for record in order[:4]]
    volumes = any(isinstance(item, dict) and item["dims"] == 3 for item in first)
    remaining = order[4 : SAMPLE_SIZE[3] if volumes else SAMPLE_SIZE[2]]
    width_count = WIDTH_SAMPLE[3 if volumes else 2]
    with ThreadPoolExecutor(4) as pool:
        return [
            *first,
            *pool.map(lambda item: _measure(item[1], label_plan, item[0] < width_count), enumerate(remaining)),
        ]


def _measure(
    record: Mapping[str, Any], label_plan: Mapping[str, Any], with_widths: bool = True
) -> dict[str, Any] | str:
    try:
        image = read_case(record["image_path"], label_plan)
        masks, is_overlapping = _load_masks(record, label_plan, image)
    except DataError as error:
        return str(error)
    scaled = scale_intensity(image.array[:1], {"mode": "foreground"}) if image.dims == 3 else None
    is_labelled = masks != IGNORE
    is_marked = (masks > 0) & is_labelled
    is_foreground = is_marked.any(axis=0, keepdims=True) if is_overlapping else is_marked[None]
    layers = masks if is_overlapping else [masks] * len(label_plan["classes"])
    boxes = class_boxes(masks, {**label_plan, "overlap": is_overlapping})
    classes = [
        box and _measure_class(image, layer[box] == (1 if is_overlapping else k + 1), box)
        for k, (layer, box) in enumerate(zip(layers, boxes, strict=True))
    ]
    return {
        **measure_image(image, is_foreground),
        "overlap": is_overlapping,
        "border": 0.0 if scaled is None else border_value(scaled[0]),
        "widths": [measurement and mean_width(measurement["mask"], image.spacing) for measurement in classes]
        if with_widths
        else [],
        "path": str(record["image_path"]),
        "ignored": 1 - float(is_labelled.mean()),
        "inside": sample_values(image.array, is_foreground),
        "by_class": [measurement["values"] if measurement else np.zeros(0, np.float32) for measurement in classes],
        "sizes": [measurement["size"] if measurement else 0 for measurement in classes],
        "centres": [measurement and measurement["centre"] for measurement in classes]
        if len(classes) >= MIN_ROW_CLASSES
        else [],
    }


def _load_masks(record: Mapping[str, Any], label_plan: Mapping[str, Any], image: Image) -> tuple[np.ndarray, bool]:
    """Return class numbers and False, or (K, ...) channels and True if classes share voxels; both uint8 with `IGNORE`."""
    if not isinstance(record.get("mask_path"), Mapping):
        return load_label_ids(record, label_plan, image), False
    if len(label_plan["classes"]) <= MAX_CLASSES:
        ids, shared_voxels = load_merged_ids(record, label_plan, image)
        if not shared_voxels:
            return mark_ignored(ids, load_ignored(record, image)), False
    return mark_ignored(load_masks(record, label_plan, image), load_ignored(record, image)), True


def _measure_class(image: Image, mask: np.ndarray, box: tuple[slice, ...]) -> dict[str, Any]:
    """Return size, intensities and centre of a class from its mask inside its bounding box."""
    corner = np.array([part.start for part in box]) * np.array(image.spacing or [1.0] * mask.ndim)
    return {
        "mask": mask,
        "size": int(mask.sum()),
        "values": sample_values(image.array[(slice(1), *box)], mask[None], 500),
        "centre": mask_centre(mask, image.spacing) + corner,
    }
