"""A look at a data folder of which nobody has said yet what it is wanted for."""

from __future__ import annotations

from pathlib import Path

from m3b.briefs import SurveySummary
from m3b.data.cards import own_notes
from m3b.reader import Reader
from m3b.run.given import run_reader_job
from m3b.run.proposal_choice import SURVEY_S
from m3b.run.readings import list_survey_questions, make_survey_summary
from m3b.sandbox import Mounts, choose_sandbox


def survey_dataset(folder: Path, scratch: Path) -> SurveySummary:
    """What all files of a folder hold, and the best reading of each task, where nobody says yet what is wanted.

    Args:
        scratch: an empty folder for the job; nothing else is written.

    Raises:
        DataError: the folder cannot be surveyed.
    """
    survey_questions = list_survey_questions()
    job = {
        "do": "overview",
        "request": "",
        "classes": [],
        "notes": own_notes(folder),
        "seconds": SURVEY_S,
        "asked": survey_questions,
    }
    with Reader(choose_sandbox(), Mounts(read=(folder,), write=(scratch,))) as reader:
        return make_survey_summary(survey_questions, run_reader_job(job, folder, scratch, reader))
