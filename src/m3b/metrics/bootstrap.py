"""95 % intervals by resampling patients, vectorised over the draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .cases import Floats, Table

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
        picked = rng.integers(0, patients, size=(rows, patients)) + np.arange(rows)[:, None] * patients
        times = np.bincount(picked.ravel(), minlength=rows * patients).reshape(rows, patients)
        yield times[:, table.patient].astype(np.float64)


def resample(
    table: _Cases, estimator: Callable[[_Cases, Floats], dict[str, Floats]], draws: int, seed: int
) -> dict[str, Floats]:
    """The values of every metric over all draws: name -> (draws, ...)."""
    blocks = [estimator(table, weights) for weights in weightings(table, draws, seed)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}


def interval(value: float, drawn: Floats, effective: int, share: bool = True) -> Interval:
    """The percentile interval of one metric, or (None, None) where there is none.

    None where the value is undefined, where fewer than 90 % of the draws define it, and where every draw gives the
    same value. The exceptions to the last are the perfect and the worst value, 1 and 0: there resampling cannot see
    that the next patient may be different, and the exact (Clopper-Pearson) bound for `effective` successes in
    `effective` trials takes its place: low = 0.025 ** (1 / effective) for 1, high = 1 - that for 0.

    Args:
        value: the figure on all cases.
        drawn: (draws,) its bootstrap values, NaN where undefined.
        effective: number of independent observations behind the figure: patients, of the rarest class where classes
            count alike.
        share: whether the metric runs from 0 to 1, so that the exact bound means something.
    """
    known = drawn[~np.isnan(drawn)]
    if np.isnan(value) or len(known) < max(2, ENOUGH_DEFINED * len(drawn)):
        return None, None
    low, high = (float(bound) for bound in np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    if high - low > 1e-12:
        return low, high
    if not share or effective < 2 or float(known.max() - known.min()) > 1e-12:
        return None, None
    reach = ((1 - LEVEL) / 2) ** (1 / effective)
    if abs(value - 1) < 1e-12:
        return reach, 1.0
    if abs(value) < 1e-12:
        return 0.0, 1 - reach
    return None, None


def rarest(table: Table) -> int:
    """Patients of the rarest side of any class that has cases on both sides: what a macro average hangs on."""
    sizes = []
    for truth in table.truth.T:
        sides = [len(np.unique(table.patient[truth])), len(np.unique(table.patient[~truth]))]
        if min(sides) > 0:
            sizes.append(min(sides))
    return min(sizes, default=0)
