"""Success rates with confidence intervals. Runs of one task are correlated, so means are resampled by task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE_LEVEL = 0.95
Z_SCORE = 1.959963984540054
BOOTSTRAP_DRAWS = 10_000
_MAX_BLOCK_ELEMENTS = 2_000_000


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % interval from `n` observations. Without an interval both bounds are None."""

    value: float
    low: float | None
    high: float | None
    n: int

    def percent(self) -> str:
        """Return the estimate in percent: `94.3 % (86.2-97.8)`."""
        if self.low is None or self.high is None:
            return f"{100 * self.value:.1f} % (no interval)"
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f}-{100 * self.high:.1f})"

    def to_json(self) -> dict[str, float | int | None]:
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}


def wilson_interval(successes: int, n: int) -> Estimate:
    """Return a proportion with its Wilson score interval (Wilson, J. Am. Stat. Assoc. 22, 1927).

    Raises:
        ValueError: there are no trials, or more successes than trials.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes in {n} trials are not a proportion")
    p, z2 = successes / n, Z_SCORE * Z_SCORE
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half_width = Z_SCORE * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(p, max(0.0, centre - half_width), min(1.0, centre + half_width), n)


def _draw_weights(groups: int, draws: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return how often each group is drawn, shape (draws, groups)."""
    drawn_groups = random.integers(0, groups, size=(draws, groups)) + np.arange(draws)[:, None] * groups
    return np.bincount(drawn_groups.ravel(), minlength=draws * groups).reshape(draws, groups).astype(np.float64)


def bootstrap_by_task(
    values: Mapping[str, Sequence[float]], *, draws: int = BOOTSTRAP_DRAWS, seed: int = 0
) -> Estimate:
    """Return the mean over all runs with a percentile interval from resampling whole tasks.

    With one task there is no interval. If all runs are 0 or all are 1, resampling gives no spread; the exact bound for
    as many trials as there are tasks is used instead: 1 - 0.025 ** (1 / tasks).

    Args:
        values: task -> one number per run.

    Raises:
        ValueError: there are no runs.
    """
    runs_by_task = [list(map(float, runs)) for runs in values.values() if len(runs)]
    if not runs_by_task:
        raise ValueError("there are no runs to average")
    sums, sizes = (
        np.array([sum(runs) for runs in runs_by_task]),
        np.array([len(runs) for runs in runs_by_task], dtype=np.float64),
    )
    value, n = float(sums.sum() / sizes.sum()), int(sizes.sum())
    if len(runs_by_task) < 2:
        return Estimate(value, None, None, n)
    means = np.concatenate([(w @ sums) / (w @ sizes) for w in _draw_weight_blocks(len(runs_by_task), draws, seed)])
    low, high = (float(bound) for bound in np.quantile(means, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2]))
    if high - low < 1e-12 and all(run in (0.0, 1.0) for runs in runs_by_task for run in runs):
        margin = ((1 - CONFIDENCE_LEVEL) / 2) ** (1 / len(runs_by_task))
        low, high = (margin, 1.0) if value == 1 else (0.0, 1 - margin) if value == 0 else (low, high)
    return Estimate(value, low, high, n)


def _draw_weight_blocks(groups: int, draws: int, seed: int) -> list[NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    size = max(1, min(draws, _MAX_BLOCK_ELEMENTS // max(groups, 1)))
    return [_draw_weights(groups, min(size, draws - start), random) for start in range(0, draws, size)]


def bootstrap_difference(
    first: Mapping[str, Sequence[float]],
    second: Mapping[str, Sequence[float]],
    *,
    draws: int = BOOTSTRAP_DRAWS,
    seed: int = 0,
) -> Estimate:
    """Return the mean difference (first minus second) over the common tasks, with a paired bootstrap interval by task.

    The runs of each task are averaged first. With one common task the interval is Newcombe's for two proportions (Stat.
    Med. 17, 1998, method 10).

    Raises:
        ValueError: there is no common task.
    """
    common = [task for task in first if task in second and len(first[task]) and len(second[task])]
    if not common:
        raise ValueError("the two have no task in common")
    if len(common) == 1:
        return newcombe_interval(_count_successes(first[common[0]]), _count_successes(second[common[0]]))
    differences = np.array([float(np.mean(first[task])) - float(np.mean(second[task])) for task in common])
    means = np.concatenate([(w @ differences) / len(common) for w in _draw_weight_blocks(len(common), draws, seed)])
    low, high = (float(bound) for bound in np.quantile(means, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2]))
    if high - low < 1e-12:
        margin = 1 - ((1 - CONFIDENCE_LEVEL) / 2) ** (
            1 / len(common)
        )  # the same difference in every task is no certain difference
        low, high = max(-1.0, low - margin), min(1.0, high + margin)
    return Estimate(float(differences.mean()), low, high, len(common))


def _count_successes(runs: Sequence[float]) -> tuple[int, int]:
    return round(sum(runs)), len(runs)


def newcombe_interval(first: tuple[int, int], second: tuple[int, int]) -> Estimate:
    """Return the difference of two independent proportions (successes, trials) with Newcombe's hybrid interval."""
    a, b = wilson_interval(*first), wilson_interval(*second)
    assert a.low is not None
    assert a.high is not None
    assert b.low is not None
    assert b.high is not None
    share_difference = a.value - b.value
    low = share_difference - math.hypot(a.value - a.low, b.high - b.value)
    high = share_difference + math.hypot(a.high - a.value, b.value - b.low)
    return Estimate(share_difference, low, high, first[1] + second[1])


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased probability that at least one of k runs succeeds: 1 - C(n-c, k) / C(n, k).

    Args:
        n: number of runs.
        c: number of successes.

    Source: Chen et al., arXiv 2107.03374. Raises ValueError if k is larger than n.
    """
    _check_k(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_all_k(n: int, c: int, k: int) -> float:
    """Return the unbiased probability that all of k runs succeed (pass^k): C(c, k) / C(n, k).

    Source: Yao et al., arXiv 2406.12045. Arguments and errors as of `pass_at_k`.
    """
    _check_k(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def _check_k(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"k = {k} runs of {n} with {c} successes: k must be between 1 and the number of runs")
