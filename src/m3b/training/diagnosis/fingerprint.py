"""What plan.py measures of the training cases: counts from every record, image properties from a sample."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from m3b.dataset.formats import DataError
from m3b.training.channels import names_of, read_case
from m3b.training.clips import frames_of
from m3b.training.diagnosis.covariates import facts_of as covariates_of
from m3b.training.diagnosis.followup import facts_of as survival_of
from m3b.training.diagnosis.regression import facts_of
from m3b.training.diagnosis.targets import UNKNOWN, named_labels, task_of
from m3b.training.diagnosis.views import count_of, images_of
from m3b.training.image_sample import counted, in_common, measure
from m3b.training.intensity_scales import count_scales
from m3b.training.normalization import body_limits
from m3b.training.voxel_spacing import measure_field

SAMPLE = 200
DEEP = 8
"""Slices from which on a volume cannot stand for a 2D image (`preprocess`)."""


def fingerprint(records: list[dict[str, Any]], label_dict: dict[str, int]) -> dict[str, Any]:
    """What was measured: counts from every record, image properties from a sample of up to 200."""
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])]
    task = task_of(records)
    named = [named_labels(record, classes) for record in records]
    counts = Counter(name for labels in named for name in labels)
    values = [float(record["value"]) for record in records if "value" in record]
    sample = random.Random(0).sample(range(len(records)), min(SAMPLE, len(records)))
    views = count_of(records)
    shown = [images_of(r["image_path"])[0] if views > 1 else r["image_path"] for r in records]
    names = names_of(records)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: _measure(shown[row], names), sample))
    read = [(item, named[row]) for item, row in zip(found, sample, strict=True) if isinstance(item, dict)]
    if not read:
        raise SystemExit(f"none of {len(sample)} sampled training images can be read; first: {found[0]}")
    images = [item for item, _ in read]
    dims = _dims(images)
    same = [item for item in images if item["dims"] == dims]
    return {
        "task": task,
        "number": facts_of(values) if values else None,
        "survival": (followed := survival_of(records) if task == "survival" else None),
        **counted(records),
        "classes": classes,
        "counts": _counts(classes, counts, values, followed),
        "unknown": Counter(name for record in records for name in record.get(UNKNOWN, ())),
        "multi_label": not values
        and not followed
        and any(len(labels) != 1 or record.get(UNKNOWN) for labels, record in zip(named, records, strict=True)),
        "covariates": covariates_of(records),
        "views": views,
        "dims": dims,
        "other_dims": len(images) - len(same),
        **in_common(same, records),
        **measure_field(same if dims == 3 and not frames_of(records) else []),
        "frames": frames_of(records),
        "scales": count_scales(images),
        "scale_tells": _scale_tells(read),
        "unreadable": [item for item in found if isinstance(item, str)],
    }


def _counts(
    classes: list[str], counts: Counter[str], values: list[float], followed: dict[str, Any] | None
) -> dict[str, int]:
    """Cases of each class; of a number all of them, of survival those with the event."""
    if followed:
        return dict.fromkeys(classes, int(followed["events"]))
    return dict.fromkeys(classes, len(values)) if values else {name: counts.get(name, 0) for name in classes}


def _dims(images: list[dict[str, Any]]) -> int:
    """What most images are; 3 as soon as one in twenty is a volume that has no 2D form."""
    deep = sum(item["dims"] == 3 and item["shape"][-1] > DEEP for item in images)
    most = int(Counter(item["dims"] for item in images).most_common(1)[0][0])
    return 3 if deep * 20 >= len(images) else most


def _measure(path: Any, names: list[str] | None) -> dict[str, Any] | str:
    try:
        image = read_case(path, {"channel_names": names})
        return {**measure(image), "body": body_limits(image.array[0])}
    except DataError as error:
        return str(error)


def _scale_tells(read: list[tuple[dict[str, Any], list[str]]]) -> str:
    """The class that is told by the unit of its images, as where two sources were put together; "" if none."""
    units: dict[str, Counter[str]] = defaultdict(Counter)
    for item, labels in read:
        for name in labels:
            units[name][item["scale"]] += 1
    total = sum(units.values(), Counter[str]())
    for name, own in units.items():
        size, rest = sum(own.values()), sum(total.values()) - sum(own.values())
        for unit, count in own.items():
            if size >= 5 and rest >= 5 and abs(count / size - (total[unit] - count) / rest) > 0.5:
                return f"{name} ({count} of {size} images {unit}, {total[unit] - count} of the {rest} others)"
    return ""
