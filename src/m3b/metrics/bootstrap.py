"""95 % intervals by resampling patients, vectorised over the draws.

For few patients, percentiles are widened as Student's t is relative to the normal distribution: Hesterberg, "What
teachers should know about the bootstrap", The American Statistician 69 (2015), "expanded percentile interval".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from m3b.metrics.cases import ClassificationTable, Floats, HasPatient, divide, mean_defined, patient_numbers
from m3b.metrics.edges import (
    LEVEL,
    TOLERANCE,
    Edge,
    edges_of,
    largest_loss,
    largest_unseen_share,
    sum_by_patient,
    widen,
    with_perfect_labels,
)
from m3b.metrics.metric_tables import best_value, canonical_metric, is_unbounded, lower_is_better
from m3b.metrics.scores import LabelScore, Measure, Scores

CaseFigures = Mapping[str, Sequence[float]]
"""Metric -> one value a case, NaN if it is undefined for the case."""


@dataclass(frozen=True)
class _PatientOnly:
    patient: str


def score_means(
    task: str,
    patients: Sequence[str],
    figures: CaseFigures,
    *,
    primary: str,
    baseline_figures: CaseFigures | None = None,
    classes: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
    seed: int = 0,
    draws: int = 1000,
) -> Scores:
    """Compute each metric's mean over the cases, with a 95 % interval from `draws` bootstrap samples of patients.

    Args:
        task: the task of these metrics; its metric table gives their direction.
        patients: the patient of each case.
        figures: values of the model.
        primary: the metric that counts, any spelling of it.
        baseline_figures: values of the image-blind baseline on the same cases; they are paired with the model's.
        details: JSON values that belong to the task.

    Raises:
        ValueError: no cases, a metric without a value for each case, or an unknown primary metric.
    """
    name = canonical_metric(primary, task)
    cases = group_patients([_PatientOnly(patient) for patient in patients])
    for figures_by_metric in (figures, baseline_figures or {}):
        if incomplete := [metric for metric, values in figures_by_metric.items() if len(values) != len(patients)]:
            raise ValueError(f"{', '.join(incomplete)}: there must be one figure for each of the {len(patients)} cases")
    if name not in figures:
        raise ValueError(f"there are no figures of {name}, which is asked for; there are {', '.join(figures)}")
    baseline_estimator = _make_mean_estimator(baseline_figures) if baseline_figures else None
    baseline = (
        {}
        if baseline_estimator is None
        else {metric: value[0] for metric, value in baseline_estimator(np.ones((1, len(patients)))).items()}
    )
    no_labels = np.zeros((len(patients), 0), dtype=np.bool_)
    settings = MeasureSettings(
        draws, seed, baseline, no_labels, baseline_estimators=[baseline_estimator] if baseline_estimator else []
    )
    metrics, _ = measure_with_intervals(cases, (), _make_mean_estimator(figures), settings)
    return Scores(
        primary=metrics[name],
        metrics=metrics,
        classes=tuple(classes),
        n_cases=len(patients),
        n_patients=cases.n_patients,
        task=task,
        details=dict(details or {}),
    )


def _make_mean_estimator(figures: CaseFigures) -> Callable[[Floats], dict[str, Floats]]:
    """Return an estimator of the means of every metric, from (draws, cases) weights."""
    columns = {name: np.asarray(values, dtype=np.float64)[:, None] for name, values in figures.items()}
    return lambda weights: {name: weighted_means(column, weights)[:, 0] for name, column in columns.items()}


Estimator = Callable[[Floats], dict[str, Floats]]
"""Weights (draws, cases) -> metric -> (draws, labels), or (draws,) for a metric without labels; NaN: undefined."""


@dataclass(frozen=True)
class PatientGroup:
    """The patient number of each case."""

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
        """Return the number of patients with a counted case; `is_counted` is (cases,)."""
        return len(np.unique(self.patient[is_counted]))


def group_patients(cases: Sequence[HasPatient]) -> PatientGroup:
    """Number the patients of some cases.

    Raises:
        ValueError: there are no cases.
    """
    if not cases:
        raise ValueError("no cases to score: the list of predictions is empty")
    return PatientGroup(patient_numbers(cases))


def weighted_means(values: Floats, weights: Floats) -> Floats:
    """Return (draws, labels) means of (cases, labels) values over the cases that define them, NaN if none does."""
    is_defined = ~np.isnan(values)
    return divide(weights @ np.where(is_defined, values, 0.0), weights @ is_defined.astype(np.float64))


def point_estimates(estimator: Estimator, n_cases: int) -> dict[str, Floats]:
    """Return metric -> (labels,) or () value on all cases, each counted once."""
    return {name: value[0] for name, value in estimator(np.ones((1, n_cases))).items()}


@dataclass(frozen=True)
class MeasureSettings:
    """How intervals are computed, and the baseline that metrics are compared with.

    Args:
        baseline: metric -> (labels,) or () values of the best image-blind baseline.
        label_presence: (cases, labels) whether the case counts for the label; the patients of these cases determine the
            width of the label's interval.
        loads: (cases, labels) weight of a case in a label's metrics, such as its number of lesions; by default all
            cases that count weigh the same.
        effective_patients: the number of patients for metrics without labels, if it is not that of all patients.
        losses: how much a perfect value of a metric without labels may lose in the population; by default, what is lost
            if the largest share of patients that this test set may have missed is answered wrongly (`edges`).
        baseline_estimators: the image-blind baselines, measured on the same cases: the best of them is paired with the
            model.
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
    """Measure every metric over all labels (the mean of those that are defined), and for each label."""
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
    """Metrics of the image-blind baselines on the bootstrap samples of the model."""

    def __init__(self, patients: PatientGroup, settings: MeasureSettings) -> None:
        def sample(estimator: Estimator) -> dict[str, Floats]:
            return resample(patients, lambda _, weights: estimator(weights), settings.draws, settings.seed)

        estimators = settings.baseline_estimators
        self._estimates = [point_estimates(estimator, patients.n_cases) for estimator in estimators]
        self._samples = [sample(estimator) for estimator in estimators]

    def best_samples(self, name: str) -> Floats | None:
        """Return (draws, labels) or (draws,) values of the best baseline on all cases, for each label.

        None if no baseline has the metric.
        """
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
    """The data behind a value: cases, patients (of a typical label), and the share that a perfect value may lose."""

    cases: int
    patients: int
    loss: float
    unseen: float = 0.0
    """What the mean over labels may lose on the labels that are perfect."""


