"""What runs, `m3b look`, `m3b data survey` and `m3b data croissant` ask of the reader process about a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.data.spec.model import IndexSpec
from m3b.data.survey.relations import Survey
from m3b.reader import Request


@dataclass(frozen=True)
class ToSurvey:
    """A folder, and the seconds that looking at it may take."""

    folder: Path
    seconds: float


@dataclass(frozen=True)
class ToWrite:
    """A reading of a folder; as `m3b.data.spec.croissant.written`."""

    spec: IndexSpec
    root: Path
    name: str


Job = dict[str, Any]
JOB: Request[Job, Job] = Request("m3b.data.spec.inside:answer", Job, Job, 1800.0)
"""A job of `m3b.data.spec.inside` and its answer, both as JSON."""
SURVEY = Request("m3b.tools.surveying:look_over", ToSurvey, Survey, 600.0)
CROISSANT: Request[ToWrite, dict[str, Any]] = Request(
    "m3b.tools.surveying:as_croissant", ToWrite, dict[str, Any], 600.0
)


def look_over(asked: ToSurvey) -> Survey:
    """Inside the reader: as `m3b.data.survey.survey`. Raises DataError."""
    from m3b.data.survey import survey
    from m3b.data.survey.facts import SurveyLimits

    return survey(asked.folder, limits=SurveyLimits(seconds=asked.seconds))


def as_croissant(asked: ToWrite) -> dict[str, Any]:
    """Inside the reader: the reading as a Croissant file. Raises DataError."""
    from m3b.data.spec.croissant import written

    return written(asked.spec, asked.root, asked.name)
