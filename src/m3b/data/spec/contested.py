"""Tables that give many images several labels: their rows are objects, visits or readers, and no image's class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.expected import countable, drafted
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.model import FromTable, Labels
from m3b.data.spec.proposals import Proposal
from m3b.data.spec.readers import Readers
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

MANY = 0.25
"""Share of images with several labels from which on the table is not taken to label images."""


def weighed(proposals: Sequence[Proposal], root: Path, readers: Readers) -> list[Proposal]:
    """The readings, best first; those whose table gives many images several labels are weaker and unclear."""
    return sorted((_weighed(one, root, readers) for one in proposals), key=lambda one: one.place)


def _weighed(proposal: Proposal, root: Path, readers: Readers) -> Proposal:
    labels = proposal.spec.labels
    if labels is None or not _by_rows(labels) or not countable(proposal.spec, files := readers.files()):
        return proposal
    try:
        _, sources, cases = drafted(proposal.spec, root, readers, files)
        several = _with_several(labels, sources, cases)
    except DataError:
        return proposal
    if several < MANY * len(cases) or not cases:
        return proposal
    why = f"{several:,} of {len(cases):,} images have several labels there, so that its rows may be objects, visits or readers"
    return replace(
        proposal,
        score=proposal.score * (1 - several / len(cases)),
        doubts=(why, *proposal.doubts),
        unclear=proposal.unclear or why,
        settles=False,
    )


def _by_rows(labels: Labels) -> bool:
    """Whether one cell of a table is to be the class of an image."""
    tables = any(isinstance(one, FromTable) for one in labels.sources)
    return tables and not (labels.one_hot or labels.separator)


def _with_several(labels: Labels, sources: Sources, cases: Sequence[CaseDraft]) -> int:
    """Images whose rows give different labels."""
    for case in cases:
        try:
            labels_of(labels, sources, case)
        except LeaveOut:
            continue
    return len(sources.conflicts)
