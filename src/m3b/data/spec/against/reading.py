"""A proposed reading of the folder as an index is held against it, and what came of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from m3b.data.records import Channels, Record
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import CaseDraft, build_cases
from m3b.data.spec.execute import slots_needed
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.only import is_meant
from m3b.data.spec.proposals import Proposal
from m3b.data.spec.readers import Readers
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

MIN_SHARED = 0.5
"""Share of the index's cases that a reading must have too for the two to be compared."""
AGREE = 0.98
"""Share of cases that agree from which on the targets are the archive's."""

Name = tuple[str, ...]
"""What an index and a reading both call the image of a case: its paths below the data folder."""


@dataclass(frozen=True)
class MadeIndex:
    """An index that a script made.

    Args:
        cases: by the images' names.
        values: class -> its number, or its value in masks.
        base: the folder that its paths are relative to.
        name: of the data folder in its paths (`data/<name>/...`).
    """

    cases: Mapping[Name, Record]
    values: Mapping[str, int]
    base: Path
    name: str


@dataclass(frozen=True)
class HeldTargets:
    """What came of holding targets against a reading's.

    Args:
        what: what was compared, in the plural.
        compared: cases of which both have a target.
        differing: name and what differs of those that do not agree.
    """

    what: str
    compared: int = 0
    differing: tuple[tuple[str, str], ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether there was something to compare, and it is the archive's."""
        return self.compared > 0 and len(self.differing) <= (1 - AGREE) * self.compared


@dataclass
class HeldReading:
    """A proposal's cases, by what an index would call their image."""

    proposal: Proposal
    cases: dict[Name, CaseDraft]
    sources: Sources
    folder: DataFolder
    accounting: Accounting

    @property
    def spec(self) -> IndexSpec:
        return self.proposal.spec

    def shared(self, made: MadeIndex) -> Iterator[tuple[CaseDraft, Record]]:
        """The cases that both have."""
        for name, record in made.cases.items():
            if name in self.cases:
                yield self.cases[name], record


def readings(
    proposals: Sequence[Proposal], root: Path, readers: Readers, files: Sequence[str], index: set[Name]
) -> Iterator[HeldReading]:
    """The proposals that have most of the index's cases, best first."""
    built: dict[str, dict[Name, CaseDraft]] = {}
    for proposal in proposals:
        folder, accounting = DataFolder(root, files, readers.lookup), Accounting(total=len(files))
        sources = Sources(folder, readers.rows, readers.lines, accounting)
        meant = "".join(one.model_dump_json() for one in proposal.spec.only)
        known = proposal.spec.images.model_dump_json() + "".join(slots_needed(proposal.spec)) + meant
        try:
            if known not in built:
                cases = build_cases(folder, proposal.spec.images, accounting, slots_needed(proposal.spec))
                built[known] = {_of_case(case): case for case in cases if is_meant(proposal.spec, sources, case)}
        except DataError:
            continue
        if len(index & set(built[known])) >= MIN_SHARED * len(index):
            yield HeldReading(proposal, built[known], sources, folder, accounting)


def name_of(record: Record, folder: str) -> Name:
    """What a record calls its image; of channels the order does not matter."""
    paths = tuple(path.removeprefix(f"data/{folder}/").rstrip("/") for path in record.images)
    return tuple(sorted(paths)) if isinstance(record.image, Channels) else paths


def _of_case(case: CaseDraft) -> Name:
    if case.folder is not None:
        return (case.folder,)
    if case.channels:
        return tuple(sorted(item.reference for item in case.channels.values()))
    return tuple(item.reference for item in case.items)


def meanings(pairs: Sequence[tuple[str, str]], own: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    """Class of the archive -> class of the index: itself where both have the same names, else what most cases say.

    Args:
        pairs: (the archive's, the index's) of what was brought together.
        own, theirs: all names of the index and of the archive.
    """
    mine = {name.casefold(): name for name in own}
    if len(theirs) > 1 and {name.casefold() for name in theirs} == set(mine):
        return {name: mine[name.casefold()] for name in theirs}
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for their, one in pairs:
        counted[their][one] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in counted.items()}
