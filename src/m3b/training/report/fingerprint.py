"""Fingerprint of the training studies: texts of all records, image properties of a sample."""

from __future__ import annotations

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from m3b.dataset.formats import DataError, read_image
from m3b.training.image_sample import count_cases, measure_image, summarise_sample
from m3b.training.normalization import body_limits
from m3b.training.report.dataset import join_sections, list_views, read_report
from m3b.training.report.tokenizer import SECTIONS
from m3b.training.voxel_spacing import measure_field

MAX_SAMPLE = 200


def fingerprint(records: list[dict[str, Any]], label_dict: dict[str, int]) -> dict[str, Any]:
    """Measure the training studies: texts of all records, image properties of up to 200 sampled images."""
    all_records = json.loads(Path("Datapath/train.json").read_text(encoding="utf-8"))
    sample = random.Random(0).sample(records, min(MAX_SAMPLE, len(records)))
    paths = [list_views(record)[k % len(list_views(record))] for k, record in enumerate(sample)]
    with ThreadPoolExecutor(4) as pool:
        measurements = list(pool.map(_measure, paths))
    readable = [measurement for measurement in measurements if isinstance(measurement, dict)]
    if not readable:
        raise SystemExit(f"none of {len(sample)} sampled training images can be read; first: {measurements[0]}")
    dims = Counter(measurement["dims"] for measurement in readable).most_common(1)[0][0]
    sample_of_dims = [measurement for measurement in readable if measurement["dims"] == dims]
    reports = [read_report(record) for record in records]
    counts = Counter(len(list_views(record)) for record in records)
    return {
        **count_cases(records),
        "without_text": len(all_records) - len(records),
        "present": {name: sum(bool(report[name]) for report in reports) for name in SECTIONS},
        "different": len({join_sections(report) for report in reports}),
        "classes": [name for name, _ in sorted(label_dict.items(), key=lambda measurement: measurement[1])],
        "views": dict(sorted(counts.items())),
        "dims": dims,
        **summarise_sample(sample_of_dims, records),
        **measure_field(sample_of_dims if dims == 3 else []),
        "unreadable": [measurement for measurement in measurements if isinstance(measurement, str)],
    }


def _measure(path: Any) -> dict[str, Any] | str:
    try:
        image = read_image(path)
        return {**measure_image(image), "body": body_limits(image.array[0])}
    except DataError as error:
        return str(error)
