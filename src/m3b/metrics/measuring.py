"""From figures of single cases to measures with intervals: what segmentation, detection and reports share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .arithmetic import divide, mean_defined
from .bootstrap import Interval, bootstrap_interval, gain_at_edge, has_spread, lower_median, paired_interval, resample
from .cases import Floats, HasPatient, patient_numbers
from .edges import TOLERANCE, edges_of, largest_loss, largest_unseen_share, sum_by_patient, with_perfect_labels
from .scores import LabelScore, Measure
from .table import best_value, is_unbounded, lower_is_better

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
        """Number of patients with a case that is concerned; `is_counted` is (cases,)."""
        return len(np.unique(self.patient[is_counted]))


def group_patients(cases: Sequence[HasPatient]) -> PatientGroup:
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


def point_estimates(estimator: Estimator, n_cases: int) -> dict[str, Floats]:
    """Metric -> (labels,) or () value on all cases, each counted once."""
    return {name: value[0] for name, value in estimator(np.ones((1, n_cases))).items()}


@dataclass(frozen=True)
class MeasureSettings:
    """How intervals are made, and what the figures are compared with.

    Args:
        baseline: metric -> (labels,) or () figures of the best answer that ignores the image.
        label_presence: (cases, labels) which cases say something about a label; its patients say how wide its interval is.
        loads: (cases, labels) how much of a label's figure hangs on a case, such as its number of lesions; by default,
            all concerned cases count alike.
        effective_patients: the same number for metrics without labels, where it is not that of all patients.
        losses: how much a perfect figure of a metric without labels may lose in the population; by default, what is lost
            if as many patients as these may be unseen are answered wrongly (`edges`).
        baseline_estimators: the answers that ignore the image, measured on the same cases: the best of them is paired with ours.
    """

    draws: int
    seed: int
    baseline: Mapping[str, Floats]
    label_presence: NDArray[np.bool_]
    effective_patients: Mapping[str, int] = field(default_factory=dict)
    baseline_estimators: Sequence[Estimator] = ()
    losses: Mapping[str, float] = field(default_factory=dict)
    loads: Floats | None = None


def measure_with_intervals(
    patients: PatientGroup, labels: Sequence[str], estimator: Estimator, settings: MeasureSettings
) -> tuple[dict[str, Measure], tuple[LabelScore, ...]]:
    """Every metric over all labels (the mean of those that are defined), and for each label."""
    n = patients.n_cases
    bootstrap_samples = resample(patients, lambda _, weights: estimator(weights), settings.draws, settings.seed)
    baselines = _BaselineSamples(patients, settings) if bootstrap_samples else None
    patients_per_label = [patients.patients_with(column) for column in settings.label_presence.T]
    nonzero_counts = [count for count in patients_per_label if count]
    loads = settings.label_presence if settings.loads is None else settings.loads
    label_stakes = _label_stakes(patients, np.asarray(loads, dtype=np.float64))
    overall: dict[str, Measure] = {}
    per_label: list[dict[str, Measure]] = [{} for _ in labels]
    for name, values in point_estimates(estimator, n).items():
        samples, baseline = bootstrap_samples.get(name), settings.baseline.get(name)
        baseline_samples = baselines.best_samples(name) if baselines else None
        if values.ndim == 0:
            n_effective = settings.effective_patients.get(name, patients.n_patients)
            loss = settings.losses.get(name, largest_unseen_share(n_effective))
            overall[name] = _make_measure(
                name, float(values), samples, baseline, _Support(n, n_effective, loss), baseline_samples
            )
            continue
        means = None if samples is None else mean_defined(samples)
        mean_baseline = None if baseline is None else mean_defined(np.where(np.isnan(values), np.nan, baseline))
        mean_baseline_samples = (
            None
            if samples is None or baseline_samples is None
            else mean_defined(np.where(np.isnan(samples), np.nan, baseline_samples))
        )
        stakes = label_stakes[:, ~np.isnan(values)]
        count = max(stakes.shape[1], 1)
        perfect = np.zeros(len(values), dtype=np.bool_) if is_unbounded(name) else values >= 1 - TOLERANCE
        unseen = largest_loss(label_stakes[:, perfect].sum(axis=1) / count) if perfect.any() else 0.0
        support = _Support(n, lower_median(nonzero_counts), largest_loss(stakes.sum(axis=1) / count), unseen)
        overall[name] = _make_measure(
            name, float(mean_defined(values)), means, mean_baseline, support, mean_baseline_samples
        )
        for k, table in enumerate(per_label):
            label_samples, label_baseline, label_baseline_samples = (
                None if array is None else array[..., k] for array in (samples, baseline, baseline_samples)
            )
            support = _Support(
                int(settings.label_presence[:, k].sum()), patients_per_label[k], largest_loss(label_stakes[:, k])
            )
            table[name] = _make_measure(
                name, float(values[k]), label_samples, label_baseline, support, label_baseline_samples
            )
    scores = zip(labels, settings.label_presence.sum(axis=0), per_label, strict=True)
    return overall, tuple(LabelScore(label, int(count), table) for label, count, table in scores)


class _BaselineSamples:
    """What the answers that ignore the image get on the bootstrap samples that ours was measured on."""

    def __init__(self, patients: PatientGroup, settings: MeasureSettings) -> None:
        self._estimates = [point_estimates(rival, patients.n_cases) for rival in settings.baseline_estimators]
        self._samples = [
            resample(patients, lambda _, weights, rival=rival: rival(weights), settings.draws, settings.seed)  # type: ignore[misc]
            for rival in settings.baseline_estimators
        ]

    def best_samples(self, name: str) -> Floats | None:
        """(draws, labels) or (draws,) of the rival that is best on all cases, for each label; None where none has it."""
        available = [k for k, figures in enumerate(self._estimates) if name in figures]
        if not available:
            return None
        sign = -1.0 if lower_is_better(name) else 1.0
        estimates = np.stack([sign * self._estimates[k][name] for k in available])
        best_index = np.where(np.isnan(estimates), -np.inf, estimates).argmax(axis=0)
        samples = np.stack([self._samples[k][name] for k in available])
        selected: Floats = np.take_along_axis(samples, best_index[None, None], axis=0)[0]
        return selected


@dataclass(frozen=True)
class _Support:
    """What a figure rests on: cases, patients (of a typical label), and the share that a perfect one may lose."""

    cases: int
    patients: int
    loss: float
    unseen: float = 0.0
    """What the mean over labels may lose on those that are perfect."""


def _label_stakes(patients: PatientGroup, loads: Floats) -> Floats:
    """Return (patients, labels) shares of each label's figure that hang on a patient."""
    columns = [sum_by_patient(patients.patient, column / max(column.sum(), 1e-12)) for column in loads.T]
    return np.stack(columns, axis=1) if columns else np.zeros((patients.n_patients, 0))


def _make_measure(
    name: str,
    value: float,
    samples: Floats | None,
    baseline: Floats | float | None,
    support: _Support,
    baseline_samples: Floats | None = None,
) -> Measure:
    bounds: Interval = (None, None)
    gain = None
    baseline_value = None if baseline is None or np.isnan(baseline) else float(baseline)
    edges = edges_of(
        support.loss,
        best_value(name),
        baseline_value,
        share=not is_unbounded(name),
        lower_is_better=lower_is_better(name),
    )
    if samples is not None:
        bounds = with_perfect_labels(value, bootstrap_interval(value, samples, support.patients, edges), support.unseen)
    if samples is not None and baseline_samples is not None and has_spread(samples):
        gain = paired_interval(samples, baseline_samples, support.patients, lower_is_better(name))
        best = next((edge for edge in edges if edge.value == best_value(name)), None)
        gain = gain_at_edge(gain, bounds, best, baseline_value)
    return Measure(name, value, *bounds, support.cases, baseline_value, gain, support.patients)