def _label_stakes(patients: PatientGroup, loads: Floats) -> Floats:
    """Return (patients, labels) the share of each label's metrics that depends on a patient."""
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


MIN_DEFINED_SHARE = 0.9
"""Minimum share of the draws in which a metric must be defined to have an interval."""

_BLOCK = 4_000_000

Interval = tuple[float | None, float | None]


class PatientGrouped(Protocol):
    """Cases that belong to patients; `patient` is (cases,) numbers from 0."""

    @property
    def n_cases(self) -> int: ...
    @property
    def n_patients(self) -> int: ...
    @property
    def patient(self) -> NDArray[np.int64]: ...


_Cases = TypeVar("_Cases", bound=PatientGrouped)


def resampling_weights(table: PatientGrouped, draws: int, seed: int) -> Iterator[Floats]:
    """Yield blocks of (some draws, cases): how often each case is in a draw of as many patients as there are.

    Blocks bound the memory; the draws do not depend on their size.
    """
    rng = np.random.default_rng(seed)
    patients = table.n_patients
    size = max(1, min(draws, _BLOCK // max(table.n_cases, 1)))
    for start in range(0, draws, size):
        rows = min(size, draws - start)
        patient_draws = rng.integers(0, patients, size=(rows, patients)) + np.arange(rows)[:, None] * patients
        patient_counts = np.bincount(patient_draws.ravel(), minlength=rows * patients).reshape(rows, patients)
        yield patient_counts[:, table.patient].astype(np.float64)


_has_no_intervals: ContextVar[bool] = ContextVar("has_no_intervals", default=False)


@contextmanager
def without_intervals() -> Iterator[None]:
    """Let all scoring inside compute values without intervals, for callers that draw the samples themselves."""
    token = _has_no_intervals.set(True)
    try:
        yield
    finally:
        _has_no_intervals.reset(token)


def resample(
    table: _Cases, estimator: Callable[[_Cases, Floats], dict[str, Floats]], draws: int, seed: int
) -> dict[str, Floats]:
    """Return the values of every metric over all draws: name -> (draws, ...); {} without draws, and in `without_intervals`."""
    if _has_no_intervals.get():
        return {}
    blocks = [estimator(table, weights) for weights in resampling_weights(table, draws, seed)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}


def tail_quantiles(effective: int) -> tuple[float, float]:
    """Return the two quantiles that bound a 95 % interval from `effective` independent observations, at least 2.

    They approach 0.025 and 0.975 for many observations, and lie further out for few, so that the interval of a mean is
    about as wide as Student's.
    """
    from scipy.special import ndtr, stdtrit

    z_score = np.sqrt(effective / (effective - 1)) * stdtrit(effective - 1, (1 + LEVEL) / 2)
    return float(ndtr(-z_score)), float(ndtr(z_score))


def paired_interval(
    model_samples: Floats, baseline_samples: Floats, n_effective: int, lower_is_better: bool = False
) -> tuple[float, float] | None:
    """Return the interval of the gain of one answer over another on the same cases, positive for better.

    Args:
        model_samples: (draws,) values of the first on the bootstrap samples, NaN if undefined.
        baseline_samples: (draws,) values of the second on the same samples.
        n_effective: see `bootstrap_interval`.

    Returns:
        None if fewer than 90 % of the draws define both, with fewer than two patients, or if the difference is the same
        in all draws, because resampling then sees no spread.
    """
    gain = baseline_samples - model_samples if lower_is_better else model_samples - baseline_samples
    defined_gain = gain[~np.isnan(gain)]
    if (
        n_effective < 2
        or len(defined_gain) < max(2, MIN_DEFINED_SHARE * len(gain))
        or np.ptp(defined_gain) <= TOLERANCE
    ):
        return None
    low, high = np.quantile(defined_gain, tail_quantiles(n_effective))
    return float(low), float(high)


def has_spread(samples: Floats) -> bool:
    """Return whether resampling changes a value. It does not change a perfect one; its limit is that of `edges`."""
    defined_samples = samples[~np.isnan(samples)]
    return bool(len(defined_samples) and np.ptp(defined_samples) > TOLERANCE)


def bootstrap_interval(value: float, samples: Floats, n_effective: int, edges: Sequence[Edge] = ()) -> Interval:
    """Return the percentile interval of one metric, widened for few patients and at its edges, or (None, None).

    There is no interval if the value is undefined, with fewer than two observations, if fewer than 90 % of the draws
    define the metric, or if every draw gives the same value and that is no edge. At an edge (a perfect or the worst
    value) the other limit is that of the edge, which needs no draws; an interval that touches an edge is at least as
    wide.

    Args:
        value: the value on all cases.
        samples: (draws,) its bootstrap values, NaN if undefined.
        n_effective: number of independent observations behind the value: patients, or those of the rarer side of a
            typical class if classes count alike.
        edges: extreme values of the metric with their limits; `edges.share_edges` for a share.
    """
    defined_samples = samples[~np.isnan(samples)]
    if np.isnan(value) or n_effective < 2:
        return None, None
    if not has_spread(samples):
        for edge in edges:
            if abs(value - edge.value) <= TOLERANCE and abs(edge.limit - edge.value) > TOLERANCE:
                return min(edge.value, edge.limit), max(edge.value, edge.limit)
        return None, None
    if len(defined_samples) < max(2, MIN_DEFINED_SHARE * len(samples)):
        return None, None
    low, high = (float(bound) for bound in np.quantile(defined_samples, tail_quantiles(n_effective)))
    low, high = widen(low, high, edges)
    return (low, high) if high - low > TOLERANCE else (None, None)


def gain_at_edge(
    gain: tuple[float, float] | None, bounds: Interval, best: Edge | None, baseline: float | None
) -> tuple[float, float] | None:
    """Limit the paired gain by the interval of the metric, if that touches the best value.

    Args:
        gain: the result of `paired_interval`.
        bounds: the result of `bootstrap_interval`.
        best: the edge of a perfect answer.
        baseline: value of the image-blind baseline on all cases.
    """
    if gain is None or best is None or baseline is None or None in bounds:
        return gain
    if min(abs(bound - best.value) for bound in bounds if bound is not None) > TOLERANCE:
        return gain
    edge_gain = baseline - best.limit if best.limit > best.value else best.limit - baseline
    return min(gain[0], edge_gain), gain[1]


def rarer_side_patients(table: ClassificationTable) -> list[int]:
    """Return the patients on the rarer side of each class with cases on both sides; a macro average depends on them."""
    sizes = []
    for truth, negative in zip(table.truth.T, table.negative.T, strict=True):
        side_patients = [len(np.unique(table.patient[truth])), len(np.unique(table.patient[negative]))]
        if min(side_patients) > 0:
            sizes.append(min(side_patients))
    return sizes


def lower_median(sizes: Sequence[int]) -> int:
    """Return the median of some counts, the lower of the two middle ones; 0 without counts."""
    return sorted(sizes)[(len(sizes) - 1) // 2] if sizes else 0
