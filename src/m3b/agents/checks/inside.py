"""What the checks ask of the reader process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from m3b.data.audit import Audit
from m3b.reader import Request


@dataclass(frozen=True)
class ToAudit:
    """An index as it lies in `work`, and how long its images may be opened."""

    work: Path
    task: str
    seconds: float


AUDIT = Request("m3b.agents.checks.inside:audit", ToAudit, Audit, parallel=True)


def audit(asked: ToAudit) -> Audit:
    """Inside the reader: audit the index and open its images and masks. Raises DataError."""
    from m3b.data.audit import audit_index
    from m3b.data.index import read_index
    from m3b.untrusted import progress

    return audit_index(read_index(asked.work, asked.task), asked.work, seconds=asked.seconds, tick=progress)
