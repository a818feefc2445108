"""What `m3b data survey` asks of the reader process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from m3b.data.survey.relations import Survey
from m3b.reader import Request


@dataclass(frozen=True)
class ToSurvey:
    """A folder, and the seconds that looking at it may take."""

    folder: Path
    seconds: float


SURVEY = Request("m3b.tools.surveying:look_over", ToSurvey, Survey, 600.0)


def look_over(asked: ToSurvey) -> Survey:
    """Inside the reader: as `m3b.data.survey.survey`. Raises DataError."""
    from m3b.data.survey import survey
    from m3b.data.survey.facts import SurveyLimits

    return survey(asked.folder, limits=SurveyLimits(seconds=asked.seconds))
