"""Tables that give most images several labels: their rows are objects, visits or readers, and no image's class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import DataFolder, build_cases
from m3b.data.spec.execute import slots_needed
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.model import FromTable, IndexSpec
from m3b.data.spec.proposals import Proposal
from m3b.data.spec.readers import Readers
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

MAX_FILES = 20_000
"""Of a folder whose cases are looked at one by one."""
MANY = 0.25
"""Share of images with several labels from which on the table is not taken to label images."""


def weighed(proposals: Sequence[Proposal], root: Path) -> list[Proposal]:
    """The readings, best first; those whose table disagrees with itself on many images are weaker and unclear."""
    asked = [one for one in proposals if _by_rows(one.spec)]
    if not asked:
        return list(proposals)
    readers = Readers(root)
    files = readers.files()
    if len(files) > MAX_FILES:
        return list(proposals)
    found = [_weighed(one, root, readers, files) for one in proposals]
    return sorted(found, key=lambda one: (not one.settles, -one.score))


def _by_rows(spec: IndexSpec) -> bool:
    """Whether one cell of a table is to be the class of an image."""
    labels = spec.labels
    return labels is not None and not (labels.one_hot or labels.separator) and any(
        isinstance(one, FromTable) for one in labels.sources
    )  # fmt: skip


def _weighed(proposal: Proposal, root: Path, readers: Readers, files: Sequence[str]) -> Proposal:
    if not _by_rows(proposal.spec):
        return proposal
    try:
        torn, count = _torn(proposal.spec, root, readers, files)
    except DataError:
        return proposal
    if not count or torn < MANY * count:
        return proposal
    why = f"{torn:,} of {count:,} images have several labels there, so that its rows may be objects, visits or readers"
    score = proposal.score * (1 - torn / count)
    unclear = proposal.unclear or why
    return replace(proposal, score=score, doubts=(why, *proposal.doubts), unclear=unclear, settles=False)


def _torn(spec: IndexSpec, root: Path, readers: Readers, files: Sequence[str]) -> tuple[int, int]:
    """(images whose rows give different labels, images)."""
    assert spec.labels is not None
    accounting = Accounting(total=len(files))
    folder = DataFolder(root, files, readers.lookup)
    sources = Sources(folder, readers.rows, readers.lines, accounting)
    cases = build_cases(folder, spec.images, accounting, slots_needed(spec))
    for case in cases:
        try:
            labels_of(spec.labels, sources, case)
        except LeaveOut:
            continue
    return len(sources.conflicts), len(cases)
