"""What the checks ask of the reader process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from m3b.data import kinds
from m3b.data.archive_writers import Items
from m3b.data.audit import NOBODY, Audit, IndexRequest
from m3b.data.links import roots_of
from m3b.plugins import installed
from m3b.reader import Request
from m3b.reader.outside import reading


@dataclass(frozen=True)
class ToAudit:
    """An index as it lies in `work`, how long its images may be opened, and what it is for."""

    work: Path
    task: str
    seconds: float
    asked: IndexRequest = NOBODY


@dataclass(frozen=True)
class ToCut:
    """An archive, the items of it that are wanted by key, and where they shall lie."""

    source: Path
    target: Path
    keys: dict[str, Items]


AUDIT = Request("m3b.agents.checks.inside:audit", ToAudit, Audit, parallel=True)
CUT = Request("m3b.agents.checks.inside:cut", ToCut, bool, 3600.0)


def audit(asked: ToAudit) -> Audit:
    """Inside the reader: audit the index and open its images and masks. Raises DataError."""
    from m3b.data.audit import audit_index
    from m3b.data.index import read_index
    from m3b.untrusted import progress

    return audit_index(
        read_index(asked.work, asked.task), asked.work, asked=asked.asked, seconds=asked.seconds, tick=progress
    )


def cut(asked: ToCut) -> bool:
    """Inside the reader: as `m3b.data.archives.subset`. Raises DataError."""
    from m3b.data.archives import subset
    from m3b.untrusted import opening

    opening(asked.source)
    return subset(asked.source, asked.target, asked.keys)


def audited(work: Path, task: str, seconds: float) -> Audit:
    """Audit an index outside of runs: by a reader, which does not know a task that was added in this very process.

    Raises:
        DataError: no readable index.
    """
    audit_request = ToAudit(work.resolve(), task, seconds)
    if not installed(kinds.of(task)):
        return audit(audit_request)
    with reading(root for root in roots_of(work) if root.is_dir()) as reader:
        return reader.ask(AUDIT, audit_request)
