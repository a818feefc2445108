"""What the steps of executing a spec share: the job, and a case with what was found for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from m3b.data.records import Record
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.folder import DataFolder
from m3b.data.spec.model import IndexSpec
from m3b.data.spec.sources import Sources


@dataclass
class Entry:
    """A case and what was found for it."""

    case: CaseDraft
    record: Record
    side: str = ""
    keys: tuple[str, ...] = ()


@dataclass
class SpecExecution:
    """One execution of a spec: what it reads, where it writes, and what it has to say; `prompted` are masks that were prompted
    for in the run (`m3b.data.spec.prompted`)."""

    spec: IndexSpec
    root: Path
    name: str
    work: Path
    folder: DataFolder
    sources: Sources
    accounting: Accounting
    notes: list[str] = field(default_factory=list)
    dropped: list[tuple[CaseDraft, str]] = field(default_factory=list)
    prompted: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def leave(self, case: CaseDraft, reason: str) -> None:
        """Count the files of a case as left out for this reason, until another case uses them."""
        for path in case.files:
            self.accounting.used.pop(path, None)
        self.accounting.leave(case.files, reason)
        self.dropped.append((case, reason))

    def settle(self, kept: Iterable[CaseDraft]) -> None:
        """Count the files of these cases as used, and say how many others that lie in the same files, as items of arrays, are not."""
        for case in kept:
            self.accounting.use(case.files, "image")
        within = Counter(reason for case, reason in self.dropped if set(case.files) <= self.accounting.used.keys())
        self.notes += [
            f"{count:,} images of files that are used are left out: {reason}" for reason, count in within.most_common()
        ]
