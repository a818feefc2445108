"""What the training cases look like: sizes, spacings, intensities, how large each class is."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image
from m3b.training.channels import names_of, read_case
from m3b.training.image_sample import counted, in_common, measure
from m3b.training.intensity_scales import border_of, common_window, uneven, values_inside
from m3b.training.mask_grid import load_file_ids, load_ids, load_masks
from m3b.training.normalization import scale_intensity
from m3b.training.segmentation.structure_rows import LEAST, centre_of, centres_of
from m3b.training.segmentation.thin_structures import width
from m3b.training.volume_cache import class_boxes
from m3b.training.voxel_spacing import believe

SAMPLE = {2: 200, 3: 40}
MEASURED = {2: 20, 3: 4}
"""Images of which the width of what is marked is measured, besides the first four."""
MAX_IDS = 255
"""Classes that ids of one byte can tell apart; more classes keep a channel each."""


def fingerprint(records: Sequence[Mapping[str, Any]], label_dict: Mapping[str, int]) -> dict[str, Any]:
    """Counts from every record, properties from a random sample (200 pictures or 40 volumes)."""
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])]
    objects = {isinstance(record.get("mask_path"), Mapping) for record in records}
    if len(objects) > 1:
        raise SystemExit("train.json mixes mask files and objects of masks a class: use one kind for all records")
    reads = {"classes": classes, "labels": None if objects == {True} else dict(label_dict)}
    reads |= {"channel_names": names_of(records)}
    _check_labels(reads)
    found = _sample(records, reads)
    read = [item for item in found if isinstance(item, dict)]
    if not read:
        raise SystemExit(f"none of {len(found)} sampled training cases can be used; first: {found[0]}")
    volumes = sum(item["dims"] == 3 for item in read)
    dims = 3 if volumes * 5 >= len(read) else 2  # single slices among volumes are taken as thin volumes
    same = [item for item in read if item["dims"] == dims]
    extent, placeholders = believe(same) if dims == 3 else (None, [])
    spacings = [item["spacing"] for item in same if item["spacing"]]
    inside = np.concatenate([item["inside"] for item in same])
    return {
        **reads,
        "overlap": any(item["overlap"] for item in read),
        **counted(records),
        "dims": dims,
        **in_common(same, records),
        "uneven": uneven(same),
        "window": common_window(same),
        "spacings": np.array(spacings) if len(spacings) > len(same) / 2 else None,
        "extent": extent,
        "placeholders": placeholders,
        "widths": _widths(same, classes),
        "border": float(np.median([item["border"] for item in same])),
        "inside": inside,
        "centres": centres_of(same, len(spacings) > len(same) / 2),
        "sizes": {name: [item["sizes"][place] for item in same] for place, name in enumerate(classes)},
        "empty": sum(not any(item["sizes"]) for item in same),
        "sampled": len(same),
        "unreadable": [item for item in found if isinstance(item, str)],
    }


def _widths(images: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> dict[str, float]:
    """Median width of each class, where it was measured: mm, or pixels where most images have no spacing."""
    known = sum(bool(item["spacing"]) for item in images) > len(images) / 2
    found: dict[str, float] = {}
    for place, name in enumerate(classes):
        some = [item["widths"][place] for item in images if item["widths"] and bool(item["spacing"]) == known]
        some = [value for value in some if value is not None]
        if some:
            found[name] = float(np.median(some))
    return found


def _check_labels(reads: Mapping[str, Any]) -> None:
    values = list((reads["labels"] or {}).values())
    if reads["labels"] is not None and (len(set(values)) < len(values) or min(values, default=1) < 1):
        raise SystemExit(f"label_dict.json {reads['labels']}: values in masks must be different and at least 1")
    if not reads["classes"]:
        raise SystemExit("label_dict.json names no class")


def _sample(records: Sequence[Mapping[str, Any]], reads: Mapping[str, Any]) -> list[dict[str, Any] | str]:
    order = random.Random(0).sample(list(records), min(SAMPLE[2], len(records)))
    first = [_measure(record, reads) for record in order[:4]]
    volumes = any(isinstance(item, dict) and item["dims"] == 3 for item in first)
    rest = order[4 : SAMPLE[3] if volumes else SAMPLE[2]]
    narrow = MEASURED[3 if volumes else 2]
    with ThreadPoolExecutor(4) as pool:
        return [*first, *pool.map(lambda item: _measure(item[1], reads, item[0] < narrow), enumerate(rest))]


def _measure(record: Mapping[str, Any], reads: Mapping[str, Any], widths: bool = True) -> dict[str, Any] | str:
    try:
        image = read_case(record["image_path"], reads)
        masks, shared = _load(record, reads, image)
    except DataError as error:
        return str(error)
    scaled = scale_intensity(image.array[:1], {"mode": "foreground"}) if image.dims == 3 else None
    marked = masks.any(axis=0)[None] if shared else masks[None] > 0
    classes = [
        None if box is None else _measure_class(image, masks[(place, *box)] if shared else masks[box] == place + 1, box)
        for place, box in enumerate(class_boxes(masks.view(np.uint8), {**reads, "overlap": shared}))
    ]
    return {
        **measure(image, marked),
        "overlap": shared,
        "border": 0.0 if scaled is None else border_of(scaled[0]),
        "widths": [part and width(part["mask"], image.spacing) for part in classes] if widths else [],
        "path": str(record["image_path"]),
        "inside": values_inside(image.array, marked),
        "by_class": [part["values"] if part else np.zeros(0, np.float32) for part in classes],
        "sizes": [part["size"] if part else 0 for part in classes],
        "centres": [part and part["centre"] for part in classes] if len(classes) >= LEAST else [],
    }


def _load(record: Mapping[str, Any], reads: Mapping[str, Any], image: Image) -> tuple[np.ndarray, bool]:
    """Return ids and False, or (K, ...) masks and True if classes share voxels."""
    if not isinstance(record.get("mask_path"), Mapping):
        return load_ids(record, reads, image), False
    fits_ids = len(reads["classes"]) <= MAX_IDS
    ids, shared = load_file_ids(record, reads, image) if fits_ids else (None, 1)
    return (load_masks(record, reads, image), True) if shared else (ids, False)


def _measure_class(image: Image, mask: np.ndarray, box: tuple[slice, ...]) -> dict[str, Any]:
    """Measure a class by its mask inside its bounding box."""
    corner = np.array([part.start for part in box]) * np.array(image.spacing or [1.0] * mask.ndim)
    return {
        "mask": mask,
        "size": int(mask.sum()),
        "values": values_inside(image.array[(slice(1), *box)], mask[None], 500),
        "centre": centre_of(mask, image.spacing) + corner,
    }
