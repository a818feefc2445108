"""What external test sets ask of the reader process: masks with other numbers, and copies of what was learnt from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from m3b.data.index import Index
from m3b.data.records import Channels, Record
from m3b.reader import WorkerJob

MAX_RENUMBER_S, MAX_COMPARE_S = 120.0, 600.0


@dataclass(frozen=True)
class RenumberRequest:
    """Masks of records whose paths count from `root`, the numbers to change, and the folder for the new files."""

    records: list[Record]
    root: Path
    folder: Path
    mask_values: list[tuple[int, int]]


@dataclass(frozen=True)
class CompareRequest:
    """Images that were learnt from, and those of another set; both count from `root`. `max_seconds` for opening each."""

    training: list[Record]
    records: list[Record]
    root: Path
    max_seconds: float = 60.0


@dataclass(frozen=True)
class ImageOverlap:
    """Keys of images that training had too, pixel for pixel; the number that are nearly the same; whether all were opened."""

    same_keys: list[str]
    near_count: int
    is_complete: bool


RENUMBER_JOB: WorkerJob[RenumberRequest, list[str]] = WorkerJob(
    "m3b.tasks.external_inside:renumber_masks", RenumberRequest, list[str], MAX_RENUMBER_S
)
COMPARE_JOB = WorkerJob(
    "m3b.tasks.external_inside:compare_images", CompareRequest, ImageOverlap, MAX_COMPARE_S, parallel=True
)


def renumber_masks(request: RenumberRequest) -> list[str]:
    """Inside the reader: the new file of each record's mask, by its name in `folder`; empty where nothing is marked.

    Raises:
        DataError: a mask that cannot be read or written.
    """
    import numpy as np

    from m3b.data.reading import read_mask, write_mask

    file_names = []
    for position, record in enumerate(request.records):
        if record.mask is None or isinstance(record.mask, Mapping):
            file_names.append("")
            continue
        path = record.mask if isinstance(record.mask, str) else list(record.mask)
        mask = read_mask(path, str(request.root)).array
        renumbered = np.zeros(mask.shape, np.uint16)
        for source, target in request.mask_values:
            renumbered[mask == source] = target
        reference = path if isinstance(path, str) else path[0]
        file_names.append(
            Path(write_mask(renumbered, reference, request.folder / f"{position:05d}", str(request.root))).name
        )
    return file_names


def compare_images(request: CompareRequest) -> ImageOverlap:
    """Inside the reader: which images of another set are copies of what was learnt from."""
    from m3b.data.altered import altered_pairs
    from m3b.data.audit_images import Looks, open_all
    from m3b.data.image_probe import near_pairs

    training_index, external_index = _index_single_images(request.training), _index_single_images(request.records)
    looks: Looks = {}
    for image_index in (training_index, external_index):
        looks |= open_all(image_index, request.root, set(), time.monotonic() + request.max_seconds, None)
    training_keys, external_keys = (
        [record.key for record in image_index.train if record.key in looks]
        for image_index in (training_index, external_index)
    )
    digests = {looks[key].digest for key in training_keys if not looks[key].error and not looks[key].flat}
    same_keys = [key for key in external_keys if looks[key].digest in digests and not looks[key].error]
    training_key_set = set(training_keys)
    pairs = [pair for pair in near_pairs(looks) if (pair[0] in training_key_set) != (pair[1] in training_key_set)]
    pairs += altered_pairs(looks, training_keys, external_keys)
    near_keys = {key for pair in pairs for key in pair if key not in training_key_set} - set(same_keys)
    return ImageOverlap(same_keys, len(near_keys), len(looks) == len(training_index.train) + len(external_index.train))


def _index_single_images(records: Sequence[Record]) -> Index:
    """The pictures alone: each view of a study by itself."""
    records_by_key: dict[str, Record] = {}
    for record in records:
        is_single_image = isinstance(record.image, str | Channels)
        for image in [record.image] if is_single_image else [record.image, *record.images]:
            image_record = Record(image)
            records_by_key.setdefault(image_record.key, image_record)
    return Index(tuple(records_by_key.values()), (), ("x",), "diagnosis")
