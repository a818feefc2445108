"""From figures of single cases to measures with intervals: what segmentation, detection and reports share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .arithmetic import divide, mean_defined
from .bootstrap import interval, median, paired, resample, spread
from .cases import Floats, OfPatient, patient_numbers
from .scores import LabelScore, Measure
from .table import lower_is_better, unbounded

Estimator = Callable[[Floats], dict[str, Floats]]
"""Weights (draws, cases) -> metric -> (draws, labels), or (draws,) where a metric has no labels; NaN: undefined."""


@dataclass(frozen=True)
class PatientGroup:
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


def group(cases: Sequence[OfPatient]) -> PatientGroup:
    """The patients of some cases.

    Raises:
        ValueError: no cases.
    """
    if not cases:
        raise ValueError("no cases to score: the list of predictions is empty")
    return PatientGroup(patient_numbers(cases))


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
        rivals: the answers that ignore the image, measured on the same cases: the best of them is paired with ours.
    """

    draws: int
    seed: int
    trivial: Mapping[str, Floats]
    concerned: NDArray[np.bool_]
    effective: Mapping[str, int] = field(default_factory=dict)
    rivals: Sequence[Estimator] = ()


def measure(
    patients: PatientGroup, labels: Sequence[str], estimator: Estimator, settings: Settings
) -> tuple[dict[str, Measure], tuple[LabelScore, ...]]:
    """Every metric over all labels (the mean of those that are defined), and for each label."""
    n = patients.n_cases
    drawn = resample(patients, lambda _, weights: estimator(weights), settings.draws, settings.seed)
    rivals = _Rivals(patients, settings) if drawn else None
    reach = [patients.patients_with(column) for column in settings.concerned.T]
    known = [count for count in reach if count]
    overall: dict[str, Measure] = {}
    single: list[dict[str, Measure]] = [{} for _ in labels]
    for name, values in plain_figures(estimator, n).items():
        samples, trivial = drawn.get(name), settings.trivial.get(name)
        others = rivals.best(name) if rivals else None
        if values.ndim == 0:
            effective = settings.effective.get(name, patients.n_patients)
            overall[name] = _one(name, float(values), samples, trivial, _Sizes(n, effective, effective), others)
            continue
        means = None if samples is None else mean_defined(samples)
        mean_trivial = None if trivial is None else mean_defined(np.where(np.isnan(values), np.nan, trivial))
        mean_others = (
            None if samples is None or others is None else mean_defined(np.where(np.isnan(samples), np.nan, others))
        )
        sizes = _Sizes(n, min(known, default=0), median(known))
        overall[name] = _one(name, float(mean_defined(values)), means, mean_trivial, sizes, mean_others)
        for k, table in enumerate(single):
            cut, floor, other = (None if part is None else part[..., k] for part in (samples, trivial, others))
            sizes = _Sizes(int(settings.concerned[:, k].sum()), reach[k], reach[k])
            table[name] = _one(name, float(values[k]), cut, floor, sizes, other)
    scores = zip(labels, settings.concerned.sum(axis=0), single, strict=True)
    return overall, tuple(LabelScore(label, int(count), table) for label, count, table in scores)


class _Rivals:
    """What the answers that ignore the image get on the bootstrap samples that ours was measured on."""

    def __init__(self, patients: PatientGroup, settings: Settings) -> None:
        self._plain = [plain_figures(rival, patients.n_cases) for rival in settings.rivals]
        self._drawn = [
            resample(patients, lambda _, weights, rival=rival: rival(weights), settings.draws, settings.seed)  # type: ignore[misc]
            for rival in settings.rivals
        ]

    def best(self, name: str) -> Floats | None:
        """(draws, labels) or (draws,) of the rival that is best on all cases, for each label; None where none has it."""
        having = [k for k, figures in enumerate(self._plain) if name in figures]
        if not having:
            return None
        sign = -1.0 if lower_is_better(name) else 1.0
        plain = np.stack([sign * self._plain[k][name] for k in having])
        first = np.where(np.isnan(plain), -np.inf, plain).argmax(axis=0)
        drawn = np.stack([self._drawn[k][name] for k in having])
        chosen: Floats = np.take_along_axis(drawn, first[None, None], axis=0)[0]
        return chosen


@dataclass(frozen=True)
class _Sizes:
    """Cases, and patients: of the rarest label, and of a typical one."""

    cases: int
    fewest: int
    typical: int


def _one(
    name: str,
    value: float,
    samples: Floats | None,
    trivial: Floats | float | None,
    sizes: _Sizes,
    others: Floats | None = None,
) -> Measure:
    low, high, gain = None, None, None
    if samples is not None:
        low, high = interval(value, samples, sizes.fewest, not unbounded(name), sizes.typical)
    if samples is not None and others is not None and spread(samples):
        gain = paired(samples, others, sizes.typical, lower_is_better(name))
    floor = None if trivial is None or np.isnan(trivial) else float(trivial)
    return Measure(name, value, low, high, sizes.cases, floor, gain, sizes.typical)
