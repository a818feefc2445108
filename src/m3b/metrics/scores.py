"""The figures of a model on its test cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def plain(value: float | None) -> float | None:
    """A number as JSON can hold it: NaN and infinity become None."""
    return None if value is None or not math.isfinite(value) else float(value)


@dataclass(frozen=True)
class Measure:
    """One metric.

    Args:
        name: canonical name.
        value: the figure on all test cases; NaN where it is undefined.
        low: lower end of the 95 % interval, None where there is no honest one.
        high: upper end, likewise.
        n: number of test cases.
        baseline: what the best answer gets that never looks at an image; None where that says nothing.
        gain: 95 % interval of how much better than that the model is on the same cases, positive for better; None
            where the baseline is the same number for any cases (0.5 for AUROC), so that low and high say it all.
        patients: independent observations behind the figure: patients, of the rarest class where classes count alike.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    n: int
    baseline: float | None = None
    gain: tuple[float, float] | None = None
    patients: int | None = None

    def __str__(self) -> str:
        span = "no interval" if self.low is None or self.high is None else f"95 % CI {self.low:.3f}-{self.high:.3f}"
        return f"{self.name} {self.value:.3f} ({span}, n = {self.n})"

    def to_dict(self) -> dict[str, Any]:
        """JSON values; an undefined figure is null."""
        return {
            "name": self.name,
            "value": plain(self.value),
            "low": plain(self.low),
            "high": plain(self.high),
            "n": self.n,
            "baseline": plain(self.baseline),
            "gain": None if self.gain is None else [plain(bound) for bound in self.gain],
            "patients": self.patients,
        }


@dataclass(frozen=True)
class ClassScore:
    """One class against the rest: cases that have it, its AUROC, and the ROC curve as (fpr, tpr) points."""

    name: str
    n: int
    auroc: Measure
    roc: tuple[tuple[float, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        points = [list(point) for point in self.roc]
        return {"name": self.name, "n": self.n, "auroc": self.auroc.to_dict(), "roc": points}


@dataclass(frozen=True)
class LabelScore:
    """One label of a mask, one class of boxes or one finding of a report: its cases and its metrics by name."""

    name: str
    n: int
    metrics: Mapping[str, Measure]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"name": self.name, "n": self.n, "metrics": {k: m.to_dict() for k, m in self.metrics.items()}}


@dataclass(frozen=True)
class Scores:
    """Everything that was measured.

    Args:
        primary: the metric that the task is judged by.
        metrics: every metric by canonical name, the primary one among them.
        classes: class names; of two exclusive classes the second is the positive one.
        confusion: rows truth, columns decision; in a multi-label task one row [tp, fp, fn, tn] a finding.
        calibration: bins of {"confidence", "correct", "n"}.
        task: diagnosis, segmentation, detection or report.
        per_label: of the tasks other than diagnosis, the metrics that exist for each label.
        details: JSON values that belong to one task: counts, settings, curves.
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

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `locked/scores.json` and `model/metrics.json` hold this."""
        return {
            "primary": self.primary.to_dict(),
            "metrics": {name: measure.to_dict() for name, measure in self.metrics.items()},
            "classes": list(self.classes),
            "n_cases": self.n_cases,
            "n_patients": self.n_patients,
            "multi_label": self.multi_label,
            "per_class": [score.to_dict() for score in self.per_class],
            "confusion": [list(row) for row in self.confusion],
            "calibration": [dict(row) for row in self.calibration],
            "task": self.task,
            "per_label": [score.to_dict() for score in self.per_label],
            "details": dict(self.details),
        }
