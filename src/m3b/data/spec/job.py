"""What the steps of executing a spec share: the job, and a case with what was found for it."""

from __future__ import annotations

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
    prompted: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
