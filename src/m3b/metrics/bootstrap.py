"""95 % intervals by resampling patients, vectorised over the draws.

Percentiles are widened for few patients as Student's t is against the normal distribution: Hesterberg, "What teachers
should know about the bootstrap", The American Statistician 69 (2015), "expanded percentile interval".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Metric -> one figure a case, NaN where a case says nothing."""


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
    """Each metric's mean over the cases, with a 95 % interval from `draws` bootstrap samples of patients.

    Args:
        task: whose metrics these are; its table says which way is better.
        patients: of each case.
        figures: of the model.
        primary: the metric that counts, any spelling of it.
        baseline_figures: of the best answer that never looks at an image, on the same cases; it is paired with the model's.
        details: JSON values that belong to the task.

    Raises:
        ValueError: no cases, a metric without a figure for each case, or an unknown primary metric.
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
    """The means of every metric from (draws, cases) weights."""
    columns = {name: np.asarray(values, dtype=np.float64)[:, None] for name, values in figures.items()}
    return lambda weights: {name: weighted_means(column, weights)[:, 0] for name, column in columns.items()}


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


MIN_DEFINED_SHARE = 0.9
"""Share of the draws in which a metric must be defined for its interval to mean anything."""

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
    """Blocks of (some draws, cases): how often each case is in a draw of as many patients as there are.

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


def resample(
    table: _Cases, estimator: Callable[[_Cases, Floats], dict[str, Floats]], draws: int, seed: int
) -> dict[str, Floats]:
    """The values of every metric over all draws: name -> (draws, ...)."""
    blocks = [estimator(table, weights) for weights in resampling_weights(table, draws, seed)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}


def tail_quantiles(effective: int) -> tuple[float, float]:
    """The two quantiles that bound a 95 % interval from `effective` independent observations, at least 2.

    0.025 and 0.975 for very many; for few further out, so that the interval of a mean is about as wide as Student's.
    """
    from scipy.special import ndtr, stdtrit

    z_score = np.sqrt(effective / (effective - 1)) * stdtrit(effective - 1, (1 + LEVEL) / 2)
    return float(ndtr(-z_score)), float(ndtr(z_score))


def paired_interval(
    model_samples: Floats, baseline_samples: Floats, n_effective: int, lower_is_better: bool = False
) -> tuple[float, float] | None:
    """The interval of how much better one answer is than another to the same cases, positive for better.

    Args:
        model_samples: (draws,) values of the one on the bootstrap samples, NaN where undefined.
        baseline_samples: (draws,) values of the other on the same samples.
        n_effective: as of `bootstrap_interval`.

    Returns:
        None where fewer than 90 % of the draws define both, from fewer than two patients, and where the difference is
        the same in all of them: resampling sees no spread then.
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
    """Whether resampling changes a figure: a perfect one it does not, and only the limit of `edges` is honest."""
    defined_samples = samples[~np.isnan(samples)]
    return bool(len(defined_samples) and np.ptp(defined_samples) > TOLERANCE)


def bootstrap_interval(value: float, samples: Floats, n_effective: int, edges: Sequence[Edge] = ()) -> Interval:
    """The percentile interval of one metric, widened for few patients and at its edges, or (None, None).

    None where the value is undefined, where there are fewer than two observations, where fewer than 90 % of the draws
    define it, and where every draw gives the same value that is no edge. At an edge (a perfect or the worst figure) the
    other limit is that of the edge, which needs no draws; an interval that touches an edge is no narrower.

    Args:
        value: the figure on all cases.
        samples: (draws,) its bootstrap values, NaN where undefined.
        n_effective: number of independent observations behind the figure: patients, of the rarer side of a typical class
            where classes count alike.
        edges: extreme values of the metric with their limits, `edges.share_edges` for a share.
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
    """The paired gain, which is no surer than the interval if that touches the best figure.

    Args:
        gain: of `paired_interval`.
        bounds: of `bootstrap_interval`.
        best: the edge of a perfect answer.
        baseline: figure of the image-blind answer on all cases.
    """
    if gain is None or best is None or baseline is None or None in bounds:
        return gain
    if min(abs(bound - best.value) for bound in bounds if bound is not None) > TOLERANCE:
        return gain
    edge_gain = baseline - best.limit if best.limit > best.value else best.limit - baseline
    return min(gain[0], edge_gain), gain[1]


def rarer_side_patients(table: ClassificationTable) -> list[int]:
    """For each class that has cases on both sides, the patients of its rarer side: what a macro average hangs on."""
    sizes = []
    for truth in table.truth.T:
        side_patients = [len(np.unique(table.patient[truth])), len(np.unique(table.patient[~truth]))]
        if min(side_patients) > 0:
            sizes.append(min(side_patients))
    return sizes


def lower_median(sizes: Sequence[int]) -> int:
    """The middle of some counts, the lower of two; 0 of none."""
    return sorted(sizes)[(len(sizes) - 1) // 2] if sizes else 0
