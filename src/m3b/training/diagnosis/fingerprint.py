"""Fingerprint of the training cases: counts from all records, image properties from a sample."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from m3b.dataset.formats import DataError, overview_path
from m3b.training.channels import find_channel_names, read_case
from m3b.training.clips import find_frame_count
from m3b.training.diagnosis.classification import UNKNOWN_KEY, read_labels
from m3b.training.diagnosis.covariates import make_covariate_rules as covariates_of
from m3b.training.diagnosis.followup import choose_intervals as survival_of
from m3b.training.diagnosis.regression import measure_numbers
from m3b.training.diagnosis.targets import infer_task
from m3b.training.diagnosis.tiles import measure_slide, summarise_slides
from m3b.training.diagnosis.views import count_views, list_images
from m3b.training.image_sample import count_cases, measure_image, summarise_sample
from m3b.training.intensity_scales import count_scales
from m3b.training.normalization import body_limits
from m3b.training.voxel_spacing import measure_field

MAX_SAMPLE = 200
MIN_VOLUME_SLICES = 8
"""Slices from which a volume cannot be reduced to a 2D image (`preprocess`)."""


def fingerprint(records: list[dict[str, Any]], label_dict: dict[str, int]) -> dict[str, Any]:
    """Measure the training cases: counts from all records, image properties from a sample of up to 200."""
    classes = [name for name, _ in sorted(label_dict.items(), key=lambda measurement: measurement[1])]
    task = infer_task(records)
    labels_of_records = [read_labels(record, classes) for record in records]
    counts = Counter(name for labels in labels_of_records for name in labels)
    values = [float(record["value"]) for record in records if "value" in record]
    sample = random.Random(0).sample(range(len(records)), min(MAX_SAMPLE, len(records)))
    views = count_views(records)
    paths = [list_images(r["image_path"])[0] if views > 1 else r["image_path"] for r in records]
    names = find_channel_names(records)
    with ThreadPoolExecutor(4) as pool:
        measurements = list(pool.map(lambda row: _measure(paths[row], names), sample))
    readable = [
        (measurement, labels_of_records[row])
        for measurement, row in zip(measurements, sample, strict=True)
        if isinstance(measurement, dict)
    ]
    if not readable:
        raise SystemExit(f"none of {len(sample)} sampled training images can be read; first: {measurements[0]}")
    images = [measurement for measurement, _ in readable]
    dims = _choose_dims(images)
    sample_of_dims = [measurement for measurement in images if measurement["dims"] == dims]
    return {
        "task": task,
        "number": measure_numbers(values) if values else None,
        "survival": (survival := survival_of(records) if task == "survival" else None),
        **count_cases(records),
        "classes": classes,
        "counts": _count_cases_of_classes(classes, counts, values, survival),
        "unknown": Counter(name for record in records for name in record.get(UNKNOWN_KEY, ())),
        "multi_label": not values
        and not survival
        and any(
            len(labels) != 1 or record.get(UNKNOWN_KEY)
            for labels, record in zip(labels_of_records, records, strict=True)
        ),
        "covariates": covariates_of(records),
        "views": views,
        "slides": summarise_slides(images) if views == 1 and not find_frame_count(records) else None,
        "dims": dims,
        "other_dims": len(images) - len(sample_of_dims),
        **summarise_sample(sample_of_dims, records),
        **measure_field(sample_of_dims if dims == 3 and not find_frame_count(records) else []),
        "frames": find_frame_count(records),
        "scales": count_scales(images),
        "scale_tells": _find_class_told_by_scale(readable),
        "unreadable": [measurement for measurement in measurements if isinstance(measurement, str)],
    }


def _count_cases_of_classes(
    classes: list[str], counts: Counter[str], values: list[float], survival: dict[str, Any] | None
) -> dict[str, int]:
    """Count the cases of each class; of a number all cases, of survival those with the event."""
    if survival:
        return dict.fromkeys(classes, int(survival["events"]))
    return dict.fromkeys(classes, len(values)) if values else {name: counts.get(name, 0) for name in classes}


def _choose_dims(images: list[dict[str, Any]]) -> int:
    """Return the most frequent dimensions; 3 if one image in twenty is a volume without a 2D form."""
    volumes = sum(measurement["dims"] == 3 and measurement["shape"][-1] > MIN_VOLUME_SLICES for measurement in images)
    common_dims = int(Counter(measurement["dims"] for measurement in images).most_common(1)[0][0])
    return 3 if volumes * 20 >= len(images) else common_dims


def _measure(path: Any, names: list[str] | None) -> dict[str, Any] | str:
    try:
        image = read_case(overview_path(path), {"channel_names": names})
        return {**measure_image(image), **measure_slide(image), "body": body_limits(image.array[0])}
    except DataError as error:
        return str(error)


def _find_class_told_by_scale(readable: list[tuple[dict[str, Any], list[str]]]) -> str:
    """Return the class that the unit of the images reveals, as if two sources were merged; "" if there is none."""
    units: dict[str, Counter[str]] = defaultdict(Counter)
    for measurement, labels in readable:
        for name in labels:
            units[name][measurement["scale"]] += 1
    total = sum(units.values(), Counter[str]())
    for name, unit_counts in units.items():
        size, others = sum(unit_counts.values()), sum(total.values()) - sum(unit_counts.values())
        for unit, count in unit_counts.items():
            if size >= 5 and others >= 5 and abs(count / size - (total[unit] - count) / others) > 0.5:
                return f"{name} ({count} of {size} images {unit}, {total[unit] - count} of the {others} others)"
    return ""
