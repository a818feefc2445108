"""Worker jobs of the checks in the confined reader."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from m3b.data import kinds
from m3b.data.links import roots_of
from m3b.dataset.archive_subsets import Items
from m3b.dataset.audit import NO_REQUEST, Audit, IndexRequest
from m3b.dataset.audit.registry import are_installed
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.inprocess import open_reader
from m3b.plugins import is_installed


@dataclass(frozen=True)
class AuditRequest:
    """The index in `work`, the maximum time to open its images, and what it is for."""

    work: Path
    task: str
    max_seconds: float
    index_request: IndexRequest = NO_REQUEST


@dataclass(frozen=True)
class SubsetRequest:
    """An archive, its needed items by key, and the target of the copy."""

    source: Path
    target: Path
    keys: dict[str, Items]


AUDIT_JOB = WorkerJob("m3b.agents.checks.worker_jobs:run_audit", AuditRequest, Audit, parallel=True)
SUBSET_JOB = WorkerJob("m3b.agents.checks.worker_jobs:write_requested_subset", SubsetRequest, bool, 3600.0)


def run_audit(audit_request: AuditRequest) -> Audit:
    """Audit the index and open its images and masks; runs in the reader. Raises DataError."""
    from m3b.data.index import read_index
    from m3b.dataset.audit import audit_index
    from m3b.isolation.untrusted import report_progress

    return audit_index(
        read_index(audit_request.work, audit_request.task),
        audit_request.work,
        request=audit_request.index_request,
        max_seconds=audit_request.max_seconds,
        on_progress=report_progress,
    )


def write_requested_subset(subset_request: SubsetRequest) -> bool:
    """Write the items of an archive (`m3b.dataset.archive_subsets`); runs in the reader. Raises DataError."""
    from m3b.dataset.archive_subsets import write_subset
    from m3b.isolation.untrusted import announce_opening

    announce_opening(subset_request.source)
    return write_subset(subset_request.source, subset_request.target, subset_request.keys)


def audit_in_reader(work: Path, task: str, max_seconds: float) -> Audit:
    """Audit an index outside of runs, in a reader; in this process if the task was added in this process.

    Raises:
        DataError: there is no readable index.
    """
    audit_request = AuditRequest(work.resolve(), task, max_seconds)
    if not is_installed(kinds.of(task)) or not are_installed():
        return run_audit(audit_request)
    with open_reader(root for root in roots_of(work) if root.is_dir()) as reader:
        return reader.run_job(AUDIT_JOB, audit_request)
