"""The audit of an index whose images need not exist."""

from __future__ import annotations

from pathlib import Path

from m3b.data.index import Index
from m3b.dataset.audit import NO_REQUEST, AuditData, Finding, IndexRequest, get_checks, run_checks


def find_without_images(index: Index, request: IndexRequest = NO_REQUEST) -> list[Finding]:
    """Return what the index alone shows."""
    findings = run_checks(get_checks(), AuditData(index, Path("/nowhere"), request))
    return [finding for finding in findings if finding.code not in ("missing_file", "missing_mask")]


def find_metric_problem(index: Index, metric: str) -> str:
    """Return why the annotation does not allow a metric; empty if it does."""
    findings = find_without_images(index, IndexRequest(metric=metric))
    return next((finding.message for finding in findings if finding.code == "metric_not_borne"), "")
