"""95 % intervals by resampling patients, vectorised over the draws.

Percentiles are widened for few patients as Student's t is against the normal distribution: Hesterberg, "What teachers
should know about the bootstrap", The American Statistician 69 (2015), "expanded percentile interval".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .cases import CaseTable, Floats

LEVEL = 0.95
ENOUGH_DEFINED = 0.9
"""Share of the draws in which a metric must be defined for its interval to mean anything."""

_BLOCK = 4_000_000

Interval = tuple[float | None, float | None]


class Grouped(Protocol):
    """Cases that belong to patients; `patient` is (cases,) numbers from 0."""

    @property
    def n_cases(self) -> int: ...
    @property
    def n_patients(self) -> int: ...
    @property
    def patient(self) -> NDArray[np.int64]: ...


_Cases = TypeVar("_Cases", bound=Grouped)


def weightings(table: Grouped, draws: int, seed: int) -> Iterator[Floats]:
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
    blocks = [estimator(table, weights) for weights in weightings(table, draws, seed)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}


def tails(effective: int) -> tuple[float, float]:
    """The two quantiles that bound a 95 % interval from `effective` independent observations, at least 2.

    0.025 and 0.975 for very many; for few further out, so that the interval of a mean is about as wide as Student's.
    """
    from scipy.special import ndtr, stdtrit

    z_score = np.sqrt(effective / (effective - 1)) * stdtrit(effective - 1, (1 + LEVEL) / 2)
    return float(ndtr(-z_score)), float(ndtr(z_score))


def paired(ours: Floats, theirs: Floats, effective: int, lower_is_better: bool = False) -> tuple[float, float] | None:
    """The interval of how much better one answer is than another to the same cases, positive for better.

    Args:
        ours: (draws,) values of the one on the bootstrap samples, NaN where undefined.
        theirs: (draws,) values of the other on the same samples.
        effective: as of `interval`.

    Returns:
        None where fewer than 90 % of the draws define both, from fewer than two patients, and where the difference is
        the same in all of them: resampling sees no spread then.
    """
    gain = theirs - ours if lower_is_better else ours - theirs
    defined_gain = gain[~np.isnan(gain)]
    if effective < 2 or len(defined_gain) < max(2, ENOUGH_DEFINED * len(gain)) or np.ptp(defined_gain) <= 1e-12:
        return None
    low, high = np.quantile(defined_gain, tails(effective))
    return float(low), float(high)


def spread(drawn: Floats) -> bool:
    """Whether resampling changes a figure: a perfect one it does not, and only the exact bound of `interval` is honest."""
    defined_samples = drawn[~np.isnan(drawn)]
    return bool(len(defined_samples) and np.ptp(defined_samples) > 1e-12)


def interval(value: float, drawn: Floats, effective: int, share: bool = True, typical: int | None = None) -> Interval:
    """The percentile interval of one metric, widened for few patients, or (None, None) where there is none.

    None where the value is undefined, where fewer than 90 % of the draws define it, where there are fewer than two
    observations, and where every draw gives the same value. The exceptions to the last are the perfect and the worst
    value, 1 and 0: there resampling cannot see that the next patient may be different, and the exact
    (Clopper-Pearson) bound for `effective` successes in `effective` trials takes its place:
    low = 0.025 ** (1 / effective) for 1, high = 1 - that for 0.

    Args:
        value: the figure on all cases.
        drawn: (draws,) its bootstrap values, NaN where undefined.
        effective: number of independent observations behind the figure: patients, of the rarest class where classes
            count alike.
        share: whether the metric runs from 0 to 1, so that the exact bound means something.
        typical: the observations behind a typical class of a mean over classes, which say how wide the interval is;
            as `effective` where not given.
    """
    typical = effective if typical is None else typical
    defined_samples = drawn[~np.isnan(drawn)]
    if np.isnan(value) or typical < 2 or len(defined_samples) < max(2, ENOUGH_DEFINED * len(drawn)):
        return None, None
    low, high = (float(bound) for bound in np.quantile(defined_samples, tails(typical)))
    if high - low > 1e-12:
        return low, high
    if not share or effective < 2 or float(defined_samples.max() - defined_samples.min()) > 1e-12:
        return None, None
    exact_bound = ((1 - LEVEL) / 2) ** (1 / effective)
    if abs(value - 1) < 1e-12:
        return exact_bound, 1.0
    if abs(value) < 1e-12:
        return 0.0, 1 - exact_bound
    return None, None


def sides(table: CaseTable) -> list[int]:
    """For each class that has cases on both sides, the patients of its rarer side: what a macro average hangs on."""
    sizes = []
    for truth in table.truth.T:
        side_patients = [len(np.unique(table.patient[truth])), len(np.unique(table.patient[~truth]))]
        if min(side_patients) > 0:
            sizes.append(min(side_patients))
    return sizes


def median(sizes: Sequence[int]) -> int:
    """The middle of some counts, the lower of two; 0 of none."""
    return sorted(sizes)[(len(sizes) - 1) // 2] if sizes else 0
