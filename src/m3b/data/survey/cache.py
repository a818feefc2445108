"""Surveys kept by fingerprint: a folder that has not changed is not looked at again."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from m3b.data.survey.engine import of_tree
from m3b.data.survey.facts import VERSION, SurveyLimits
from m3b.data.survey.relations import Survey
from m3b.data.survey.walk import walk
from m3b.errors import DataError
from m3b.writing import write_text_atomically

MAX_KEPT = 32
"""Surveys that a cache folder holds; the oldest go."""
TORN_S = 3600.0
"""Age in seconds from which on a half-written survey is one that a killed process left."""


def cached_survey(
    root: str | Path, cache: Path, *, limits: SurveyLimits | None = None, keep_late: bool = False
) -> Survey:
    """As `survey`, but taken from `cache` where the folder's names, sizes and times are the same as they were.

    Of folders with more than 20,000 files the sizes and times of a part are compared. A stored survey holds values of
    the data and must be kept as private as the data is: the file is readable for its owner alone.

    Args:
        keep_late: store one that ran out of time too: within a run it stays what was read.

    Raises:
        DataError: `root` is no folder that can be read.
    """
    top, limits = Path(root), limits or SurveyLimits()
    try:
        tree = walk(top, limits)
    except OSError as error:
        raise DataError(f"{top}: {error.strerror or error}. Name a folder that can be read.") from error
    place = cache / f"survey-{VERSION}-{tree.fingerprint}.json"
    try:
        stored = Survey.model_validate_json(place.read_bytes())
        if stored.limits == limits and stored.name == top.name:
            return stored
    except (OSError, ValueError):
        pass
    made = of_tree(tree)
    late = any(note.code == "time" for note in made.notes)
    if keep_late or not late:  # a busy minute must not be remembered beyond a run
        _store(place, made)
    return made


def _store(place: Path, made: Survey) -> None:
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(place, made.model_dump_json(), is_private=True)
        kept = sorted(place.parent.glob("survey-*.json"), key=lambda one: one.stat().st_mtime, reverse=True)
        torn = [one for one in place.parent.glob(".survey-*.json.*") if one.stat().st_mtime < time.time() - TORN_S]
        for old in (*kept[MAX_KEPT:], *torn):
            old.unlink(missing_ok=True)
