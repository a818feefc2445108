"""Worker jobs on a data folder, for runs, `m3b look`, `m3b data survey` and `m3b data croissant`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.dataset.manifest.model import Manifest
from m3b.dataset.survey.facts import Survey
from m3b.isolation.reader import WorkerJob


@dataclass(frozen=True)
class SurveyRequest:
    """The folder to survey, and the time limit in seconds."""

    folder: Path
    seconds: float


@dataclass(frozen=True)
class CroissantRequest:
    """The manifest of a folder, to be exported as Croissant (`m3b.dataset.croissant.export_croissant`)."""

    manifest: Manifest
    root: Path
    name: str


JobPayload = dict[str, Any]
MANIFEST_JOB: WorkerJob[JobPayload, JobPayload] = WorkerJob("m3b.dataset.jobs:answer", JobPayload, JobPayload, 1800.0)
"""A job of `m3b.dataset.jobs`; input and output are JSON."""
SURVEY_JOB = WorkerJob("m3b.tools.dataset_jobs:survey_data", SurveyRequest, Survey, 600.0)
CROISSANT_JOB: WorkerJob[CroissantRequest, dict[str, Any]] = WorkerJob(
    "m3b.tools.dataset_jobs:export_croissant", CroissantRequest, dict[str, Any], 600.0
)


def survey_data(request: SurveyRequest) -> Survey:
    """Survey a folder. Runs in the reader process. Raises DataError."""
    from m3b.dataset.survey.facts import SurveyLimits
    from m3b.dataset.survey.survey import survey

    return survey(request.folder, SurveyLimits(seconds=request.seconds))


def export_croissant(request: CroissantRequest) -> dict[str, Any]:
    """Return the manifest as the JSON of a Croissant file. Runs in the reader process. Raises DataError."""
    from m3b.dataset import croissant
    from m3b.dataset.survey.walk import walk

    return croissant.export_croissant(request.manifest, walk(request.root), request.name)
