"""What plan.py measures of the training studies: texts of every record, image properties of a sample."""

from __future__ import annotations

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from m3b.dataset.formats import DataError, read_image
from m3b.training.image_sample import counted, in_common, measure
from m3b.training.normalization import body_limits
from m3b.training.report.dataset import report_of, views_of, whole_text
from m3b.training.report.tokenizer import SECTIONS
from m3b.training.voxel_spacing import measure_field

SAMPLE = 200


def fingerprint(records: list[dict[str, Any]], label_dict: dict[str, int]) -> dict[str, Any]:
    """What was measured: texts of every record, image properties of up to 200 sampled images."""
    everything = json.loads(Path("Datapath/train.json").read_text(encoding="utf-8"))
    sample = random.Random(0).sample(records, min(SAMPLE, len(records)))
    paths = [views_of(record)[k % len(views_of(record))] for k, record in enumerate(sample)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(_measure, paths))
    read = [item for item in found if isinstance(item, dict)]
    if not read:
        raise SystemExit(f"none of {len(sample)} sampled training images can be read; first: {found[0]}")
    dims = Counter(item["dims"] for item in read).most_common(1)[0][0]
    same = [item for item in read if item["dims"] == dims]
    reports = [report_of(record) for record in records]
    counts = Counter(len(views_of(record)) for record in records)
    return {
        **counted(records),
        "without_text": len(everything) - len(records),
        "present": {name: sum(bool(report[name]) for report in reports) for name in SECTIONS},
        "different": len({whole_text(report) for report in reports}),
        "classes": [name for name, _ in sorted(label_dict.items(), key=lambda item: item[1])],
        "views": dict(sorted(counts.items())),
        "dims": dims,
        **in_common(same, records),
        **measure_field(same if dims == 3 else []),
        "unreadable": [item for item in found if isinstance(item, str)],
    }


def _measure(path: Any) -> dict[str, Any] | str:
    try:
        image = read_image(path)
        return {**measure(image), "body": body_limits(image.array[0])}
    except DataError as error:
        return str(error)
