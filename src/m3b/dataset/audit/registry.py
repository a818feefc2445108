"""The registry of checks: those of m3b by module, then those of installed packages (entry point group `m3b.audit_checks`)."""

from __future__ import annotations

from m3b.dataset.audit import (
    boxes,
    burnt_in,
    classes,
    copies,
    covariates,
    drawings,
    files,
    images,
    labels,
    masks,
    numbers,
    patients,
    reports,
    requests,
    states,
    survival,
)
from m3b.dataset.audit.base import ADDED_CHECKS, AuditCheck
from m3b.plugins import is_installed, load_plugins

CHECKS: tuple[AuditCheck, ...] = tuple(
    check
    for module in (
        labels, numbers, survival, reports, boxes, states, masks, classes, covariates, patients, requests, files, images,
        burnt_in, copies, drawings,
    )
    for check in module.CHECKS
)  # fmt: skip
"""The checks of m3b, in the order of their findings."""


def get_checks() -> tuple[AuditCheck, ...]:
    """Return all checks, those of installed packages too."""
    load_plugins()
    return (*CHECKS, *ADDED_CHECKS)


def are_installed() -> bool:
    """Return whether other processes of this installation have all checks too."""
    return all(map(is_installed, get_checks()))
