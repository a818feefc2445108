"""95 % intervals by resampling patients, vectorised over the draws.

Percentiles are widened for few patients as Student's t is against the normal distribution: Hesterberg, "What teachers
should know about the bootstrap", The American Statistician 69 (2015), "expanded percentile interval".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .cases import ClassificationTable, Floats
from .edges import LEVEL, TOLERANCE, Edge, widen

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
    least = baseline - best.limit if best.limit > best.value else best.limit - baseline
    return min(gain[0], least), gain[1]


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
