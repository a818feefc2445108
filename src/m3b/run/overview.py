"""A look at a data folder of which nobody has said yet what it is wanted for."""

from __future__ import annotations

from pathlib import Path

from m3b.briefs import FolderRead
from m3b.data.cards import own_notes
from m3b.reader import Reader
from m3b.run.given import outside
from m3b.run.proposal_choice import SURVEY_S
from m3b.run.readings import folder_read, questions
from m3b.sandbox import Mounts, choose


def overview(folder: Path, place: Path) -> FolderRead:
    """What all files of a folder hold, and the best reading of each task, where nobody says yet what is wanted.

    Args:
        place: an empty folder for the job; nothing else is written.

    Raises:
        DataError: the folder cannot be surveyed.
    """
    survey_questions = questions()
    job = {
        "do": "overview",
        "request": "",
        "classes": [],
        "notes": own_notes(folder),
        "seconds": SURVEY_S,
        "asked": survey_questions,
    }
    with Reader(choose(), Mounts(read=(folder,), write=(place,))) as reader:
        return folder_read(survey_questions, outside(job, folder, place, reader))
