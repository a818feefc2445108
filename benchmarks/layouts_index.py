"""An executed manifest in the terms of the comparison with a generated folder's truth."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from layouts.truth import IndexRecord


def to_records(executed: Any, work: Path, root: Path) -> tuple[list[IndexRecord], list[str]]:
    """Return the records of both parts, and the classes by number.

    Args:
        work: folder below which derived masks lie; `data/data` there becomes a link to `root`.
    """
    link = work / "data" / "data"
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(root, link)
    records = []
    for side, members in (("train", executed.train), ("test", executed.test)):
        for member in members:
            extra = member.extra
            value = next((extra[key] for key in ("value", "time") if key in extra), None)
            masked = executed.manifest.masks is not None
            records.append(
                IndexRecord(
                    files=tuple(path.removeprefix("data/data/") for path in member.images),
                    side=side,
                    patient=member.patient if member.patient_known else None,
                    labels=tuple(member.labels),
                    value=None if value is None else float(value),
                    event=bool(extra["event"]) if "event" in extra else None,
                    areas=measure_areas(member, executed.values, work) if masked else None,
                    boxes=None if member.boxes is None else tuple((box.label, tuple(box.box)) for box in member.boxes),
                    report=member.report.text if member.report is not None else None,
                )
            )
    return records, sorted(executed.values, key=lambda name: executed.values[name])


def _extract(reference: Any, work: Path) -> Any:
    """Return an image or mask with members of archives extracted, which the readers of runs do not open."""
    from m3b.dataset.archives import local_reference

    if isinstance(reference, str):
        return local_reference(work, reference) if "#" in reference else reference
    if isinstance(reference, tuple | list):
        return type(reference)(_extract(path, work) for path in reference)
    return reference


def measure_areas(member: Any, values: dict[str, int], work: Path) -> dict[str, float]:
    """Return the share of the image that each class takes."""
    from m3b.errors import DataError
    from m3b.tasks.aligned_masks import read_true_channels

    member = replace(member, image=_extract(member.image, work), mask=_extract(member.mask, work))
    try:
        channels = read_true_channels(member, values, work)
    except DataError:
        return {}
    return {name: float(channel.mean()) for name, channel in zip(values, channels, strict=True) if channel.any()}
