"""Worker jobs for staging, measuring and baselines.

The reader process does not know a task family that was only registered in this process; its cases are then measured
here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.data.records import Channels, Record
from m3b.isolation.reader import Reader, WorkerJob
from m3b.models import Prediction
from m3b.models.staging import StagedCases
from m3b.plugins import is_installed
from m3b.tasks import Row, get_family
from m3b.tasks.score_details import add_uncertainty

MAX_RENUMBER_S, MAX_COMPARE_S = 120.0, 600.0


@dataclass(frozen=True)
class RenumberRequest:
    """Records whose mask paths are relative to `root`, (old, new) label numbers, and the folder for the new files."""

    records: list[Record]
    root: Path
    folder: Path
    mask_values: list[tuple[int, int]]


@dataclass(frozen=True)
class CompareRequest:
    """Images of the training and of another set, relative to `root`. `max_seconds` limits the opening of each set."""

    training: list[Record]
    records: list[Record]
    root: Path
    max_seconds: float = 60.0


@dataclass(frozen=True)
class ImageOverlap:
    """Keys of images that are pixel-identical to training images, number of near copies, and if all were opened."""

    same_keys: list[str]
    near_count: int
    is_complete: bool


RENUMBER_JOB: WorkerJob[RenumberRequest, list[str]] = WorkerJob(
    "m3b.tasks.worker_jobs:renumber_masks", RenumberRequest, list[str], MAX_RENUMBER_S
)
COMPARE_JOB = WorkerJob(
    "m3b.tasks.worker_jobs:compare_images", CompareRequest, ImageOverlap, MAX_COMPARE_S, parallel=True
)


def renumber_masks(request: RenumberRequest) -> list[str]:
    """Worker job: write each record's mask with new numbers; return the file names in `folder`, empty without a mask.

    Raises:
        DataError: a mask cannot be read or written.
    """
    import numpy as np

    from m3b.dataset.reading import read_mask, write_mask

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
    """Worker job: find the images of another set that are copies of training images."""
    from m3b.dataset.audit.opening import Probes, open_images
    from m3b.dataset.similarity import find_near_copies

    training_index, external_index = _index_single_images(request.training), _index_single_images(request.records)
    probes: Probes = {}
    for image_index in (training_index, external_index):
        probes |= open_images(image_index, request.root, set(), time.monotonic() + request.max_seconds)
    training_keys, external_keys = (
        [record.key for record in image_index.train if record.key in probes]
        for image_index in (training_index, external_index)
    )
    digests = {probes[key].digest for key in training_keys if not probes[key].error and not probes[key].flat}
    same_keys = [key for key in external_keys if probes[key].digest in digests and not probes[key].error]
    near_keys = {key for _, key in find_near_copies(probes, training_keys, external_keys)} - set(same_keys)
    return ImageOverlap(same_keys, len(near_keys), len(probes) == len(training_index.train) + len(external_index.train))


def _index_single_images(records: Sequence[Record]) -> Index:
    """Return an index of single images: each view of a study becomes a record of its own."""
    records_by_key: dict[str, Record] = {}
    for record in records:
        is_single_image = isinstance(record.image, str | Channels)
        for image in [record.image] if is_single_image else [record.image, *record.images]:
            image_record = Record(image)
            records_by_key.setdefault(image_record.key, image_record)
    return Index(tuple(records_by_key.values()), (), ("x",), "diagnosis")


MAX_STAGING_S = 600.0
MAX_MEASURING_S = 600.0
CASES_PER_REQUEST = 500
"""Cases that one message to the reader asks to measure: the answer on 100 classes has 2,000 values a case."""


@dataclass(frozen=True)
class StageImagesRequest:
    """Images, and the folder to stage them in; see `m3b.models.stage_cases`."""

    images: list[str | list[str] | dict[str, str]]
    folder: Path
    is_confined: bool
    root: Path
    link_from_bytes: int


@dataclass(frozen=True)
class AlterFilesRequest:
    """Staged files by their path below `folder`, each with the alteration to apply."""

    folder: Path
    files: list[tuple[str, str]]


@dataclass(frozen=True)
class MeasureCasesRequest:
    """Predictions for records of an index whose paths are relative to `root`."""

    records: list[Record]
    predictions: list[Prediction]
    index: Index
    root: Path


@dataclass(frozen=True)
class BaselineRequest:
    """Training records, and the records to predict with the image-blind baseline."""

    training: list[Record]
    records: list[Record]
    index: Index
    root: Path


STAGE_IMAGES_JOB = WorkerJob("m3b.tasks.worker_jobs:stage_images", StageImagesRequest, StagedCases, MAX_STAGING_S)
ALTER_FILES_JOB: WorkerJob[AlterFilesRequest, list[bool]] = WorkerJob(
    "m3b.tasks.worker_jobs:alter_files", AlterFilesRequest, list[bool], MAX_STAGING_S
)
MEASURE_CASES_JOB: WorkerJob[MeasureCasesRequest, list[Row]] = WorkerJob(
    "m3b.tasks.worker_jobs:measure_cases", MeasureCasesRequest, list[Row], MAX_MEASURING_S
)
BASELINE_JOB: WorkerJob[BaselineRequest, Any] = WorkerJob(
    "m3b.tasks.worker_jobs:compute_baseline", BaselineRequest, Any, MAX_MEASURING_S
)


def stage_images(request: StageImagesRequest) -> StagedCases:
    """Worker job: stage the images. Raises ModelError."""
    from m3b.models import stage_cases

    return stage_cases(
        request.images,
        request.folder,
        request.is_confined,
        base=request.root,
        defer_links=True,
        min_link_bytes=request.link_from_bytes,
    )


def alter_files(request: AlterFilesRequest) -> list[bool]:
    """Worker job: alter the files, which stay minimal copies; return for each whether it was altered."""
    from m3b.data import altering
    from m3b.models.staging import renew_minimal_copy

    was_altered = [altering.alter(request.folder / path, way) for path, way in request.files]
    for (path, _), is_altered in zip(request.files, was_altered, strict=True):
        if is_altered:
            renew_minimal_copy(request.folder / path)
    return was_altered


def measure_cases(request: MeasureCasesRequest) -> list[Row]:
    """Worker job: measure the cases. Raises ModelError, DataError."""
    return _measure_cases_here(request.records, request.predictions, request.index, request.root)


def compute_baseline(request: BaselineRequest) -> Any:
    """Worker job: compute the image-blind baseline. Raises ModelError, DataError."""
    return get_family(request.index.task).predict_baseline(
        request.training, request.records, request.index, request.root
    )


def _measure_cases_here(
    records: Sequence[Record], predictions: Sequence[Prediction], index: Index, root: Path
) -> list[Row]:
    task_family = get_family(index.task)
    pairs = zip(records, predictions, strict=True)
    return [
        add_uncertainty(task_family.measure(record, prediction, index, root), record, prediction)
        for record, prediction in pairs
    ]


def measure_in_reader(
    records: Sequence[Record], predictions: Sequence[Prediction], index: Index, root: Path, reader: Reader
) -> list[Row]:
    """Return one row for each case; the reader, which must see `root` and the predicted files, opens the masks.

    Raises:
        ModelError: a prediction does not fit its image.
        DataError: a file cannot be opened.
    """
    if not is_installed(get_family(index.task)):
        return _measure_cases_here(records, predictions, index, root)
    small_index, rows = reduce_index(index), list[Row]()
    for start in range(0, len(records), CASES_PER_REQUEST):
        part = slice(start, start + CASES_PER_REQUEST)
        request = MeasureCasesRequest(list(records[part]), list(predictions[part]), small_index, root)
        measured: list[Row] = reader.run_job(MEASURE_CASES_JOB, request)
        rows += measured
    return rows


def reduce_index(index: Index) -> Index:
    """Return an index with a few of the cases, of which all properties are those of the whole one.

    A measurement needs the classes, their numbers and the kind of targets; a message with all cases may be too long.
    """
    expected, properties, kept = _list_properties(index), tuple[Any, ...](), list[Record]()
    for record in index.records:
        candidate = replace(index, train=tuple(kept), test=(record,), unlabelled=())
        if _list_properties(candidate) != properties:
            kept.append(record)
            properties = _list_properties(replace(index, train=tuple(kept), test=(), unlabelled=()))
            if properties == expected:
                break
    reduced = replace(index, train=tuple(kept), test=(), unlabelled=())
    return reduced if properties == expected else index


def _list_properties(index: Index) -> tuple[Any, ...]:
    flags = (index.boxed, index.stated, index.masked, index.overlapping, index.multi_label, index.patients_known)
    return (*flags, index.channels, index.covariates)


def compute_baseline_in_reader(
    training: Sequence[Record], records: Sequence[Record], index: Index, root: Path, reader: Reader
) -> Any:
    """Return `TaskFamily.predict_baseline`, computed by the reader, which must see `root`.

    Raises as `measure_in_reader`.
    """
    if not is_installed(get_family(index.task)):
        return get_family(index.task).predict_baseline(training, records, index, root)
    return reader.run_job(BASELINE_JOB, BaselineRequest(list(training), list(records), index, root))
