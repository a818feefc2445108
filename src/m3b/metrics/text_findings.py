"""What reports state, as estimators of the label F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .arithmetic import divide
from .cases import Floats
from .findings import Findings, extract_findings
from .measuring import Estimator


class ReportPair(Protocol):
    """A true and a written report."""

    @property
    def reference(self) -> str: ...
    @property
    def prediction(self) -> str: ...


@dataclass(frozen=True)
class FindingTable:
    """(cases, findings) what the true and what the written reports state."""

    truth: NDArray[np.bool_]
    predicted: NDArray[np.bool_]


def tabulate_findings(cases: Sequence[ReportPair], findings: Findings) -> FindingTable:
    names = list(findings)
    tables = []
    for texts in ([case.reference for case in cases], [case.prediction for case in cases]):
        stated_per_text = [extract_findings(text, findings) for text in texts]
        tables.append(
            np.array([[name in stated_names for name in names] for stated_names in stated_per_text], dtype=np.bool_)
        )
    return FindingTable(tables[0], tables[1])


def _label_counts(table: FindingTable, weights: Floats) -> tuple[Floats, Floats]:
    """2 TP, and 2 TP + FP + FN; each (draws, findings)."""
    hits = weights @ (table.truth & table.predicted).astype(np.float64)
    return 2 * hits, weights @ table.truth.astype(np.float64) + weights @ table.predicted.astype(np.float64)


def make_label_estimator(table: FindingTable) -> Estimator:
    """label_f1 (draws, findings), mean over findings that any report states; label_f1_micro (draws,), all pooled."""

    def estimate(weights: Floats) -> dict[str, Floats]:
        numerator, denominator = _label_counts(table, weights)
        return {
            "label_f1": divide(numerator, denominator),
            "label_f1_micro": divide(numerator.sum(axis=1), denominator.sum(axis=1)),
        }

    return estimate
