"""The audit of an index: all checks that apply to it, before and after its images and masks are opened."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from m3b.data import kinds
from m3b.data.index import Index, format_patient_count
from m3b.dataset.audit.base import (
    NO_REQUEST,
    AuditCheck,
    AuditData,
    Finding,
    IndexRequest,
    Severity,
    count_patients,
)
from m3b.dataset.audit.files import find_missing_cases
from m3b.dataset.audit.opening import ProgressCallback, open_images
from m3b.dataset.audit.probes import unit_keys
from m3b.dataset.audit.registry import get_checks
from m3b.dataset.audit.unlabelled import describe_unusable, find_unusable
from m3b.dataset.similarity import ComparedSample

MAX_SHAPES = 8


@dataclass(frozen=True)
class Audit:
    """Counts and findings of an audit.

    Args:
        cases, opened: all cases, and those of which every image opened.
        counts: split -> class -> cases; of masks those in which the class occurs, as far as they were opened.
        patients: split -> patients; if they are unknown, groups of images that are kept together.
        shapes: shape -> opened images.
        split: split -> cases.
        patients_known: whether the index says whose each case is.
        unusable: key of each unlabelled image that must not be trained on -> the reason.
    """

    findings: tuple[Finding, ...]
    cases: int
    opened: int
    counts: dict[str, dict[str, int]]
    patients: dict[str, int]
    shapes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    task: str = "diagnosis"
    split: dict[str, int] = field(default_factory=dict)
    patients_known: bool = True
    unusable: dict[str, str] = field(default_factory=dict)

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of a severity."""
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def to_json(self) -> dict[str, Any]:
        values = {name: value for name, value in vars(self).items() if name != "unusable"}
        return {**values, "findings": [finding.to_json() for finding in self.findings]}

    def summary(self) -> str:
        """Return the counts in two lines."""
        lines, kind = [], kinds.of(self.task)
        for split, class_counts in self.counts.items():
            amount = (
                f"{sum(class_counts.values())} labels" if kind.counts_labels else f"{self.split.get(split, 0)} cases"
            )
            names = ", ".join(f"{name}: {count}" for name, count in class_counts.items())
            patients = format_patient_count(self.patients[split], known=self.patients_known)
            lines.append(f"{split}: {amount}{f' ({names})' if names else ''}, {patients}")
        return "; ".join(lines) + f". Opened {self.opened} of {self.cases} {kind.cases_word}."


def audit_index(
    index: Index,
    work: Path,
    *,
    request: IndexRequest = NO_REQUEST,
    max_seconds: float = 120.0,
    on_progress: ProgressCallback | None = None,
) -> Audit:
    """Audit an index; each of its images and masks is opened once.

    Args:
        work: the folder from which the index's paths count.
        max_seconds: after this time the other images stay unopened, and a finding says so.
        on_progress: called with the number of opened images and their total.
    """
    started = time.monotonic()
    data = AuditData(index, work, request)
    missing = find_missing_cases(data)
    probes = open_images(
        index,
        work,
        missing,
        started + max_seconds,
        on_progress,
        # unlabelled images are compared with all others
        None if index.unlabelled else ComparedSample(*data.compared_keys),
    )
    keys = {key for record in index.records if record.key not in missing for key in unit_keys(record, index.task)}
    unopened = len(keys - probes.keys())
    data = replace(data, probes=probes, is_complete=not unopened)
    findings = run_checks(get_checks(), data)
    if unopened:
        message = f"{unopened} images were left unopened: {max_seconds:g} s were spent."
        findings.append(Finding("not_opened", "warn", message))
    unusable = find_unusable(data, started + max_seconds, on_progress) if index.unlabelled else {}
    findings += describe_unusable(unusable, index.unlabelled)
    return Audit(
        findings=tuple(findings),
        cases=len(index.records),
        opened=_count_opened(index, probes),
        counts=data.count_classes(),
        patients={split: count_patients(records) for split, records in data.splits.items()},
        shapes=dict(Counter(probe.shape for probe in data.readable_images.values()).most_common(MAX_SHAPES)),
        seconds=round(time.monotonic() - started, 2),
        task=index.task,
        split={split: len(records) for split, records in data.splits.items()},
        patients_known=index.patients_known,
        unusable=unusable,
    )


def run_checks(checks: Iterable[AuditCheck], data: AuditData) -> list[Finding]:
    """Return the findings of the checks that apply, without those that another finding explains."""
    results = [(check, finding) for check in checks if check.applies_to(data) for finding in check.find(data)]
    codes = {finding.code for _, finding in results}
    return [finding for check, finding in results if not codes.intersection(check.explained_by)]


def _count_opened(index: Index, probes: Mapping[str, Any]) -> int:
    """Cases of which every image opened."""
    return len(
        {
            record.key
            for record in index.records
            if all(key in probes and not probes[key].error for key in unit_keys(record, index.task))
        }
    )
