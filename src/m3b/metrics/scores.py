"""The metrics of a model on its test cases, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from m3b.measure import Measure, finite_or_none

__all__ = ["ClassScore", "LabelScore", "Measure", "Scores", "finite_or_none"]


@dataclass(frozen=True)
class ClassScore:
    """One class against the rest: number of its cases, its AUROC, and the ROC curve as (fpr, tpr) points."""

    name: str
    n: int
    auroc: Measure
    roc: tuple[tuple[float, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        points = [list(point) for point in self.roc]
        return {"name": self.name, "n": self.n, "auroc": self.auroc.to_dict(), "roc": points}


@dataclass(frozen=True)
class LabelScore:
    """One label of a mask, one class of boxes or one finding of a report: its cases and its metrics by name."""

    name: str
    n: int
    metrics: Mapping[str, Measure]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"name": self.name, "n": self.n, "metrics": {k: m.to_dict() for k, m in self.metrics.items()}}


@dataclass(frozen=True)
class Scores:
    """Everything that was measured.

    Args:
        primary: the metric that the task is judged by.
        metrics: every metric by canonical name, including the primary one.
        classes: class names; of two exclusive classes the second is the positive one.
        confusion: rows truth, columns decision; in a multi-label task one row [tp, fp, fn, tn] a finding.
        calibration: bins of {"confidence", "correct", "n"}.
        task: the task family.
        per_label: for tasks other than diagnosis, the metrics that exist for each label.
        details: JSON values that belong to one task: counts, settings, curves.
        patients_known: whether the index names the patient of each case. If not, `n_patients` counts groups of images
            that are kept together; the same person may be in several groups, and in training.
    """

    primary: Measure
    metrics: Mapping[str, Measure]
    classes: tuple[str, ...]
    n_cases: int
    n_patients: int
    multi_label: bool = False
    per_class: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    calibration: tuple[Mapping[str, float], ...] = ()
    task: str = "diagnosis"
    per_label: tuple[LabelScore, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    patients_known: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as in `locked/scores.json` and `model/metrics.json`."""
        return {
            "primary": self.primary.to_dict(),
            "metrics": {name: measure.to_dict() for name, measure in self.metrics.items()},
            "classes": list(self.classes),
            "n_cases": self.n_cases,
            "n_patients": self.n_patients if self.patients_known else None,
            "n_groups": self.n_patients,
            "patients_known": self.patients_known,
            "multi_label": self.multi_label,
            "per_class": [score.to_dict() for score in self.per_class],
            "confusion": [list(row) for row in self.confusion],
            "calibration": [dict(row) for row in self.calibration],
            "task": self.task,
            "per_label": [score.to_dict() for score in self.per_label],
            "details": dict(self.details),
        }
