"""What the training cases look like: sizes, spacings, intensities, how large each class is."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .chain import LEAST, centre_of, centres_of
from .extent import believe
from .formats import DataError, read_image
from .mask_grid import load_masks
from .normalise import scale_intensity
from .sample import counted, in_common, measure
from .scales import border_of, common_window, uneven, values_by_class, values_inside
from .thin import width

SAMPLE = {2: 200, 3: 40}
MEASURED = {2: 20, 3: 4}
"""Images of which the width of what is marked is measured, besides the first four."""


def fingerprint(records: Sequence[Mapping[str, Any]], label_dict: Mapping[str, int]) -> dict[str, Any]:
    """Counts from every record, properties from a random sample (200 pictures or 40 volumes)."""
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])]
    objects = {isinstance(record.get("mask_path"), Mapping) for record in records}
    if len(objects) > 1:
        raise SystemExit("train.json mixes mask files and objects of masks a class: use one kind for all records")
    reads = {"classes": classes, "labels": None if objects == {True} else dict(label_dict)}
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
        "overlap": objects == {True},
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
        image = read_image(record["image_path"])
        masks = load_masks(record, reads, image)
    except DataError as error:
        return str(error)
    scaled = scale_intensity(image.array[:1], {"mode": "foreground"}) if image.dims == 3 else None
    return {
        **measure(image, masks),
        "border": 0.0 if scaled is None else border_of(scaled[0]),
        "widths": [width(mask, image.spacing) for mask in masks] if widths else [],
        "path": str(record["image_path"]),
        "inside": values_inside(image.array, masks),
        "by_class": values_by_class(image.array, masks),
        "sizes": (sizes := [int(mask.sum()) for mask in masks]),
        "centres": [centre_of(mask, image.spacing) if size else None for mask, size in zip(masks, sizes, strict=True)]
        if len(sizes) >= LEAST
        else [],
    }
