"""What runs, `m3b look`, `m3b data survey` and `m3b data croissant` ask of the reader process about a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.spec.model import IndexSpec
from m3b.data.survey.relations import Survey
from m3b.reader import WorkerJob


@dataclass(frozen=True)
class SurveyRequest:
    """A folder, and the seconds that looking at it may take."""

    folder: Path
    seconds: float


@dataclass(frozen=True)
class CroissantRequest:
    """A manifest of a folder; as `m3b.data.spec.croissant.written`."""

    spec: IndexSpec
    root: Path
    name: str


JobPayload = dict[str, Any]
MANIFEST_JOB: WorkerJob[JobPayload, JobPayload] = WorkerJob(
    "m3b.data.spec.inside:answer", JobPayload, JobPayload, 1800.0
)
"""A job of `m3b.data.spec.inside` and its answer, both as JSON."""
SURVEY_JOB = WorkerJob("m3b.tools.dataset_jobs:survey_data", SurveyRequest, Survey, 600.0)
CROISSANT_JOB: WorkerJob[CroissantRequest, dict[str, Any]] = WorkerJob(
    "m3b.tools.dataset_jobs:export_croissant", CroissantRequest, dict[str, Any], 600.0
)


def survey_data(request: SurveyRequest) -> Survey:
    """Inside the reader: as `m3b.data.survey.survey`. Raises DataError."""
    from m3b.data.survey import survey
    from m3b.data.survey.facts import SurveyLimits

    return survey(request.folder, limits=SurveyLimits(seconds=request.seconds))


def export_croissant(request: CroissantRequest) -> dict[str, Any]:
    """Inside the reader: the manifest as a Croissant file. Raises DataError."""
    from m3b.data.spec.croissant import written

    return written(request.spec, request.root, request.name)
