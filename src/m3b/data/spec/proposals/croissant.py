"""A Croissant file in the folder is a reading of it: what it says is tried against the folder like a person's word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from m3b.data.spec.checking import check
from m3b.data.spec.croissant import given_by, load
from m3b.data.spec.proposals.ask import Ask, Proposal
from m3b.data.spec.proposals.narrowed import propose_given
from m3b.data.survey.relations import Survey
from m3b.errors import DataError

SCORE = 0.8
"""Of what the data set's makers say of it, where it fits the folder."""


def propose_croissant(survey: Survey, ask: Ask, root: Path) -> Iterator[Proposal]:
    """Readings by Croissant files at the top of the folder; what cannot be used is no reading."""
    for file in sorted(root.glob("*.json"))[:50]:
        if not file.is_file() or file.is_symlink():
            continue
        try:
            given = given_by(load(file))
            told = f"as the Croissant file {file.name} says"
            if given.index is None:
                best = propose_given(survey, ask, given, root, 1)[0]
                yield replace(best, score=max(best.score, SCORE), evidence=(told, *best.evidence))
            elif given.index.task == ask.task:
                check(given.index, root)
                yield Proposal(given.index, f"the reading in {file.name}", SCORE, (told,))
        except DataError:
            continue
