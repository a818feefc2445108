"""What staging, measuring and baselines ask of the reader process.

A task family that was added in this very process is not known there; then the same is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.models import Prediction
from m3b.models.staging import StagedCases
from m3b.plugins import is_installed
from m3b.reader import Reader, WorkerJob
from m3b.tasks import Row, get_family
from m3b.tasks.doubts import add_uncertainty

MAX_STAGING_S = 600.0
MAX_MEASURING_S = 600.0


@dataclass(frozen=True)
class StageImagesRequest:
    """Images, and where they shall lie; as `m3b.models.stage_cases`."""

    images: list[str | list[str] | dict[str, str]]
    folder: Path
    is_confined: bool
    root: Path
    link_from_bytes: int


@dataclass(frozen=True)
class AlterFilesRequest:
    """Staged files by their path below `folder`, and the way in which each is to be altered."""

    folder: Path
    files: list[tuple[str, str]]


@dataclass(frozen=True)
class MeasureCasesRequest:
    """Answers to records of an index whose paths count from `root`."""

    records: list[Record]
    predictions: list[Prediction]
    index: Index
    root: Path


@dataclass(frozen=True)
class BaselineRequest:
    """Records of an index that may be learnt from, and those that a blind answer is wanted for."""

    training: list[Record]
    records: list[Record]
    index: Index
    root: Path


STAGE_IMAGES_JOB = WorkerJob("m3b.tasks.inside:stage_images", StageImagesRequest, StagedCases, MAX_STAGING_S)
ALTER_FILES_JOB: WorkerJob[AlterFilesRequest, list[bool]] = WorkerJob(
    "m3b.tasks.inside:alter_files", AlterFilesRequest, list[bool], MAX_STAGING_S
)
MEASURE_CASES_JOB: WorkerJob[MeasureCasesRequest, list[Row]] = WorkerJob(
    "m3b.tasks.inside:measure_cases", MeasureCasesRequest, list[Row], MAX_MEASURING_S
)
BASELINE_JOB: WorkerJob[BaselineRequest, Any] = WorkerJob(
    "m3b.tasks.inside:compute_baseline", BaselineRequest, Any, MAX_MEASURING_S
)


def stage_images(request: StageImagesRequest) -> StagedCases:
    """Inside the reader. Raises ModelError."""
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
    """Inside the reader: which files were altered."""
    from m3b.data import altering

    return [altering.alter(request.folder / path, way) for path, way in request.files]


def measure_cases(request: MeasureCasesRequest) -> list[Row]:
    """Inside the reader. Raises ModelError, DataError."""
    return _measure_cases_here(request.records, request.predictions, request.index, request.root)


def compute_baseline(request: BaselineRequest) -> Any:
    """Inside the reader. Raises ModelError, DataError."""
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
    """One row a case, the masks opened by the reader, which must see `root` and the answers' files.

    Raises:
        ModelError: an answer that cannot be that of its image.
        DataError: a file that cannot be opened.
    """
    if not is_installed(get_family(index.task)):
        return _measure_cases_here(records, predictions, index, root)
    return reader.run_job(MEASURE_CASES_JOB, MeasureCasesRequest(list(records), list(predictions), index, root))


def compute_baseline_in_reader(
    training: Sequence[Record], records: Sequence[Record], index: Index, root: Path, reader: Reader
) -> Any:
    """What `TaskFamily.trivial` gives, the masks opened by the reader, which must see `root`. Raises as `measure_in_reader`."""
    if not is_installed(get_family(index.task)):
        return get_family(index.task).predict_baseline(training, records, index, root)
    return reader.run_job(BASELINE_JOB, BaselineRequest(list(training), list(records), index, root))
