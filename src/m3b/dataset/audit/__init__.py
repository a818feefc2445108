"""The audit: checks of a data set before anybody trains on it. Each is an `AuditCheck` of its own."""

from m3b.dataset.audit.audit import Audit, audit_index, run_checks
from m3b.dataset.audit.base import NO_REQUEST, AuditCheck, AuditData, Finding, IndexRequest, Severity
from m3b.dataset.audit.registry import get_checks

__all__ = [
    "NO_REQUEST",
    "Audit",
    "AuditCheck",
    "AuditData",
    "Finding",
    "IndexRequest",
    "Severity",
    "audit_index",
    "get_checks",
    "run_checks",
]
