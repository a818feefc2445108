"""What a drawn split is stratified by: the labels of a case, the classes of its boxes, or those that its mask marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from m3b.data.kinds.survival import EVENT
from m3b.data.mask_probe import value_counts
from m3b.data.reading import read_mask, shared
from m3b.data.records import Record
from m3b.data.spec.job import SpecExecution
from m3b.errors import DataError
from m3b.isolation.untrusted import should_open_one_by_one

MAX_OPENED = {2: 5000, 3: 200}
"""Masks of pictures and of volumes that are opened at most, by their axes; of larger sets having one is what counts. A
number and no time, so that a spec is executed to the same split everywhere."""
THREADS = 4
MARKED, CAME, CENSORED = "marked", "event", "censored"


def marked_in(job: SpecExecution, records: Sequence[Record]) -> list[tuple[str, ...]]:
    """The classes of each case; of a mask that cannot be opened, or of many, that there is one."""
    masks = [record.mask for record in records if isinstance(record.mask, str)]
    if not masks or job.spec.masks is None or len(masks) > MAX_OPENED.get(_axes(job, masks[0]), 0):
        return [classes_in(record) for record in records]
    named = {value: name for name, value in job.spec.masks.classes.items()}
    with ThreadPoolExecutor(1 if should_open_one_by_one() else THREADS) as pool:
        return list(pool.map(lambda record: _held(job, record, named), records))


def classes_in(record: Record) -> tuple[str, ...]:
    """What a record names without opening anything."""
    if EVENT in record.extra:
        return (CAME if record.extra[EVENT] else CENSORED,)
    if "abnormal" in record.extra:
        return ("abnormal" if record.extra["abnormal"] else "normal",)
    if record.boxes is not None:
        return tuple(dict.fromkeys(one.label for one in record.boxes))
    if isinstance(record.mask, Mapping):
        return tuple(record.mask)
    if record.mask is not None:
        return (MARKED,)
    return record.labels


def _held(job: SpecExecution, record: Record, named: Mapping[int, str]) -> tuple[str, ...]:
    if not isinstance(record.mask, str):
        return classes_in(record)
    try:
        counts = value_counts(read_mask(_place(job, record.mask)).array)
    except DataError:
        return (MARKED,)
    return tuple(name for value, name in named.items() if counts.get(value))


def _axes(job: SpecExecution, mask: str) -> int:
    """2 for a picture, 3 for a volume; 0 where that cannot be told."""
    try:
        return min(3, len(tuple(size for size in shared().probe(_place(job, mask)) if size > 1)))
    except shared().ImageError:
        return 0


def _place(job: SpecExecution, mask: str) -> str:
    prefix = f"data/{job.name}/"
    return str(job.root / mask.removeprefix(prefix) if mask.startswith(prefix) else job.work / mask)
