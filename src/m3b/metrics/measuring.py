"""From figures of single cases to measures with intervals: what segmentation, detection and reports share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .bootstrap import interval, resample
from .cases import Floats, OfPatient, patient_numbers
from .estimators import divide, mean_defined
from .scores import LabelScore, Measure
from .vocabulary import UNBOUNDED

Estimator = Callable[[Floats], dict[str, Floats]]
"""Weights (draws, cases) -> metric -> (draws, labels), or (draws,) where a metric has no labels; NaN: undefined."""


@dataclass(frozen=True)
class Group:
    """Cases by their patients' numbers."""

    patient: NDArray[np.int64]

    @property
    def n_cases(self) -> int:
        """Number of cases."""
        return len(self.patient)

    @cached_property
    def n_patients(self) -> int:
        """Number of different patients."""
        return int(self.patient.max()) + 1

    def patients_with(self, concerned: NDArray[np.bool_]) -> int:
        """Number of patients with a case that is concerned; `concerned` is (cases,)."""
        return len(np.unique(self.patient[concerned]))


def group(cases: Sequence[OfPatient]) -> Group:
    """The patients of some cases.

    Raises:
        ValueError: no cases.
    """
    if not cases:
        raise ValueError("no cases to score: the list of predictions is empty")
    return Group(patient_numbers(cases))


def weighted_means(values: Floats, weights: Floats) -> Floats:
    """(draws, labels) mean of (cases, labels) values over the cases that define them, NaN where none does."""
    known = ~np.isnan(values)
    return divide(weights @ np.where(known, values, 0.0), weights @ known.astype(np.float64))


def plain_figures(estimator: Estimator, n_cases: int) -> dict[str, Floats]:
    """Metric -> (labels,) or () value on all cases, each counted once."""
    return {name: value[0] for name, value in estimator(np.ones((1, n_cases))).items()}


@dataclass(frozen=True)
class Settings:
    """How intervals are made, and what the figures are compared with.

    Args:
        trivial: metric -> (labels,) or () figures of the best answer that ignores the image.
        concerned: (cases, labels) which cases say something about a label: its rarest label bounds how sure a
            perfect mean can be.
        effective: the same number for metrics without labels, where it is not that of all patients.
    """

    draws: int
    seed: int
    trivial: Mapping[str, Floats]
    concerned: NDArray[np.bool_]
    effective: Mapping[str, int] = field(default_factory=dict)


def measure(
    patients: Group, labels: Sequence[str], estimator: Estimator, settings: Settings
) -> tuple[dict[str, Measure], tuple[LabelScore, ...]]:
    """Every metric over all labels (the mean of those that are defined), and for each label."""
    n = patients.n_cases
    drawn = resample(patients, lambda _, weights: estimator(weights), settings.draws, settings.seed)
    reach = [patients.patients_with(column) for column in settings.concerned.T]
    fewest = min((count for count in reach if count), default=0)
    overall: dict[str, Measure] = {}
    single: list[dict[str, Measure]] = [{} for _ in labels]
    for name, values in plain_figures(estimator, n).items():
        samples, trivial = drawn.get(name), settings.trivial.get(name)
        if values.ndim == 0:
            overall[name] = _one(
                name, float(values), samples, trivial, (n, settings.effective.get(name, patients.n_patients))
            )
            continue
        means = None if samples is None else mean_defined(samples)
        mean_trivial = None if trivial is None else mean_defined(np.where(np.isnan(values), np.nan, trivial))
        overall[name] = _one(name, float(mean_defined(values)), means, mean_trivial, (n, fewest))
        for k, table in enumerate(single):
            cut = None if samples is None else samples[:, k]
            floor = None if trivial is None else trivial[k]
            table[name] = _one(name, float(values[k]), cut, floor, (int(settings.concerned[:, k].sum()), reach[k]))
    scores = zip(labels, settings.concerned.sum(axis=0), single, strict=True)
    return overall, tuple(LabelScore(label, int(count), table) for label, count, table in scores)


def _one(
    name: str, value: float, samples: Floats | None, trivial: Floats | float | None, sizes: tuple[int, int]
) -> Measure:
    n, effective = sizes
    share = name not in UNBOUNDED
    low, high = (None, None) if samples is None else interval(value, samples, effective, share)
    floor = None if trivial is None or np.isnan(trivial) else float(trivial)
    return Measure(name, value, low, high, n, floor)
