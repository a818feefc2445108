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

    def patients_with(self, is_counted: NDArray[np.bool_]) -> int:
        """Number of patients with a case that is concerned; `concerned` is (cases,)."""
        return len(np.unique(self.patient[is_counted]))


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
    is_defined = ~np.isnan(values)
    return divide(weights @ np.where(is_defined, values, 0.0), weights @ is_defined.astype(np.float64))


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
    bootstrap_samples = resample(patients, lambda _, weights: estimator(weights), settings.draws, settings.seed)
    baselines = _BaselineSamples(patients, settings) if bootstrap_samples else None
    patients_per_label = [patients.patients_with(column) for column in settings.concerned.T]
    nonzero_counts = [count for count in patients_per_label if count]
    overall: dict[str, Measure] = {}
    per_label: list[dict[str, Measure]] = [{} for _ in labels]
    for name, values in plain_figures(estimator, n).items():
        samples, baseline = bootstrap_samples.get(name), settings.trivial.get(name)
        baseline_samples = baselines.best(name) if baselines else None
        if values.ndim == 0:
            n_effective = settings.effective.get(name, patients.n_patients)
            overall[name] = _one(
                name, float(values), samples, baseline, _SampleSizes(n, n_effective, n_effective), baseline_samples
            )
            continue
        means = None if samples is None else mean_defined(samples)
        mean_baseline = None if baseline is None else mean_defined(np.where(np.isnan(values), np.nan, baseline))
        mean_baseline_samples = (
            None
            if samples is None or baseline_samples is None
            else mean_defined(np.where(np.isnan(samples), np.nan, baseline_samples))
        )
        sizes = _SampleSizes(n, min(nonzero_counts, default=0), median(nonzero_counts))
        overall[name] = _one(name, float(mean_defined(values)), means, mean_baseline, sizes, mean_baseline_samples)
        for k, table in enumerate(per_label):
            label_samples, label_baseline, label_baseline_samples = (
                None if array is None else array[..., k] for array in (samples, baseline, baseline_samples)
            )
            sizes = _SampleSizes(int(settings.concerned[:, k].sum()), patients_per_label[k], patients_per_label[k])
            table[name] = _one(name, float(values[k]), label_samples, label_baseline, sizes, label_baseline_samples)
    scores = zip(labels, settings.concerned.sum(axis=0), per_label, strict=True)
    return overall, tuple(LabelScore(label, int(count), table) for label, count, table in scores)


class _BaselineSamples:
    """What the answers that ignore the image get on the bootstrap samples that ours was measured on."""

    def __init__(self, patients: PatientGroup, settings: Settings) -> None:
        self._plain = [plain_figures(rival, patients.n_cases) for rival in settings.rivals]
        self._drawn = [
            resample(patients, lambda _, weights, rival=rival: rival(weights), settings.draws, settings.seed)  # type: ignore[misc]
            for rival in settings.rivals
        ]

    def best(self, name: str) -> Floats | None:
        """(draws, labels) or (draws,) of the rival that is best on all cases, for each label; None where none has it."""
        available = [k for k, figures in enumerate(self._plain) if name in figures]
        if not available:
            return None
        sign = -1.0 if lower_is_better(name) else 1.0
        estimates = np.stack([sign * self._plain[k][name] for k in available])
        best_index = np.where(np.isnan(estimates), -np.inf, estimates).argmax(axis=0)
        samples = np.stack([self._drawn[k][name] for k in available])
        selected: Floats = np.take_along_axis(samples, best_index[None, None], axis=0)[0]
        return selected


@dataclass(frozen=True)
class _SampleSizes:
    """Cases, and patients: of the rarest label, and of a typical one."""

    cases: int
    fewest: int
    typical: int


def _one(
    name: str,
    value: float,
    samples: Floats | None,
    trivial: Floats | float | None,
    sizes: _SampleSizes,
    others: Floats | None = None,
) -> Measure:
    low, high, gain = None, None, None
    if samples is not None:
        low, high = interval(value, samples, sizes.fewest, not unbounded(name), sizes.typical)
    if samples is not None and others is not None and spread(samples):
        gain = paired(samples, others, sizes.typical, lower_is_better(name))
    baseline_value = None if trivial is None or np.isnan(trivial) else float(trivial)
    return Measure(name, value, low, high, sizes.cases, baseline_value, gain, sizes.typical)
